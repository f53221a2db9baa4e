"""Run a study: every setting with every seed, in parallel, each only once.

    DIR/table.parquet     one row a point: swept keys, seed, numbers, error, directory of its run
    DIR/points/ADDRESS/   the run of each point, as `mainspring run` leaves it, without pictures
    DIR/study.toml        the study

The same call again goes on where the last one stopped. Every setting gets the same seeds.
Not here: the study's file (mainspring.study), how points run (mainspring.points), and what they
show (mainspring.compare).
"""

import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from mainspring.document import ScenarioError, suggest
from mainspring.points import Failed, Outcome, Point, Store, Workers, make_point, opened
from mainspring.runs import flat, to_pandas
from mainspring.study import POLICY, SEED, Setting, Study, build_study, load_study
from results import Summary
from results.files import naming, part_of, publish, write_whole
from results.intervals import needed, two_sided
from workloads import WorkloadWarning

TABLE: Final = "table.parquet"
STUDY: Final = "study.toml"
ABOUT: Final = b"mainspring"
"""Where the table's own notes are in its schema."""

PLACE: Final = "directory"
"""The column that says where a point's run is; it says nothing of the outcome."""

Progress = Callable[[str, int, int], None]
"""Called with what is under way, the points that are done, and those that are known of."""

LISTED: Final = 5_000
"""Listing so many points takes seconds, and more are worth a word."""

SHORT: Final = {
    "goodput": "goodput_rps",
    "offered": "offered_rps",
    "completed": "completed_rps",
    "attainment": "share_in_time",
    "utilisation": "mean_gpu_utilisation",
    "mean": "latency.mean_ms",
    **{f"p{q}": f"latency.quantiles_ms.p{q}" for q in ("50", "90", "99", "99.9", "99.99")},
}
"""Short names of metrics; every column of the table has its own name too."""


