"""The README's numbers are what its commands print today."""

import re
from pathlib import Path

import pytest

from mainspring import load_scenario, run
from mainspring.reproduce.original import original
from results.breakdown import breakdown

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
RECORDED = SHARED / "data/clockwork_original"
TRACE = SHARED / "data/traces/azure_functions_2019/fn500_min480-799_invocations.csv.gz"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def table(first_cell: str) -> list[list[str]]:
    """The cells of the README's table whose head begins so, without the head."""
    lines = README.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first_cell} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def number(text: str) -> float:
    return float(text.replace(",", "").rstrip("%"))


@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"needs the recorded runs in {RECORDED}")
def test_the_table_of_fidelity() -> None:
    """run, and goodput, p50, mean batch: original, artifact; then goodput of the other two."""
    rows = table("req/s offered")
    runs = [f"e1c_r{offered}" for offered, *_ in rows]
    obtained = {
        policy: {
            (row.figure, row.quantity): row for row in original(RECORDED, policy, only=runs, jobs=1)
        }
        for policy in ("artifact", "clockwork", "fifo")
    }
    assert len(rows) == 7
    for offered, *cells in rows:
        run_name = f"e1c_r{offered}"
        values = []
        for quantity in ("goodput (req/s)", "p50 (ms)", "mean batch"):
            row = obtained["artifact"][run_name, quantity]
            values += [row.reference, row.obtained]
        values += [
            obtained[policy][run_name, "goodput (req/s)"].obtained
            for policy in ("clockwork", "fifo")
        ]
        for cell, value in zip(cells, values, strict=True):
            decimals = len(cell.partition(".")[2])
            assert cell == f"{value:.{decimals}f}", f"{run_name}: {cells}"


def test_the_demo(tmp_path: Path) -> None:
    (clockwork, fifo) = run(load_scenario(ROOT / "scenarios/demo.toml"), tmp_path / "demo")
    told = re.search(r"Clockwork answers ([\d.]+)% in time, a FIFO server none", README)
    assert told
    assert clockwork.summary.share_in_time is not None
    assert told[1] == f"{clockwork.summary.share_in_time:.2%}"[:-1]
    assert fifo.summary.share_in_time == 0


def test_the_two_clients(tmp_path: Path) -> None:
    runs = run(
        load_scenario(ROOT / "scenarios/two-clients.toml"), tmp_path / "two", ["clockwork", "edf"]
    )
    told = re.search(r"loses ([\d.]+) points .*?Clockwork, and\s+([\d.]+)", README, re.DOTALL)
    assert told
    for each, points in zip(runs, told.groups(), strict=True):
        exposure = breakdown(each.directory, {0: 0, 1: 1}, ["steady", "bursts"]).exposures[0]
        assert points == f"{-100 * exposure.difference:.1f}"


@pytest.mark.skipif(not TRACE.is_file(), reason=f"needs the trace {TRACE}")
def test_the_real_trace(tmp_path: Path) -> None:
    scenario = load_scenario(ROOT / "scenarios/azure-2019.toml")
    (clockwork,) = run(scenario, tmp_path / "azure", ["clockwork"])
    summary = clockwork.summary
    rows = {name: value for name, value, _ in table("ten minutes of the trace")}
    assert number(rows["arrivals"]) == summary.arrivals
    assert summary.share_in_time is not None
    assert rows["in time"] == f"{summary.share_in_time:.3%}"
    for quantile in ("p50", "p99"):
        assert rows[f"{quantile} (ms)"] == f"{summary.latency.quantiles_ms[quantile]:.1f}"
    assert rows["mean batch"] == f"{summary.mean_batch_executed:.2f}"
