"""The scenarios that come with the project run, in a shorter form than they have."""

from pathlib import Path

import pytest

from mainspring import load_scenario, run

SCENARIOS = Path(__file__).parents[2] / "scenarios"


pytestmark = pytest.mark.usefixtures("without_pictures")


def test_demo_shows_clockwork_ahead_of_fifo(tmp_path):
    short = ["duration_s=3", "warmup_s=1"]
    clockwork, fifo = run(load_scenario(SCENARIOS / "demo.toml", short), tmp_path / "out")
    assert clockwork.goodput_rps is not None
    assert fifo.goodput_rps is not None
    assert clockwork.goodput_rps > 1.2 * fifo.goodput_rps


def test_original_runs_on_given_arrivals(tmp_path):
    arrivals = tmp_path / "arrivals.csv"
    rows = "".join(f"{2_000 * i},{i % 15}\n" for i in range(500))
    arrivals.write_text("arrival_us,model\n" + rows)
    overrides = [f"workload.0.path={arrivals}", "duration_s=1"]
    (summary,) = run(load_scenario(SCENARIOS / "original.toml", overrides), tmp_path / "out")
    assert summary.arrivals == 500
    assert summary.outcomes["unfinished"] == 0


def test_azure_2019_runs_where_the_trace_is(tmp_path):
    trace = "../shared/data/traces/azure_functions_2019/fn500_min480-799_invocations.csv.gz"
    if not (SCENARIOS.parent / trace).resolve().is_file():
        pytest.skip("the trace is not part of the package")
    short = ["duration_s=3", "warmup_s=0", "policy={clockwork={}}"]
    (summary,) = run(load_scenario(SCENARIOS / "azure-2019.toml", short), tmp_path / "out")
    assert summary.arrivals > 1_000
