"""Replay a workload of the REEF artifact: five real-time clients with recorded instants.

REEF (Han et al., OSDI 2022), evaluation/fig10/E.json. Its best-effort clients have a nominal rate
and no instants; they are not played. They are, in REEF, always behind the real-time ones, for
which there is no word in a scenario yet.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from workloads.clients import Clients, Instants, decode, from_ms, only
from workloads.common import Chunk, WorkloadError


class _Client(msgspec.Struct):
    name: str
    frequency: float
    trace: list[float] = []


class _File(msgspec.Struct):
    rt: list[_Client]
    be: list[_Client] = []


class Reef(Clients, frozen=True, kw_only=True, tag_field="kind", tag="reef"):
    """Open-loop arrivals of REEF's real-time clients (.json or .json.gz): the fields of Clients."""

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
        chunk = self.together(self.read(), models, model_names)
        return self.play(lambda: only(chunk), Path(self.path).name, duration_ns, rng)

    def read(self) -> list[Instants]:
        """The real-time clients."""
        path = Path(self.path)
        clients = [
            Instants(client.name, from_ms(path, client.name, client.trace))
            for client in decode(path, _File).rt
        ]
        if not any(len(client.times_ns) for client in clients):
            raise WorkloadError(f"{path.name} has no instants; expected rt clients with a trace")
        return clients

    def notes(self) -> list[str]:
        """What a reader should know about the file, each in a line."""
        file = decode(Path(self.path), _File)
        return [
            f"{len(file.rt)} real-time clients",
            f"{len(file.be)} best-effort clients have no instants and are not played",
        ]
