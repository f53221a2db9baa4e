"""What REEF's and DISB's files have in common: JSON, and clients with instants of their own."""

import gzip
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from workloads.common import Chunk, WorkloadError, require_choice
from workloads.csvfile import reading
from workloads.mapping import MAPPINGS, Names, mapped
from workloads.recorded import Recorded

T = TypeVar("T")


class Instants(NamedTuple):
    """One open-loop client: the model it asks for, and when, in nanoseconds."""

    model: str
    times_ns: npt.NDArray[np.int64]


class Clients(Recorded, frozen=True, kw_only=True):
    """The fields of such files. mapping: "name", each client asks for the model of that name,
    after rename; or "by_volume" or "round_robin" over the names (workloads/mapping.py)."""

    mapping: str = "name"
    rename: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("mapping", self.mapping, ("name", *MAPPINGS))
        self.refuse_weights("mapping")

    def together(
        self, clients: Sequence[Instants], models: Sequence[int], model_names: Sequence[str]
    ) -> Chunk:
        """The requests of all clients, in order."""
        model_of = self._model_of(clients, models, model_names)
        times_ns = np.concatenate([client.times_ns for client in clients])
        chosen = np.concatenate(
            [
                np.full(len(client.times_ns), model_of[client.model], dtype=np.int32)
                for client in clients
            ]
        )
        order = np.argsort(times_ns, kind="stable")
        return Chunk(times_ns[order], chosen[order])

    def _model_of(
        self, clients: Sequence[Instants], models: Sequence[int], model_names: Sequence[str]
    ) -> Mapping[str, int]:
        volume: dict[str, int] = {}
        for client in clients:
            volume[client.model] = volume.get(client.model, 0) + len(client.times_ns)
        if self.mapping != "name":
            chosen = mapped(self.mapping, np.array(list(volume.values())), models)
            return dict(zip(volume, chosen.tolist(), strict=True))
        names = Names(models, model_names, self.rename, places=False)
        model_of = {}
        for name in volume:
            model = names.get(name)
            if model is None:
                raise names.unknown(Path(self.path).name, name)
            model_of[name] = model
        return model_of


def decode(path: Path, type_: type[T]) -> T:
    """A JSON file, perhaps gzipped, as a Struct. Raises WorkloadError if it is not one."""
    with reading(path, what="a JSON file"):
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read()
        try:
            return msgspec.json.decode(content, type=type_)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise WorkloadError(f"{path.name}: {error}; is the file whole?") from None


def from_ms(path: Path, client: str, trace_ms: Sequence[float]) -> npt.NDArray[np.int64]:
    """Instants in milliseconds as nanoseconds, in order; refuses what is no instant."""
    for before, ms in zip([0.0, *trace_ms], trace_ms, strict=False):
        if not before <= ms < 1e12:
            raise WorkloadError(
                f"{path.name}: client {client} has {ms} ms after {before} ms; expected rising "
                "instants, at least 0"
            )
    return np.rint(np.array(trace_ms, dtype=np.float64) * 1e6).astype(np.int64)


def only(chunk: Chunk) -> Iterator[Chunk]:
    """A recording of one chunk, if it has a request."""
    if len(chunk.times_ns):
        yield chunk
