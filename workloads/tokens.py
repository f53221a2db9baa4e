"""Replay a trace of requests to a language model: when each came, and how many tokens it had.

Two public traces are known: Azure's of 2023 (Patel et al., Splitwise, ISCA 2024; columns
TIMESTAMP, ContextTokens, GeneratedTokens) and Mooncake's (Qin et al., FAST 2025; JSON lines with
timestamp in ms, input_length, output_length). A profile has no price for tokens yet, so their
numbers only decide which requests are played.
Any other trace of instants is kind = "trace".
"""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from workloads.common import Chunk, WorkloadError, WorkloadWarning, require_choice
from workloads.recorded import Recorded
from workloads.tables import Kind, blocks, cells, place_of, require_columns
from workloads.times import StampReader, is_time, numbers_ns

Counts = npt.NDArray[np.int64]

TOO_LONG: Final = ("error", "drop", "clip")


class Fitted(NamedTuple):
    """Requests after a limit on their tokens: which are kept, and what is left of them."""

    kept: npt.NDArray[np.bool_]
    inputs: Counts
    outputs: Counts
    too_long: npt.NDArray[np.bool_]


def fit(inputs: Counts, outputs: Counts, max_tokens: int, too_long: str) -> Fitted:
    """Hold requests to max_tokens of input and output together.

    too_long: "drop" leaves a longer one out; "clip" shortens its input to what its output leaves,
    and, if that is not enough, its output too.
    """
    over = inputs + outputs > max_tokens
    if too_long == "drop":
        return Fitted(~over, inputs, outputs, over)
    outputs = np.minimum(outputs, max_tokens)
    return Fitted(
        np.ones(len(inputs), dtype=bool), np.minimum(inputs, max_tokens - outputs), outputs, over
    )