class Sweep:
    """A study's points and what they came to.

    table: one row a point. keys: the columns that were swept, `policy` among them. interrupted:
    whether Ctrl-C ended it; the table then holds what was done until then. warnings: what was odd
    about the workloads, a line each.
    """

    def __init__(
        self,
        directory: Path,
        table: pa.Table,
        keys: Sequence[str],
        interrupted: bool = False,
        warnings: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.table = table
        self.keys = tuple(keys)
        self.interrupted = interrupted
        self.warnings = tuple(warnings)

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The rows of the points that could not be run; `error` says why."""
        return [row for row in self.rows() if row["error"] is not None]

    def rows(self) -> list[dict[str, Any]]:
        """The table, a dict a point."""
        found: list[dict[str, Any]] = self.table.to_pylist()
        return found

    @property
    def digest(self) -> str:
        """A checksum over the columns, but for where the runs are."""
        return table_digest(self.table)

    def frame(self) -> Any:
        """The table as a pandas DataFrame."""
        return to_pandas(self.table)

    def runs(self) -> list[Path]:
        """The directories of the runs, for `mainspring.load_runs`."""
        places = dict.fromkeys(self.table[PLACE].drop_null().to_pylist())
        return [self.directory / place for place in places]

    def metric(self, name: str) -> str:
        """The column that a metric's name means. Raises ScenarioError if there is none."""
        column = SHORT.get(name, name)
        numbers = [
            field.name
            for field in self.table.schema
            if (pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
            and field.name not in (*self.keys, SEED)
        ]
        if column not in numbers:
            raise ScenarioError(
                f"--metric {name}: no such number in {self.directory / TABLE}; "
                f"{suggest(name, [*SHORT, *numbers])}"
            )
        return column


def sweep(
    study: str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    policies: Sequence[str] = (),
    executor: Executor | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Run a study, or what is left of it, and write its table.

    study: a file, or a table with its keys (mainspring/study.py). out: `runs/sweep-NAME` by
    default. overrides: `key=value` for all points, swept or not. policies: are swept instead of
    the study's. Points run in `jobs` processes of this machine, as many as it has processors by
    default; or on the Dask cluster whose scheduler is at the address `dask`; or on an `executor`.
    A script needs `if __name__ == "__main__":` around this call, as for any use of processes.

    A point that fails is a row with an error, and the same call tries it again. On Ctrl-C the
    points under way are lost, and the table holds the others. Raises ScenarioError, before
    anything runs, where the study cannot be used.
    """
    if isinstance(study, Mapping):
        loaded = build_study(study, overrides, policies)
    else:
        loaded = load_study(study, overrides, policies)
    home = Path("runs") / f"sweep-{loaded.name}" if out is None else Path(out)
    with opened(home) as store:
        write_whole(home / STUDY, loaded.text.encode())
        outcomes: Outcomes = {}
        interrupted = False
        try:
            with workers_of(executor, jobs, dask) as workers:
                _run(loaded, store, workers, outcomes, progress)
        except KeyboardInterrupt:
            interrupted = True
        warned = warnings_of([outcome for _, outcome in outcomes.values()])
        table = _table(loaded, outcomes, interrupted, warned)
        write_table(table, home / TABLE)
    for text in warned:
        warnings.warn(text, WorkloadWarning, stacklevel=2)
    return Sweep(home, table, loaded.keys, interrupted, warned)


def load_sweep(directory: str | Path) -> Sweep:
    """A sweep that has been run, from its directory. Raises ScenarioError if it is not one."""
    path = Path(directory) / TABLE
    if not path.is_file():
        raise ScenarioError(f"{directory}: no {TABLE}; expected the directory of a sweep")
    try:
        table = pq.read_table(path)
        about = json.loads(table.schema.metadata[ABOUT])
    except (pa.ArrowInvalid, OSError, KeyError, TypeError, ValueError):
        raise ScenarioError(f"{path}: not the table of a sweep; run the sweep again") from None
    interrupted, warned = about.get("interrupted", False), about.get("warnings", ())
    return Sweep(Path(directory), table, about["keys"], interrupted, warned)


def table_digest(table: pa.Table) -> str:
    """A checksum over names, kinds and values of a table's columns, but for `directory`."""
    digest = hashlib.sha256()
    for name in sorted(set(table.column_names) - {PLACE}):
        column = table[name]
        values = msgspec.json.encode(column.to_pylist())
        digest.update(f"{name}\0{column.type}\0".encode() + values)
    return digest.hexdigest()


Outcomes = dict[tuple[int, int], tuple[Point, Outcome]]
"""What has been done, by index of the setting and seed."""


@contextmanager
def workers_of(executor: Executor | None, jobs: int | None, dask: str | None) -> Iterator[Workers]:
    """The workers that a caller asks for. An executor of the caller's own is left open."""
    if sum(each is not None for each in (executor, jobs, dask)) > 1:
        raise ScenarioError("jobs, dask and executor exclude each other; expected one of them")
    if executor is not None:
        yield Workers(executor, under_way=64)
        return
    with Workers.dask(dask) if dask is not None else Workers.processes(jobs) as workers:
        yield workers


def _run(
    study: Study, store: Store, workers: Workers, outcomes: Outcomes, progress: Progress | None
) -> None:
    """Round by round, until no setting needs another seed."""
    wanted = {
        i: list(study.seeds or study.replications.first_round) for i in range(len(study.settings))
    }
    while True:
        seeds_of = {i: set(seeds) for i, seeds in wanted.items()}
        listed: list[tuple[int, int]] = []
        # Seed by seed, so that a sweep that is cut short has something on every setting.
        for seed in dict.fromkeys(seed for seeds in wanted.values() for seed in seeds):
            for i in range(len(study.settings)):
                if seed in seeds_of[i] and (i, seed) not in outcomes:
                    listed.append((i, seed))
        todo: list[tuple[int, Point]] = []
        for i, seed in listed:
            if progress is not None and len(listed) > LISTED and len(todo) % 100 == 0:
                progress("listing the points", len(todo), len(listed))
            setting = study.settings[i]
            todo.append((i, make_point(setting.scenario, setting.choice, seed)))
        if not todo:
            return
        total = len(outcomes) + len(todo)
        where: dict[int, int] = {id(point): i for i, point in todo}

        def report(point: Point, outcome: Outcome, where: Any = where, total: int = total) -> None:
            outcomes[where[id(point)], point.seed] = point, outcome
            if progress is not None:
                failed = sum(isinstance(outcome, Failed) for _, outcome in outcomes.values())
                text = f"points, {failed} failed" if failed else "points"
                progress(text, len(outcomes), total)

        if progress is not None:
            progress("points", len(outcomes), total)
        store.run([point for _, point in todo], workers, report)
        if study.replications.half_width is not None and study.seeds is None:
            _ask_for_more(study, outcomes, wanted)


def _ask_for_more(study: Study, outcomes: Outcomes, wanted: dict[int, list[int]]) -> None:
    """Add seeds where an interval is too wide; to all settings that are compared with it, too."""
    replications = study.replications
    assert replications.half_width is not None
    column = SHORT.get(replications.metric, replications.metric)
    groups: dict[str, list[int]] = {}
    for i, setting in enumerate(study.settings):
        groups.setdefault(setting.compared, []).append(i)
    for group in groups.values():
        have = len(wanted[group[0]])
        want = have
        for i in group:
            summaries = [outcomes[i, seed][1] for seed in wanted[i]]
            values = [
                numbers_of(summary).get(column) for summary in summaries if _is_whole(summary)
            ]
            numbers = [float(value) for value in values if value is not None]
            if not numbers and any(map(_is_whole, summaries)):
                raise ScenarioError(
                    f"replications.metric = {json.dumps(replications.metric)}: no such number in "
                    f"these runs; {suggest(replications.metric, list(SHORT))}"
                )
            if len(numbers) < 2:
                continue  # failing points do not get better by more of them
            reached = two_sided(numbers, replications.confidence).half_width
            assert reached is not None
            if reached > replications.half_width:
                more = needed(numbers, replications.half_width, replications.confidence)
                want = max(want, min(2 * have, max(have + 1, more)))
        first = replications.first_seed
        for i in group:
            wanted[i] = list(range(first, first + min(max(want, have), replications.at_most)))


def _is_whole(outcome: Outcome) -> bool:
    return isinstance(outcome, Summary)


def numbers_of(outcome: Outcome) -> dict[str, Any]:
    """A summary in one row: every plain number in it, by `table.key`; nothing if it failed."""
    if isinstance(outcome, Failed):
        return {}
    row = flat(msgspec.to_builtins(outcome))
    return {
        key: value
        for key, value in row.items()
        if (value is None or (isinstance(value, int | float) and not isinstance(value, bool)))
        and not key.startswith("executions_by_batch.")
        and key != "format"
    }


def warnings_of(outcomes: Sequence[Outcome]) -> list[str]:
    """What workloads warned of in these runs, and in how many of them."""
    runs = [outcome for outcome in outcomes if isinstance(outcome, Summary)]
    counts = Counter(text for run in runs for text in run.warnings)
    return [f"{text} ({n:,} of {len(runs):,} runs)" for text, n in counts.items()]


def _table(study: Study, outcomes: Outcomes, interrupted: bool, warned: Sequence[str]) -> pa.Table:
    rows = []
    for i, setting in enumerate(study.settings):
        for (which, seed), (point, outcome) in sorted(outcomes.items(), key=lambda item: item[0]):
            if which == i:
                rows.append(_row(setting, seed, point, outcome))
    about: dict[str, Any] = {"study": study.name}
    if interrupted:
        about["interrupted"] = True
    if warned:
        about["warnings"] = warned
    return as_table(rows, study.keys, about)


def _row(setting: Setting, seed: int, point: Point, outcome: Outcome) -> dict[str, Any]:
    failed = isinstance(outcome, Failed)
    return {
        **{key: _plain(value) for key, value in setting.values.items()},
        SEED: seed,
        "error": outcome.error if isinstance(outcome, Failed) else None,
        PLACE: None if failed else f"points/{point.address}",
        "digest": outcome.digest if isinstance(outcome, Summary) else None,
        **numbers_of(outcome),
    }


def _plain(value: Any) -> Any:
    """A value for a cell: a list or table is its JSON."""
    return json.dumps(value) if isinstance(value, dict | list) else value


def as_table(rows: Sequence[Mapping[str, Any]], keys: Sequence[str], about: Any) -> pa.Table:
    """Rows as a table: the swept keys first. A column of nothing but None is one of numbers."""
    first = [*keys, SEED, "error", PLACE, "digest"]
    names = dict.fromkeys([*first, *(name for row in rows for name in row)])
    texts = {POLICY, "error", PLACE, "digest"}
    arrays = {}
    for name in names:
        values = [row.get(name) for row in rows]
        kinds = {type(value) for value in values} - {type(None)}
        if name in texts:
            arrays[name] = pa.array(values, pa.string())
        elif not kinds:
            arrays[name] = pa.array(values, pa.float64())
        elif kinds <= {int, float} and float in kinds:
            numbers = [None if value is None else float(value) for value in values]
            arrays[name] = pa.array(numbers, pa.float64())
        elif len(kinds) > 1:  # a key that was swept over values of several kinds
            arrays[name] = pa.array([None if v is None else json.dumps(v) for v in values])
        else:
            arrays[name] = pa.array(values)
    notes = {ABOUT: json.dumps({"keys": list(keys), **about})}
    return pa.table(arrays).replace_schema_metadata(notes)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table as Parquet, whole or not at all."""
    with naming(path):
        pq.write_table(table, part_of(path))
    publish(path)
