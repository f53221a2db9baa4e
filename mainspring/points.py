"""Points: many runs at once, each made only once.

A point is a scenario with one policy and one seed. Its address is a checksum over all that its
outcome comes from: the scenario with its defaults, the seed, the contents of its inputs, and the
code. A point that is in the store is not run again, so that work goes on where it stopped.

    HOME/points/ADDRESS/   the run of a point: whole, or not there
    HOME/work/             runs under way; what lies here after a crash is of no use

Points run on any `concurrent.futures.Executor`. A process that dies takes with it the points that
were under way, which are run again; one that kills its process every time is given up.
Not here: which points there are (mainspring.study), and what they come to (mainspring.sweep).
"""

import gc
import hashlib
import multiprocessing
import os
import shutil
import signal
import threading
import tomllib
import uuid
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from mainspring.directory import cannot_write, held
from mainspring.document import Key, ScenarioError
from mainspring.run import run_alone
from mainspring.scenario import PolicyChoice, Scenario, build_scenario
from results import Summary, read_summary
from results.files import SUMMARY

POINTS: Final = "points"
WORK: Final = "work"
LOCK: Final = ".lock"

DEATHS: Final = 2
"""So many times may a point be alone in a process that dies; then it is to blame."""

BREAKS: Final = 3
"""So many times may the processes die before one point is done."""

HERE: Final = Path(__file__).parents[1]
CODE: Final = ("scheduler", "sim", "workloads", "profiles", "results", "mainspring/world.py")
"""What of our code an outcome comes from."""


class Point(NamedTuple):
    """One run to be made, or made."""

    scenario: Scenario
    choice: PolicyChoice
    address: str

    @property
    def seed(self) -> int:
        """The seed of its scenario."""
        return self.scenario.spec.seed


class Failed(msgspec.Struct, frozen=True):
    """A point that could not be run, and why, in one line."""

    error: str


Outcome = Summary | Failed
Report = Callable[[Point, Outcome], None]


def make_point(scenario: Scenario, choice: PolicyChoice, seed: int) -> Point:
    """The point of a scenario with another seed."""
    scenario = msgspec.structs.replace(
        scenario,
        spec=msgspec.structs.replace(scenario.spec, seed=seed),
        overrides=(*scenario.overrides, f"seed={seed}"),
        written=scenario.written | {("seed",)},
    )
    return Point(scenario, choice, _address(scenario, choice))


def _address(scenario: Scenario, choice: PolicyChoice) -> str:
    """A checksum over what the outcome comes from. A file is its contents, wherever it lies."""
    from mainspring import __version__

    table = tomllib.loads(scenario.to_toml([choice]))
    inputs = table.pop("inputs", {})
    text = msgspec.json.encode([__version__, code_digest(), choice.label, table], order="sorted")
    for name, digest in sorted(inputs.items(), reverse=True):  # of two names the longer first
        text = text.replace(msgspec.json.encode(name)[1:-1], digest.encode())
    digests = msgspec.json.encode(sorted(inputs.values()))
    return hashlib.sha256(text + digests).hexdigest()[:20]


