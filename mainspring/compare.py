"""What a sweep shows: each policy's numbers, and the differences, with how sure they are.

Policies got the same seeds, and so the same arrivals; therefore the difference is taken seed by
seed, and its interval is Student's t over the seeds. What the arrivals do to all alike drops out,
so it is narrower than the two means suggest. Every interval is for itself: of twenty at 95 %, one
misses on average.
"""

import csv
import io
import json
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from mainspring.document import ScenarioError, suggest
from mainspring.runs import to_pandas
from mainspring.study import POLICY, SEED
from mainspring.sweep import Progress, Sweep, load_sweep, sweep, write_table
from results.files import write_whole
from results.intervals import Mean, two_sided

if TYPE_CHECKING:
    from results.bands import Curve
    from results.plots import Picture  # imported where it is needed: matplotlib takes a second

SEEDS: Final = 10
"""Replications of a comparison that is not told how many."""

METHOD: Final = "paired by seed, Student's t over {n} seeds, {confidence:.0%} each"


UNITS: Final = {
    "goodput_rps": ("requests in time", "req/s"),
    "offered_rps": ("requests", "req/s"),
    "completed_rps": ("answers", "req/s"),
    "share_in_time": ("requests in time", "share"),
    "mean_gpu_utilisation": ("time that a GPU executes", "share"),
    **{f"latency.{name}": ("latency", "ms") for name in ("mean_ms", "max_ms")},
    **{
        f"latency.quantiles_ms.p{q}": ("latency", "ms")
        for q in ("50", "90", "99", "99.9", "99.99", "99.999", "99.9999")
    },
}
"""What a column counts, and in which unit."""

SHARES: Final = ("share_in_time", "mean_gpu_utilisation")
"""What lies between 0 and 1, and so does its mean: an interval that reaches further is cut."""


class Comparison:
    """The values of one key side by side, over those of another.

    table: one row for each value of `between` and of `over`: n, the mean of `metric` and its
    interval (low, high), the mean difference to the baseline (the first value of `between`) and
    its interval (difference, difference_low, difference_high), pairs behind the difference, and
    missing: seeds that gave no number.
    """

    def __init__(
        self,
        table: pa.Table,
        *,
        metric: str,
        between: str,
        over: str | None,
        baseline: Any,
        confidence: float,
        sweep: Sweep,
    ) -> None:
        self.table = table
        self.metric = metric
        self.between = between
        self.over = over
        self.baseline = baseline
        self.confidence = confidence
        self.sweep = sweep

    @property
    def method(self) -> str:
        """How the intervals were made, in a line."""
        ns = sorted({n for n in self.table["n"].to_pylist() if n}) or [0]
        if ns == [1]:
            return "paired by seed; one seed gives no interval"
        n = f"{ns[0]}" if len(ns) == 1 else f"{ns[0]} to {ns[-1]}"
        method = METHOD.format(n=n, confidence=self.confidence)
        if self.sweep.metric(self.metric) in SHARES:
            method += ", cut to what a share can be"
        return method

    def frame(self) -> Any:
        """The table as a pandas DataFrame."""
        return to_pandas(self.table)

    def curves(self) -> "tuple[dict[str, Curve], dict[str, Curve]]":
        """The means by value of `between`, and the differences to the baseline by all but it."""
        from results.bands import Curve

        rows = self.table.to_pylist()
        means, differences = {}, {}
        for name in dict.fromkeys(row[self.between] for row in rows):
            mine = [row for row in rows if row[self.between] == name]
            x = [row[self.over or self.between] for row in mine]

            def curve(*keys: str, x: Any = x, mine: Any = mine) -> Curve:
                return Curve(x, *([row[key] for row in mine] for key in keys))

            means[str(name)] = curve("mean", "low", "high")
            if name != self.baseline:
                differences[str(name)] = curve("difference", "difference_low", "difference_high")
        return means, differences

    @property
    def y_label(self) -> str:
        """What the metric counts, and in which unit; its name where that is not known."""
        what, unit = UNITS.get(self.sweep.metric(self.metric), (self.metric, ""))
        return f"{what} ({unit})" if unit else what

    @property
    def title(self) -> str:
        """The metric, what it counts, and in which unit."""
        label = self.y_label
        return label if label == self.metric else f"{self.metric}: {label}"

    @property
    def name(self) -> str:
        """The metric and its unit, for the head of a column."""
        _, unit = UNITS.get(self.sweep.metric(self.metric), ("", ""))
        return f"{self.metric} ({unit})" if unit else self.metric

    def plot(self) -> "Picture":
        """The metric with bands, and beside it the differences to the baseline."""
        from results.bands import bands

        means, differences = self.curves()
        return bands(
            means,
            differences,
            baseline=str(self.baseline),
            title=self.metric,
            x_label=self.over or self.between,
            y_label=self.y_label,
            note=self.method,
        )

    def save(self, directory: str | Path | None = None) -> list[Path]:
        """Write the table as CSV and Parquet and the figure as PNG and SVG; returns the files.

        directory: that of the sweep by default.
        """
        home = self.sweep.directory if directory is None else Path(directory)
        home.mkdir(parents=True, exist_ok=True)
        stem = "-".join(["compare", self.metric, *([self.over] if self.over else [])])
        path = home / stem
        table, text = path.with_name(f"{stem}.parquet"), path.with_name(f"{stem}.csv")
        write_table(self.table, table)
        write_whole(text, self.to_csv().encode())
        # A stem with dots in it has no ending that `save` may take away.
        pictures = [self.plot().save(path.with_name(f"{stem}{e}"))[0] for e in (".png", ".svg")]
        return [text, table, *pictures]

    def to_csv(self) -> str:
        """The table as CSV; an empty cell is a number that there is not."""
        stream = io.StringIO()
        writer = csv.DictWriter(stream, self.table.column_names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.table.to_pylist())
        return stream.getvalue()

    def __repr__(self) -> str:
        from results.table import plain_table

        rows = self.table.to_pylist()
        head = [*([self.over] if self.over else []), self.between, self.name, "interval"]
        head += [f"minus {self.baseline}", "interval", "n"]
        lines = [
            [
                *([str(row[self.over])] if self.over else []),
                str(row[self.between]),
                _short(row["mean"]),
                _interval(row["low"], row["high"]),
                _short(row["difference"]),
                _interval(row["difference_low"], row["difference_high"]),
                f"{row['n']}" + (f" ({row['missing']} missing)" if row["missing"] else ""),
            ]
            for row in rows
        ]
        text = plain_table(head, lines) + f"\n{self.method}\n"
        if any(row["missing"] for row in rows):
            text += "missing: the run failed, or has too few requests for this number\n"
        return text


