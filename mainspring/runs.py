"""Finished runs, alone and side by side: what to look at once a scenario has run.

    runs = run(scenario)                  # or load_runs("runs/monday", "runs/tuesday")
    runs["clockwork"].frame()             # the fate of every request, as a DataFrame
    runs.plot()                           # a picture, which a notebook shows

Everything is read from the runs' directories when it is asked for.
Not here: how a run is made (mainspring.run), and what its files hold (results).
"""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import msgspec
import pyarrow as pa

from mainspring.directory import recorded_policies
from results import ResultsError, Summary, read_actions, read_outcomes, read_summary
from results.files import SUMMARY
from results.table import runs_text

if TYPE_CHECKING:
    from results.plots import Picture  # imported where it is needed: matplotlib takes a second


class Run(msgspec.Struct, frozen=True):
    """One policy's run. label: what it is called beside others."""

    label: str
    directory: Path
    summary: Summary

    def outcomes(self) -> pa.Table:
        """The fate of every request: one row each, see `results.read_outcomes`."""
        return read_outcomes(self.directory)

    def actions(self) -> pa.Table:
        """What became of every action of the policy: one row each."""
        return read_actions(self.directory)

    def frame(self) -> Any:
        """The outcomes as a pandas DataFrame, with `latency_ms` from arrival to end."""
        frame = to_pandas(self.outcomes())
        frame["latency_ms"] = (frame["end_ns"] - frame["arrival_ns"]) / 1e6
        return frame

    def trace(
        self, path: str | Path, from_s: float | None = None, until_s: float | None = None
    ) -> Path:
        """Write a trace for the Perfetto UI (https://ui.perfetto.dev); returns its path.

        from_s, until_s: only what is under way then, see `results.trace.write_trace`.
        """
        from results.trace import write_trace

        write_trace(self.directory, Path(path), from_s=from_s, until_s=until_s)
        return Path(path)

    def plot_latency(self) -> "Picture":
        """Which share of the requests was answered within which time."""
        return Runs([self]).plot_latency()

    def plot_gpus(self, start_s: float | None = None, length_s: float = 0.25) -> "Picture":
        """What each GPU executes and loads; by default from the end of the warm-up.

        Of more than a quarter of a second the eye cannot tell single batches apart.
        """
        from results import plots

        start_ns = min(self.summary.warmup_ns, self.summary.end_ns)
        if start_s is not None:
            start_ns = round(start_s * 1e9)
        return plots.gpu_timeline(
            self.directory, start_ns=start_ns, length_ns=round(length_s * 1e9)
        )


class Runs(Sequence[Run]):
    """Runs side by side, by position or by label. Printed, they are a table."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = tuple(runs)

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, which: int | str) -> Run: ...
    @overload
    def __getitem__(self, which: slice) -> "Runs": ...
    def __getitem__(self, which: int | str | slice) -> "Run | Runs":
        if isinstance(which, slice):
            return Runs(self._runs[which])
        if isinstance(which, int):
            return self._runs[which]
        for run in self._runs:
            if run.label == which:
                return run
        raise KeyError(f"no run {which}; have {', '.join(run.label for run in self._runs)}")

    def __repr__(self) -> str:
        return runs_text(self.summaries)

    @property
    def summaries(self) -> list[Summary]:
        """The runs' numbers, each under its run's label."""
        return [msgspec.structs.replace(run.summary, name=run.label) for run in self._runs]

    def frame(self) -> Any:
        """The numbers of all runs as a pandas DataFrame, one row a run."""
        rows = [flat(msgspec.to_builtins(summary)) for summary in self.summaries]
        columns = {key: None for row in rows for key in row}  # in order; not all have all of them
        table = pa.table({key: [row.get(key) for row in rows] for key in columns})
        return to_pandas(table).set_index("name")

    def plot(self) -> "Picture":
        """What became of the requests over time, and their latency."""
        from results import plots

        return plots.comparison(self._directories())

    def plot_latency(self) -> "Picture":
        """Which share of the requests was answered within which time, a curve a run."""
        from results import plots

        return plots.latency_cdf(self._directories())

    def report(self, path: str | Path) -> Path:
        """Write a page on them, one HTML file that needs no network; returns its path.

        Raises ResultsError or ScenarioError where that cannot be done, and then writes nothing.
        """
        from mainspring.report.page import write_page
        from mainspring.report.runs import runs_page

        return write_page(runs_page(self), path)

    def to_json(self) -> bytes:
        """The summaries, each with its directory, as a JSON list."""
        rows = [
            {"directory": str(run.directory)} | msgspec.to_builtins(summary)
            for run, summary in zip(self._runs, self.summaries, strict=True)
        ]
        return msgspec.json.format(msgspec.json.encode(rows), indent=2)

    def _directories(self) -> dict[str, Path]:
        return {run.label: run.directory for run in self._runs}


def load_runs(*directories: str | Path) -> Runs:
    """Finished runs from their directories; one of several policies stands for all of its runs.

    Runs of the same name are told apart by the ends of their paths. Raises ResultsError where a
    directory is not a finished run, or is given twice.
    """
    found = [run for directory in directories for run in _runs_in(Path(directory))]
    paths = [path.resolve() for path in found]
    if twice := next((path for path in found if paths.count(path.resolve()) > 1), None):
        raise ResultsError(f"{twice} is given twice; expected each run once")
    summaries = [read_summary(path) for path in found]
    labels = _labels([summary.name for summary in summaries], paths)
    return Runs([Run(*of) for of in zip(labels, found, summaries, strict=True)])


def _runs_in(directory: Path) -> Iterator[Path]:
    """The directory itself, or the finished runs below it if it is one of several policies."""
    below = [directory / label for label in recorded_policies(directory)]
    finished = [path for path in below if (path / SUMMARY).is_file()]
    if (directory / SUMMARY).is_file() or not finished:
        yield directory  # if it holds nothing, reading it will say so
        return
    for path in below:
        if path not in finished:
            warnings.warn(f"{path} is left out: not a finished run", stacklevel=2)
    yield from finished


def _labels(names: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """The names; those that are not unique replaced by the shortest ends of paths that are."""
    labels = list(names)
    for name in {name for name in names if names.count(name) > 1}:
        where = [i for i, other in enumerate(names) if other == name]
        longest = max(len(paths[i].parts) for i in where)
        for n in range(1, longest + 1):
            ends = ["/".join(paths[i].parts[-n:]) for i in where]
            if len(set(ends)) == len(ends):
                break
        for i, end in zip(where, ends, strict=True):
            labels[i] = end
    return labels


def to_pandas(table: pa.Table) -> Any:
    try:
        return table.to_pandas()
    except ImportError:
        raise ImportError(
            "a DataFrame needs pandas, which is not installed; "
            "pip install 'mainspring[notebooks]', or use outcomes(), which gives a pyarrow Table"
        ) from None


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A table in one row: what lies in a table of its own is called `table.key`."""
    row: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            row |= flat(value, f"{prefix}{key}.")
        else:
            row[f"{prefix}{key}"] = value
    return row
