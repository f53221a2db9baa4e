"""Our Clockwork beside the original controller, run with its own emulated GPUs.

The recordings are in ../shared/data/clockwork_original; the delays of the platform were set once,
for all rates (facts on the original, 5.7).
"""

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from mainspring.reproduce import original
from mainspring.reproduce.fidelity import as_markdown
from mainspring.reproduce.rows import Row
from workloads import ClockworkClient

SHARED = Path(__file__).parents[3] / "shared"
DATA = SHARED / "data/clockwork_original"
ARRIVALS = SHARED / "tools/original_arrivals.py"

PAGE = Path(__file__).parents[2] / "docs/fidelity.md"

needs_recordings = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"needs the recorded runs of the original in {DATA}"
)


OFF = {
    ("e2c_slo10_r600", "goodput (req/s)"),
    ("e2c_slo10_r600", "share in time"),
}
"""Rows that fall short, and why: mainspring.reproduce.original."""


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return original.original(DATA, jobs=1)


@needs_recordings
def test_the_artifact_is_within_the_tolerances_in_every_row_but_the_known(rows: list[Row]) -> None:
    judged = [row for row in rows if row.verdict != "no reference"]
    assert len({row.figure for row in judged}) == 23
    assert {row.quantity for row in judged} == {quantity.name for quantity in original.QUANTITIES}
    assert {(row.figure, row.quantity) for row in judged if row.verdict != "holds"} == OFF
    assert msgspec.json.decode(msgspec.json.encode(rows), type=list[Row]) == rows
    fates = [row for row in rows if row.quantity.startswith("same fate")]
    assert len(fates) == 5


@needs_recordings
def test_the_page_says_what_comes_out(rows: list[Row]) -> None:
    """Else write it again: mainspring reproduce clockwork original --markdown docs/fidelity.md"""
    assert PAGE.read_text(encoding="utf-8") == as_markdown(DATA, rows)
    assert {run for run, _ in OFF} == original.CAUSES.keys()


@needs_recordings
def test_a_wrong_scheduler_would_be_noticed() -> None:
    """FIFO on the same arrivals falls short where batches matter: the rows can fail."""
    loaded = {f"e1c_r{rate}" for rate in (400, 600, 800, 1000)}
    rows = original.original(DATA, "fifo", only=loaded, jobs=1)
    assert {row.figure for row in rows if row.verdict == "falls short"} == loaded


@needs_recordings
def test_other_recordings_are_taken_from_where_they_are(tmp_path: Path) -> None:
    lines = (DATA / "summary.csv").read_text().splitlines()
    chosen = [line for line in lines if line.startswith(("run,", "e1c_r200,"))]
    (tmp_path / "summary.csv").write_text("\n".join(chosen).replace(",199.2,", ",99.6,"))
    rows = {row.quantity: row for row in original.original(tmp_path, jobs=1)}
    assert rows["goodput (req/s)"].reference == 99.6
    assert rows["goodput (req/s)"].verdict == "falls short"
    assert not any(quantity.startswith("same fate") for quantity in rows)  # no trace there


@pytest.mark.skipif(not ARRIVALS.is_file(), reason=f"needs the reference generator {ARRIVALS}")
@pytest.mark.parametrize(("models", "rate"), [(15, 600), (2, 50)])
def test_the_arrivals_are_the_original_clients(models: int, rate: int) -> None:
    seconds = 24
    printed = subprocess.run(
        [sys.executable, str(ARRIVALS), str(models), str(rate), str(seconds)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()[1:]
    reference = np.array([line.split(",") for line in printed], dtype=float)
    chunks = list(
        ClockworkClient(rate_rps=rate).chunks(
            range(models), [], seconds * 10**9, np.random.default_rng()
        )
    )
    times_ns = np.concatenate([chunk.times_ns for chunk in chunks])
    which = np.concatenate([chunk.models for chunk in chunks])
    assert len(times_ns) == len(reference)
    # The tool prints microseconds with three digits: every nanosecond is there to compare.
    np.testing.assert_array_equal(times_ns, np.round(reference[:, 0] * 1e3).astype(np.int64))
    np.testing.assert_array_equal(which, reference[:, 1].astype(np.int32))
