"""Play a workload of DISB, the benchmark of DNN inference serving: several clients at once.

DISB (github SJTU-IPADS/disb) has four kinds of clients: periodic, poisson, trace (instants in ms)
and continuous. The continuous ones are closed-loop: they are kind = "closed", in a table of their
own, and `notes` names them. A workload says how long it is; the periodic and the poisson clients
stop then, and recorded instants are played to their end.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from workloads.clients import Clients, Instants, decode, from_ms, only
from workloads.common import Chunk, WorkloadError


class _Load(msgspec.Struct):
    type: str
    frequency: float = 0.0
    trace: list[float] = []


class _Client(msgspec.Struct):
    model_name: str
    batch_size: int = 1


class _Task(msgspec.Struct):
    id: str
    load: _Load
    client: _Client


class _File(msgspec.Struct):
    time: float
    tasks: list[_Task]


class Disb(Clients, frozen=True, kw_only=True, tag_field="kind", tag="disb"):
    """Open-loop arrivals of a DISB workload (.json or .json.gz): the fields of Clients."""

    def chunks(
        self,
        models: Sequence[int],
        model_names: Sequence[str],
        duration_ns: int,
        rng: np.random.Generator,
    ) -> Iterator[Chunk]:
        """Arrivals from start_s to the end of the run, which is not included.

        models: what `select` gave. model_names: of all models of the run.
        Raises WorkloadError if the file cannot be read or names other models.
        """
        file = self._file()
        clients = self.read(rng)
        chunk = self.together(clients, models, model_names)
        length_ns = round(file.time * 1e9)
        name = Path(self.path).name
        return self.play(lambda: only(chunk), name, duration_ns, rng, length_ns)

    def read(self, rng: np.random.Generator) -> list[Instants]:
        """The open-loop clients; the instants of the random ones are drawn."""
        file, path = self._file(), Path(self.path)
        clients = []
        for task in file.tasks:
            load = task.load
            if load.type == "trace":
                times_ns = from_ms(path, task.id, load.trace)
            elif load.type == "periodic":
                n = int(np.ceil(file.time * load.frequency))
                times_ns = np.rint(np.arange(n) * (1e9 / load.frequency)).astype(np.int64)
            elif load.type == "poisson":
                times_ns = _poisson(file.time, load.frequency, rng)
            else:
                continue
            clients.append(Instants(task.client.model_name, times_ns))
        if not clients:
            raise WorkloadError(
                f'{path.name} has only closed-loop clients; they are kind = "closed"'
            )
        return clients

    def notes(self) -> list[str]:
        """What a reader should know about the file, each in a line."""
        file = self._file()
        closed = [task.client.model_name for task in file.tasks if task.load.type == "continuous"]
        notes = [f"{len(file.tasks) - len(closed)} open-loop clients for {file.time:g} s"]
        if closed:
            notes.append(
                f"{len(closed)} closed-loop clients are not played here; each is a "
                f'kind = "closed" with concurrency = 1: {", ".join(closed)}'
            )
        return notes

    def _file(self) -> _File:
        path = Path(self.path)
        file = decode(path, _File)
        if not 0 < file.time <= 1e9:
            raise WorkloadError(f"{path.name}: time = {file.time}; expected seconds, above 0")
        for task in file.tasks:
            if task.load.type not in ("periodic", "poisson", "trace", "continuous"):
                raise WorkloadError(
                    f"{path.name}: task {task.id} has load type {task.load.type}; expected "
                    "periodic, poisson, trace or continuous"
                )
            if task.load.type in ("periodic", "poisson") and not 0 < task.load.frequency <= 1e9:
                raise WorkloadError(
                    f"{path.name}: task {task.id} has frequency {task.load.frequency}; expected "
                    "requests a second, above 0"
                )
        return file


def _poisson(length_s: float, rate_rps: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Given their number, Poisson arrivals lie independently and evenly in an interval."""
    times_s = np.sort(rng.random(rng.poisson(length_s * rate_rps))) * length_s
    return np.asarray((times_s * 1e9).astype(np.int64))
