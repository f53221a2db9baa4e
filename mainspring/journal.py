"""Journals on disk, and their replay.

A journal is a file of MessagePack records, each behind its length (4 bytes, big-endian). Like
other results it is named `.part` until it is whole; a torn one replays as far as it goes.
Not here: what is in the records (`scheduler/journal.py`).
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from mainspring.document import ScenarioError
from mainspring.policies import find_policy
from mainspring.scenario import PolicyChoice, Scenario
from mainspring.world import Purpose, generator
from scheduler.journal import FORMAT, Emitted, Footer, Header, Record, Replay, Step
from scheduler.ledger import Controller

NAME = "journal.msgpack"
_LENGTH = struct.Struct(">I")


class JournalWriter:
    """Writes a journal into a directory: first the header, then what the controller records.

    Leave the `with` block by an error and the file stays `.part`. Raises ScenarioError where it
    cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME
        self._part = directory / f"{NAME}.part"
        self._encoder = msgspec.msgpack.Encoder()
        self._buffer = bytearray()
        try:
            self._file = self._part.open("wb")
        except OSError as error:
            raise self._failed(error) from None

    def write(self, record: Record) -> None:
        """Append a record."""
        self._encoder.encode_into(record, self._buffer, _LENGTH.size)
        _LENGTH.pack_into(self._buffer, 0, len(self._buffer) - _LENGTH.size)
        try:
            self._file.write(self._buffer)
        except OSError as error:
            raise self._failed(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._file.close()
            if kind is None:
                self._part.replace(self.path)
        except OSError as failure:
            raise self._failed(failure) from error

    def _failed(self, error: OSError) -> ScenarioError:
        return ScenarioError(
            f"{self._part}: cannot be written ({error.strerror}); make room, or choose another "
            "--out"
        )


def header_of(scenario: Scenario, choice: PolicyChoice, controller: Controller) -> Header:
    """The first record of a run's journal."""
    from mainspring import __version__

    return Header(
        format=FORMAT,
        mainspring=__version__,
        policy=choice.name,
        params=msgspec.to_builtins(choice.params),
        seed=scenario.spec.seed,
        gpus=controller.gpus,
        models=controller.models,
        inputs=scenario.spec.inputs,
    )


def read(path: Path) -> Iterator[Record]:
    """The records of a journal, as many as are whole. Raises ScenarioError for another file."""
    file = path / NAME if path.is_dir() else path
    decoder = msgspec.msgpack.Decoder(Record)
    try:
        stream = file.open("rb")
    except OSError as error:
        raise ScenarioError(
            f"{file}: {error.strerror}; expected a journal, as `mainspring run --journal` writes it"
        ) from None
    with stream:
        while len(prefix := stream.read(_LENGTH.size)) == _LENGTH.size:
            (length,) = _LENGTH.unpack(prefix)
            record = stream.read(length)
            if len(record) < length:
                return
            try:
                yield decoder.decode(record)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                raise ScenarioError(f"{file}: not a journal of this version ({error})") from None


class Replayed(msgspec.Struct, frozen=True):
    """What came of a replay.

    same: whether everything came out as recorded. whole: whether the journal has its end.
    difference: the first step that came out otherwise, as (step, now_ns, recorded, obtained).
    """

    policy: str
    steps: int
    actions: int
    whole: bool
    difference: tuple[int, int, Emitted, Emitted] | None

    @property
    def same(self) -> bool:
        return self.difference is None


def replay(path: str | Path) -> Replayed:
    """Feed a journal to a fresh policy, up to the first difference. Raises ScenarioError.

    path: the journal, or the directory of a run with one.
    """
    records = read(Path(path))
    header = next(records, None)
    if not isinstance(header, Header) or header.format != FORMAT:
        raise ScenarioError(f"{path}: not a journal of this version; record it again")
    policy_class = find_policy(header.policy)
    params = msgspec.convert(header.params, policy_class.Params)
    again = Replay(header, policy_class(params), generator(header.seed, Purpose.POLICY))
    whole = False
    difference = None
    for record in records:
        if isinstance(record, Footer):
            whole = record.steps == again.steps and record.refusals == again.refusals()
            break
        assert isinstance(record, Step), "a header in the middle of a journal"
        differs = again.step(record)
        if differs is not None:
            difference = (again.steps, record.now_ns, *differs)
            break
    return Replayed(header.policy, again.steps, again.actions, whole, difference)
