"""The scenarios that come with the project run, in a shorter form than they have."""

from pathlib import Path

import pytest

from mainspring import load_scenario, run
from results.breakdown import breakdown

SCENARIOS = Path(__file__).parents[2] / "scenarios"


pytestmark = pytest.mark.usefixtures("without_pictures")


def test_demo_shows_clockwork_ahead_of_fifo(tmp_path):
    short = ["duration_s=3", "warmup_s=1"]
    runs = run(load_scenario(SCENARIOS / "demo.toml", short), tmp_path / "out")
    clockwork, fifo = runs.summaries
    assert clockwork.goodput_rps is not None
    assert fifo.goodput_rps is not None
    assert clockwork.goodput_rps > 1.2 * fifo.goodput_rps


def test_azure_2019_runs_where_the_trace_is(tmp_path):
    trace = "../shared/data/traces/azure_functions_2019/fn500_min480-799_invocations.csv.gz"
    if not (SCENARIOS.parent / trace).resolve().is_file():
        pytest.skip("the trace is not part of the package")
    short = ["duration_s=3", "warmup_s=0", "policy={clockwork={}}"]
    (summary,) = run(
        load_scenario(SCENARIOS / "azure-2019.toml", short), tmp_path / "out"
    ).summaries
    assert summary.arrivals > 1_000


def test_drop_rules_shows_lazy_drop_collapsing(tmp_path):
    """One GPU does 920 a second in batches of 16, and is asked for 1,000."""
    short = ["duration_s=8", "warmup_s=3"]
    runs = run(load_scenario(SCENARIOS / "drop-rules.toml", short), tmp_path / "out")
    lazy, window = runs.summaries
    assert window.goodput_rps == pytest.approx(920, rel=0.02)
    assert lazy.goodput_rps == pytest.approx(450, rel=0.05)


def test_two_clients_shows_who_pays_for_the_bursts(tmp_path):
    """The steady client misses more under Clockwork, the bursty one under EDF."""
    short = ["duration_s=17", "policy={clockwork={}, edf={}}"]
    runs = run(load_scenario(SCENARIOS / "two-clients.toml", short), tmp_path / "out")
    shares = [[part.share_in_time for part in breakdown(run.directory).clients] for run in runs]
    (steady, bursty), (steady_edf, bursty_edf) = shares
    assert steady < steady_edf < 1
    assert bursty_edf < bursty < 1


def test_selection_learns_from_feedback_which_model_to_ask(tmp_path):
    """Without feedback a fifth of the executions is the good model's; with it, most are."""
    errors = "answers.errors=[0.9, 0.9, 0.9, 0.9, 0.0]"
    short = ["duration_s=6", errors, "policy.clipper-exp3.eta=0.3"]
    out = tmp_path / "out"
    exp3, exp4 = run(load_scenario(SCENARIOS / "selection.toml", short), out).summaries
    assert exp3.share_in_time > 0.99
    assert exp3.gpu_utilisation[4] > 0.5 * sum(exp3.gpu_utilisation)
    assert exp4.gpu_utilisation[4] < 0.3 * sum(exp4.gpu_utilisation)  # all are asked