class _Tokens(Recorded, frozen=True, kw_only=True):
    """The fields of traces with tokens.

    max_tokens: the most that a request may have, input and output together. too_long: what
    becomes of a longer one: "error", "drop", or "clip" (it is played, with fewer tokens).
    no_output: what becomes of a request with no output token, which mostly failed when it was
    recorded: "keep" or "drop".
    """

    max_tokens: int | None = None
    too_long: str = "error"
    no_output: str = "keep"

    time_column: ClassVar[str]
    unit: ClassVar[str]
    input_column: ClassVar[str]
    output_column: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("too_long", self.too_long, TOO_LONG)
        require_choice("no_output", self.no_output, ("keep", "drop"))
        if self.max_tokens is not None and self.max_tokens < 1:
            raise WorkloadError(f"max_tokens = {self.max_tokens}; expected tokens, at least 1")

    def chunks(
        self,
        models: Sequence[int],
        model_names: Sequence[str],
        duration_ns: int,
        rng: np.random.Generator,
    ) -> Iterator[Chunk]:
        """The trace's requests from start_s to the end of the run, which is not included.

        The first request of the file comes at start_s.
        models: what `select` gave. model_names: of all models of the run (not used here).
        Raises WorkloadError if the file cannot be read, a cell is wrong, or a request is too long.
        """
        path = Path(self.path)
        require_columns(path, (self.time_column, self.input_column, self.output_column))
        choose = self.chooser(models, rng)

        def read() -> Iterator[Chunk]:
            total = dropped = clipped = silent = 0
            origin_ns = None
            for first_row, times_ns, inputs, outputs in self._blocks():
                if origin_ns is None:
                    origin_ns = int(times_ns[0])
                total += len(times_ns)
                kept = np.ones(len(times_ns), dtype=bool)
                if self.max_tokens is not None:
                    fitted = fit(inputs, outputs, self.max_tokens, self.too_long)
                    if self.too_long == "error" and fitted.too_long.any():
                        row = int(np.flatnonzero(fitted.too_long)[0])
                        raise WorkloadError(
                            f"{path.name}, {place_of(path, first_row + row)}: "
                            f"{inputs[row]} + {outputs[row]} tokens are more than max_tokens = "
                            f'{self.max_tokens}; set too_long = "drop" or "clip"'
                        )
                    kept = fitted.kept
                    dropped += int((~kept).sum())
                    clipped += int((fitted.too_long & kept).sum())
                silent += int((outputs == 0).sum())
                if self.no_output == "drop":
                    kept = kept & (outputs > 0)
                chosen = choose(len(times_ns))
                yield Chunk(times_ns[kept] - origin_ns, chosen[kept])
            self._report(path.name, total, dropped, clipped, silent)

        return self.play(read, path.name, duration_ns, rng)

    def totals(self) -> tuple[int, int, int]:
        """Requests, input tokens and output tokens of the whole file."""
        totals = [(len(times), int(i.sum()), int(o.sum())) for _, times, i, o in self._blocks()]
        n, inputs, outputs = (sum(column) for column in zip(*totals, strict=True))
        return n, inputs, outputs

    def _report(self, name: str, total: int, dropped: int, clipped: int, silent: int) -> None:
        for n, what in (
            (dropped, f"longer than max_tokens = {self.max_tokens}, dropped"),
            (clipped, f"longer than max_tokens = {self.max_tokens}, clipped"),
            (
                silent,
                f"without an output token, {'kept' if self.no_output == 'keep' else 'dropped'}",
            ),
        ):
            if n:
                warnings.warn(
                    f"{name}: {n} of {total} requests {what}", WorkloadWarning, stacklevel=2
                )

    def _blocks(self) -> Iterator[tuple[int, Counts, Counts, Counts]]:
        """First row, times and tokens, as they are in the file."""
        path = Path(self.path)
        stamps = StampReader(path.name)
        kinds: dict[str, Kind] = {
            self.time_column: "text" if self.unit == "stamp" else "number",
            self.input_column: "number",
            self.output_column: "number",
        }
        row, last_ns = 0, 0
        for times, inputs, outputs in blocks(path, kinds, self._explain):
            times_ns = stamps.read(times) if self.unit == "stamp" else numbers_ns(times, self.unit)
            tokens = [numbers_ns(column, "ns") for column in (inputs, outputs)]
            if times_ns is None or tokens[0] is None or tokens[1] is None:
                self._explain()
                raise AssertionError(f"{path.name}: a row is bad only when read in blocks")
            falls = np.flatnonzero(np.diff(times_ns, prepend=last_ns) < 0)
            if falls.size:
                raise WorkloadError(
                    f"{path.name}, {place_of(path, row + int(falls[0]))}: its {self.time_column} "
                    'is before that of the line above; expected them in order (kind = "trace" '
                    "can sort)"
                )
            yield row, times_ns, tokens[0], tokens[1]
            row, last_ns = row + len(times_ns), int(times_ns[-1])

    def _explain(self) -> None:
        path = Path(self.path)
        for place, row in cells(path):
            if not is_time(row.get(self.time_column, ""), self.unit):
                cell = row.get(self.time_column) or "an empty cell"
                what = "a date stamp" if self.unit == "stamp" else f"a time in {self.unit}"
                raise WorkloadError(f"{path.name}, {place}: {cell} is not {what}")
            for column in (self.input_column, self.output_column):
                if not row.get(column, "").isdecimal():
                    raise WorkloadError(
                        f"{path.name}, {place}: {row.get(column) or 'an empty cell'} is not a "
                        f"number of tokens ({column}); expected a whole number"
                    )


class AzureLlm(_Tokens, frozen=True, kw_only=True, tag_field="kind", tag="azure_llm"):
    """Azure's trace of LLM inference, 2023 (.csv or .csv.gz): the fields of _Tokens."""

    time_column: ClassVar[str] = "TIMESTAMP"
    unit: ClassVar[str] = "stamp"
    input_column: ClassVar[str] = "ContextTokens"
    output_column: ClassVar[str] = "GeneratedTokens"


class Mooncake(_Tokens, frozen=True, kw_only=True, tag_field="kind", tag="mooncake"):
    """Mooncake's traces, FAST 2025 (.jsonl or .jsonl.gz): the fields of _Tokens."""

    time_column: ClassVar[str] = "timestamp"
    unit: ClassVar[str] = "ms"
    input_column: ClassVar[str] = "input_length"
    output_column: ClassVar[str] = "output_length"