def compare(
    runs: Sweep | str | Path | Mapping[str, Any],
    policies: Sequence[str] | None = None,
    *,
    over: str | None = None,
    metric: str = "goodput",
    between: str = POLICY,
    baseline: Any = None,
    where: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
    seeds: int = SEEDS,
    overrides: Sequence[str] = (),
    out: str | Path | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare policies on the same arrivals, in a sweep or in runs made for it.

    runs: a Sweep, its directory, or a scenario (file or table) that is run with each of
    `policies` and `seeds` seeds, into `out`, with `overrides`. over: the swept key for the
    horizontal axis; the only one by default. metric: a number of the sweep's table, or a short name
    such as goodput, attainment, p99. between: the key whose values are compared. baseline: the
    value that the others are compared with, the first by default. where: keys that are held at one
    value; needed for swept keys that are neither `over` nor `between`.
    Raises ScenarioError where that cannot be done.
    """
    if isinstance(runs, Sweep):
        found = runs
    elif not isinstance(runs, Mapping) and is_sweep(Path(runs)):
        found = load_sweep(runs)
        if found.interrupted:
            warnings.warn(
                f"{found.directory} was interrupted: only the {found.table.num_rows} points that "
                "were done by then are compared; run its sweep again to go on",
                stacklevel=2,
            )
    else:
        found = _run(runs, policies, seeds, overrides, out, jobs, dask, executor, progress)
        policies = None
    rows = _chosen(found, {**(where or {})})
    if policies:
        if missing := set(policies) - {row[POLICY] for row in rows}:
            raise ScenarioError(f"{found.directory} has no policy {', '.join(sorted(missing))}")
        rows = [row for name in policies for row in rows if row[POLICY] == name]
    column = found.metric(metric)
    over = _over(found, rows, over, between, where or {})
    values = list(dict.fromkeys(row[between] for row in rows))
    baseline = values[0] if baseline is None else _known(baseline, values, "baseline")
    table = _compared(rows, column, between, over, values, baseline, confidence)
    return Comparison(
        table,
        metric=metric,
        between=between,
        over=over,
        baseline=baseline,
        confidence=confidence,
        sweep=found,
    )


def is_sweep(path: Path) -> bool:
    """Whether a path stands for a sweep, and not for a scenario or a run, which has one."""
    return path.is_dir() and not (path / "scenario.toml").exists()


def _run(
    scenario: str | Path | Mapping[str, Any],
    policies: Sequence[str] | None,
    seeds: int,
    overrides: Sequence[str],
    out: str | Path | None,
    jobs: int | None,
    dask: str | None,
    executor: Executor | None,
    progress: Progress | None,
) -> Sweep:
    for override in overrides:
        if override.partition("=")[0].strip() == SEED:
            raise ScenarioError(
                f"--set {override}: a comparison takes the seeds 1 to {seeds}, the same for all; "
                "expected --seeds to say how many"
            )
    path = Path(scenario).resolve() if not isinstance(scenario, Mapping) else None
    study = {
        "name": path.stem if path else str(scenario.get("name", "scenario")),  # type: ignore[union-attr]
        "scenario": str(path) if path else scenario,
        "replications": {"count": seeds},
    }
    home = Path("runs") / f"compare-{study['name']}" if out is None else Path(out)
    done = sweep(
        study,
        home,
        overrides=overrides,
        policies=policies or (),
        jobs=jobs,
        dask=dask,
        executor=executor,
        progress=progress,
    )
    if done.interrupted:
        raise KeyboardInterrupt
    return done


def _chosen(found: Sweep, where: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = found.table.to_pylist()
    for key, value in where.items():
        if key not in found.keys:
            raise ScenarioError(f"--where {key}: not swept; {suggest(key, list(found.keys))}")
        values = list(dict.fromkeys(row[key] for row in rows))
        value = _known(value, values, f"where {key}")
        rows = [row for row in rows if row[key] == value]
    if not rows:
        raise ScenarioError(f"{found.directory} has no finished point of that kind")
    return rows


def _known(value: Any, values: Sequence[Any], option: str) -> Any:
    """The value as the table has it; on the command line 800 may be text."""
    for known in values:
        if value == known or str(value) == str(known):
            return known
    raise ScenarioError(f"--{option}: no {value}; have {', '.join(map(str, values))}")


def _over(
    found: Sweep,
    rows: Sequence[Mapping[str, Any]],
    over: str | None,
    between: str,
    where: Mapping[str, Any],
) -> str | None:
    """The key of the horizontal axis; refuses to mix points that differ otherwise."""
    for option, key in (("over", over), ("between", between)):
        if key is not None and key not in found.keys:
            raise ScenarioError(f"--{option} {key}: not swept; {suggest(key, list(found.keys))}")
    varying = [
        key
        for key in found.keys
        if key not in (between, over, *where) and len({row[key] for row in rows}) > 1
    ]
    if over is None and varying:
        over = varying.pop(0) if len(varying) == 1 else None
    if varying:
        raise ScenarioError(
            f"{' and '.join(varying)} were swept too; choose one with --over, and a value for "
            f"each other with --where {varying[0]}=VALUE"
        )
    if over == between:
        raise ScenarioError(f"--over {over}: its values are compared; expected another key")
    return over


def _compared(
    rows: Sequence[Mapping[str, Any]],
    column: str,
    between: str,
    over: str | None,
    values: Sequence[Any],
    baseline: Any,
    confidence: float,
) -> pa.Table:
    at = list(dict.fromkeys(row[over] for row in rows)) if over else [None]
    if all(isinstance(x, int | float) for x in at):
        at.sort()
    found: dict[Any, dict[Any, dict[int, float | None]]] = {x: {v: {} for v in values} for x in at}
    for row in rows:
        found[row[over] if over else None][row[between]][row[SEED]] = row[column]
    table = []
    for x in at:
        for value in values:
            mine, others = found[x][value], found[x][baseline]
            numbers = [number for number in mine.values() if number is not None]
            pairs = [
                number - other
                for seed, number in mine.items()
                if number is not None and (other := others.get(seed)) is not None
            ]
            mean = two_sided(numbers, confidence)
            difference = two_sided(pairs, confidence)
            if column in SHARES:
                mean, difference = mean.cut(0.0, 1.0), difference.cut(-1.0, 1.0)
            if value == baseline:
                difference = Mean(0, None, None, None)
            table.append(
                {
                    **({over: x} if over else {}),
                    between: value,
                    "n": mean.n,
                    "mean": mean.mean,
                    "low": mean.low,
                    "high": mean.high,
                    "pairs": difference.n,
                    "difference": difference.mean,
                    "difference_low": difference.low,
                    "difference_high": difference.high,
                    "missing": len(mine) - len(numbers),
                }
            )
    numbers_of = ("mean", "low", "high", "difference", "difference_low", "difference_high")
    arrays = {
        name: pa.array([row[name] for row in table], pa.float64() if name in numbers_of else None)
        for name in table[0]
    }
    about = {"metric": column, "between": between, "over": over, "confidence": confidence}
    return pa.table(arrays).replace_schema_metadata({b"mainspring": json.dumps(about)})


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if abs(value) >= 1_000 else f"{value:.5g}"


def _interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{_short(low)} to {_short(high)}"