@cache
def code_digest(packages: tuple[str, ...] = CODE) -> str:
    """A checksum over our code: who changes it gets new results, and not those of before."""
    digest = hashlib.sha256()
    for package in packages:
        path = HERE / package
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(f"{file.relative_to(HERE)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


# -- one point, in a worker ------------------------------------------------------------------------


class Job(NamedTuple):
    """A point as a worker gets it. Everything in it can be sent to another process."""

    home: str
    address: str
    code: str
    scenario: str
    label: str
    overrides: tuple[str, ...]
    written: frozenset[Key]


class NotOurs(ScenarioError):
    """A worker cannot work for this study at all, whichever point it gets."""


def run_job(job: Job) -> Outcome:
    """Run a point and put it into the store, unless it is there; says what it came to.

    Raises NotOurs where no point could be run here.
    """
    home = Path(job.home)
    if not (home / LOCK).is_file():
        raise NotOurs(
            f"{home} is not there for a worker; expected a directory that all workers can see"
        )
    if job.code != code_digest():
        raise NotOurs("a worker has another version of mainspring; install the same everywhere")
    place = home / POINTS / job.address
    if (place / SUMMARY).is_file():
        return read_summary(place)
    work = home / WORK / f"{job.address}-{uuid.uuid4().hex[:8]}"
    try:
        with warnings.catch_warnings():  # those of workloads are in the summary
            warnings.simplefilter("ignore")
            warnings.showwarning = lambda *_, **__: None
            scenario = build_scenario(tomllib.loads(job.scenario))
            scenario = msgspec.structs.replace(
                scenario, overrides=job.overrides, written=job.written
            )
            (choice,) = scenario.choose([job.label])
            summary = run_alone(scenario, choice, work)
        with suppress(OSError):  # another worker was faster, with the same outcome
            work.rename(place)
    except Exception as error:
        expected = isinstance(error, ScenarioError)
        text = str(error) if expected else f"{type(error).__name__}: {error}"
        return Failed(" ".join(text.split()))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return summary


def _job(home: Path, point: Point) -> Job:
    return Job(
        home=str(home.resolve()),
        address=point.address,
        code=code_digest(),
        scenario=point.scenario.to_toml([point.choice]),
        label=point.choice.label,
        overrides=point.scenario.overrides,
        written=point.scenario.written,
    )


# -- the store -------------------------------------------------------------------------------------


class Store:
    """The directory of a study, for one process at a time; see `opened`."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def directory(self, point: Point) -> Path:
        """Where the point's run is, or will be."""
        return self.home / POINTS / point.address

    def get(self, point: Point) -> Summary | None:
        """What the point came to, if it has been run."""
        directory = self.directory(point)
        return read_summary(directory) if (directory / SUMMARY).is_file() else None

    def run(self, points: Sequence[Point], workers: "Workers", report: Report) -> None:
        """Run all points that are not here, and report each when it is done, those too.

        On KeyboardInterrupt the points under way are lost, and no others.
        """
        missing: dict[str, list[Point]] = {}
        for point in points:
            if (summary := self.get(point)) is not None:
                report(point, summary)
            else:  # two points may well be the same run
                missing.setdefault(point.address, []).append(point)

        def report_all(job: Job, outcome: Outcome) -> None:
            for point in missing[job.address]:
                report(point, outcome)

        workers.run([_job(self.home, same[0]) for same in missing.values()], report_all)


@contextmanager
def opened(home: Path) -> Iterator[Store]:
    """The store in a directory, which is made if need be, ours alone while the block runs.

    Raises ScenarioError where the directory holds something else, or is in use.
    """
    with held(home, LOCK):
        try:
            (home / POINTS).mkdir(exist_ok=True)
            shutil.rmtree(home / WORK, ignore_errors=True)
            (home / WORK).mkdir()
        except OSError as error:
            raise cannot_write(home, error) from None
        try:
            yield Store(home)
        finally:
            shutil.rmtree(home / WORK, ignore_errors=True)


# -- workers ---------------------------------------------------------------------------------------


class Workers:
    """An executor, and how many jobs to have under way on it. Close it, or use it in a `with`."""

    def __init__(
        self,
        executor: Executor,
        under_way: int,
        renew: Callable[[], Executor] | None = None,
        stop: Callable[[Executor], None] | None = None,
    ) -> None:
        self._executor = executor
        self.under_way = under_way
        self._renew = renew
        self._stop = stop

    @classmethod
    def processes(cls, n: int | None = None) -> "Workers":
        """Processes of this machine, as many as it has processors by default."""
        n = n or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else n or 1
        context = multiprocessing.get_context("spawn")
        if "forkserver" in multiprocessing.get_all_start_methods():
            context = multiprocessing.get_context("forkserver")  # type: ignore[assignment]
            context.set_forkserver_preload([__name__, "scipy.special"])

        def start() -> Executor:
            return ProcessPoolExecutor(n, mp_context=context, initializer=_begin_worker)

        before = set(multiprocessing.active_children())

        def stop(executor: Executor) -> None:
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()

        return cls(start(), n, start, stop)

    @classmethod
    def dask(cls, address: str) -> "Workers":
        """The workers of a Dask cluster, which need the same mainspring and the same files."""
        try:
            from distributed import Client
        except ImportError:
            raise ScenarioError(
                "--dask needs Dask, which is not installed; pip install 'mainspring[dask]'"
            ) from None
        try:
            client = Client(address, timeout="5s", set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise ScenarioError(
                f"--dask {address}: {error}; expected the address of a dask scheduler, "
                "such as tcp://127.0.0.1:8786"
            ) from None
        threads = sum(client.nthreads().values())
        if not threads:
            client.close()
            raise ScenarioError(f"--dask {address}: it has no workers; start dask worker {address}")

        def stop(executor: Executor) -> None:
            client.close()

        # One more for each, so that none waits for us.
        return cls(client.get_executor(pure=False, retries=2), 2 * threads, None, stop)

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is not None and self._stop:
            self._stop(self._executor)  # nobody waits for what is under way
        self._executor.shutdown(wait=kind is None)
        if kind is None and self._stop:
            self._stop(self._executor)

    def run(self, jobs: Sequence[Job], report: Callable[[Job, Outcome], None]) -> None:
        """Run jobs, in about that order, and report each when it is done."""
        queue = deque(jobs)
        under_way: dict[Future[Outcome], Job] = {}
        try:
            self._run(queue, under_way, report)
        finally:
            for future in under_way:  # of a caller's own executor, say, that goes on
                future.cancel()

    def _run(
        self,
        queue: deque[Job],
        under_way: dict[Future[Outcome], Job],
        report: Callable[[Job, Outcome], None],
    ) -> None:
        suspects: deque[Job] = deque()  # were under way when a process died: now one by one
        deaths: Counter[str] = Counter()
        breaks: int | None = 0  # None once a point has been done
        while queue or suspects or under_way:
            lost: list[Job] = []
            while (suspects or queue) and len(under_way) < (1 if suspects else self.under_way):
                job = (suspects or queue).popleft()
                try:
                    under_way[self._executor.submit(run_job, job)] = job
                except BrokenExecutor:
                    lost.append(job)
                    break
            for future in wait(under_way, return_when=FIRST_COMPLETED).done if under_way else ():
                job = under_way.pop(future)
                try:
                    outcome = future.result()
                except BrokenExecutor:
                    lost.append(job)
                    continue
                except NotOurs:
                    raise
                except Exception as error:  # the executor's own, such as Dask's KilledWorker
                    outcome = Failed(f"{type(error).__name__}: {' '.join(str(error).split())}")
                breaks = None
                report(job, outcome)
            if not lost:
                continue
            lost += under_way.values()
            under_way.clear()
            if len(lost) == 1:
                deaths[lost[0].address] += 1
                if deaths[lost[0].address] == DEATHS:
                    report(lost.pop(), Failed(f"its process died, {DEATHS} times; out of memory?"))
            suspects.extend(lost)
            if breaks is not None:
                breaks += 1
            if self._renew is None or (breaks or 0) > BREAKS:
                raise ScenarioError(
                    "the processes die before they have done anything; a script that starts them "
                    'needs if __name__ == "__main__": around its calls'
                )
            self._executor.shutdown(wait=False)
            self._executor = self._renew()


def _begin_worker() -> None:
    """Leave Ctrl-C to the parent, and do not outlive it; keep the collector off the modules."""
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)
