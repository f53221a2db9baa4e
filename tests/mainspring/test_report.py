"""Pages on runs, sweeps and plans: what they say is what was measured, and they stand alone."""

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

import mainspring
from mainspring import load_runs, load_scenario, run
from mainspring.cli import main
from results import ResultsError
from results.breakdown import breakdown
from results.table import percent
from tests.mainspring.pages import Page

SECOND_CLIENT = """rate_rps = 200

[[workload]]
kind = "poisson"
models = "resnet50_v2.1"
rate_rps = 500
slo_ms = 20
"""


@pytest.fixture(name="runs")
def two_runs(write, without_pictures):
    """Two policies, three models, two clients with SLOs of their own."""
    return run(load_scenario(write(("rate_rps = 200\n", SECOND_CLIENT))), "out")


@pytest.fixture
def call(capsys):
    """Call the command line; gives its exit code, stdout and stderr."""

    def call(*args):
        with pytest.raises(SystemExit) as exited:
            main(list(map(str, args)))
        captured = capsys.readouterr()
        return exited.value.code or 0, captured.out, captured.err

    return call


@pytest.fixture
def here(monkeypatch):
    """An executor that starts at once: a thread of this process."""
    monkeypatch.setattr(sys.modules["mainspring.run"], "quiet_collector", nullcontext)
    with ThreadPoolExecutor(1) as executor:
        yield executor


def stands_alone(page: Page) -> None:
    """It needs nothing but itself, and runs nothing."""
    assert not {"script", "iframe", "object", "embed", "img", "link"} & set(page.tags)
    assert all(reference.startswith("#") for reference in page.references)
    for style in page.styles:
        assert "@import" not in style
        assert style.count("url(") == style.count("url(#")


def test_a_page_stands_alone_and_says_what_was_measured(runs):
    path = runs.report("pages/two.html")
    page = Page(path)
    stands_alone(page)
    assert not list(Path("pages").glob("*.part"))
    for each in runs:
        s = each.summary
        assert page.says(
            f"{percent(s.share_in_time, 2)}",
            f"{s.arrivals:,}",
            s.digest[:16],
            f"mainspring run {each.directory}",
        )
        parts = breakdown(each.directory)
        for part in (*parts.models, *parts.clients):
            assert page.says(f"{part.arrivals:,}", f"{part.missed:,}"), part
    assert page.tags["svg"] == 3  # fates, latency, clients; three models need no figure
    assert page.says(
        "under clockwork and fifo?", "workload.0 (poisson)", "workload.1 (resnet50_v2.1)",
        "NVIDIA V100", "Gujarati et al.", "matplotlib", "What can be concluded", "20 to 100",
    )  # fmt: skip
    assert page.says(Path("out/fifo/scenario.toml").read_text().split("\n")[0])


def test_the_same_runs_give_the_same_page(runs):
    assert runs.report("a.html").read_bytes() == runs.report("b.html").read_bytes()


def test_the_best_is_in_the_answer_and_the_unanswered_in_a_warning(runs):
    page = Page(runs.report("two.html"))
    best = max(runs, key=lambda each: each.summary.share_in_time)
    other = min(runs, key=lambda each: each.summary.share_in_time)
    assert other.summary.share_in_time < best.summary.share_in_time < 1
    assert page.says(
        f"{best.label} answers {best.summary.share_in_time:.2%} of the requests in time, "
        f"{other.label} "
    )
    unfinished = other.summary.outcomes["unfinished"]
    assert unfinished
    assert page.says(f"{unfinished:,} requests of {other.label} had no answer")


def test_the_command_writes_a_page_and_prints_the_table_all_the_same(runs, call):
    code, out, err = call("report", "out", "--html", "page.html")
    assert (code, err) == (0, "")
    assert "goodput" in out
    assert out.endswith("page:     page.html\n")
    code, out, _ = call("report", "out/fifo", "--html", "page.html", "--json")
    assert [each["name"] for each in json.loads(out)] == ["fifo"]
    page = Page(Path("page.html"))
    assert page.says("under fifo?")
    assert "clockwork:" not in page.text


def test_runs_of_other_arrivals_are_told_apart(runs, without_pictures):
    scenario = load_scenario("small.toml", ["seed=9"])
    run(scenario, "later", ["fifo"])
    page = Page(load_runs("out/fifo", "later").report("page.html"))
    assert page.says("different seeds: they did not get the same requests")
    run(load_scenario("small.toml", ["slo_ms=50"]), "tight", ["fifo"])
    page = Page(load_runs("out/fifo", "tight").report("page.html"))
    assert page.says("different scenarios: they did not get the same requests")


def test_runs_that_are_equally_good_share_the_answer(write, without_pictures):
    scenario = load_scenario(write(("rate_rps = 200", "rate_rps = 50")))
    runs = run(scenario, "out", ["clockwork", "edf", "fifo"])
    assert {each.summary.share_in_time for each in runs} == {1.0}
    assert Page(runs.report("page.html")).says(
        "clockwork, edf and fifo answer 100% of the requests in time.",
        "clockwork: no request with an SLO was missed.",
    )


PROFILE = """\
schema = 1
device = "<b>bench</b>"
source = "a & b"
licence = "none"

[models."<script>alert(1)</script>"]
weights_bytes = 16_777_216
input_bytes = 0
output_bytes = 0
load_ms = 1.0
exec_ms = { 1 = 4.0 }
"""


@pytest.fixture
def hostile(tmp_path, monkeypatch, without_pictures):
    """A run of a model whose name is a script, with a profile of one's own."""
    monkeypatch.chdir(tmp_path)
    Path("bench.toml").write_text(PROFILE)
    table = {
        "name": "hostile", "duration_s": 1.0, "slo_ms": 10.0, "cluster": {"pages": 8},
        "models": [{"profile": "bench.toml/*"}],
        "workload": [
            {"kind": "poisson", "rate_rps": 300},
            {"kind": "closed", "concurrency": 3, "models": "<script>*"},
        ],
        "policy": {"edf": {}},
    }  # fmt: skip
    return run(mainspring.build_scenario(table), "out")


def test_names_are_text_and_can_do_nothing(hostile):
    page = Page(hostile.report("page.html"))
    stands_alone(page)
    assert page.says("<script>alert(1)</script>", "<b>bench</b>", "a & b")
    assert "b" not in page.tags


def test_closed_loop_clients_of_a_workload_are_one_client(hostile):
    page = Page(hostile.report("page.html"))
    assert page.says("workload.0 (poisson)", "workload.1 (<script>*)", "wait for their answer")
    by_row = breakdown(Path("out")).clients
    assert len(by_row) == 1 + 3
    together = sum(part.arrivals for part in by_row[1:])
    assert page.says(f"workload.1 (<script>*) edf 10 {together:,}")


def test_a_page_does_not_need_what_the_run_has_read(hostile):
    Path("bench.toml").unlink()
    assert Page(hostile.report("page.html")).says("from a profile that is not here any more")


def test_without_slos_the_answer_is_a_latency(write, without_pictures):
    runs = run(load_scenario(write(("slo_ms = 100.0\n", ""))), "out", ["fifo"])
    page = Page(runs.report("page.html"))
    assert page.says("No request has an SLO", "ms on average")


def test_a_sweep_has_a_page(write, here, call):
    write()
    study = {
        "name": "tiny", "scenario": "small.toml", "set": {"duration_s": 1.0, "warmup_s": 0.2},
        "grid": {"policy": ["clockwork", "fifo"], "workload.0.rate_rps": [100, 600]},
        "replications": {"count": 2},
    }  # fmt: skip
    done = mainspring.sweep(study, "out", executor=here)
    assert call("report", "out", "--html", "page.html") == (0, "page:     page.html\n", "")
    page = Page(Path("page.html"))
    stands_alone(page)
    assert page.says(
        "What do policy and workload.0.rate_rps change? 8 runs, 2 seeds for every setting",
        "clockwork has the highest attainment at 1 of 2 values of workload.0.rate_rps, and shares "
        "it at 1.",
        "mainspring sweep", "Student's t",
    )  # fmt: skip
    rows = done.table.to_pylist()
    assert {row["share_in_time"] for row in rows if row["workload.0.rate_rps"] == 100} == {1.0}
    for policy in ("clockwork", "fifo"):
        goodputs = [
            row["goodput_rps"]
            for row in rows
            if (row["policy"], row["workload.0.rate_rps"]) == (policy, 600)
        ]
        assert page.says(f"{sum(goodputs) / 2:.4g} ± ")


def test_a_sweep_that_cannot_be_drawn_without_more_words_has_its_table(write, here):
    write()
    study = {
        "name": "wide", "scenario": "small.toml", "set": {"duration_s": 0.6, "warmup_s": 0.2},
        "grid": {"cluster.gpus": [1, 2], "workload.0.rate_rps": [100, 200]},
    }  # fmt: skip
    mainspring.sweep(study, "out", executor=here)
    page_of("out", "page.html")
    assert Page(Path("page.html")).says("No figure:", "choose one with --over", "All settings")


FAILS = """\
import msgspec

class Fails:
    class Params(msgspec.Struct):
        pass
    def __init__(self, params): pass
    def on_start(self, now_ns, gpus, models, rng, out): pass
    def on_request(self, now_ns, request, out): raise ValueError("<b>no</b>")
    def on_result(self, now_ns, result, out): pass
    def on_wake(self, now_ns, key, out): pass
"""


@pytest.mark.parametrize("others", [[], ["fifo"]])
def test_a_sweep_says_which_runs_failed(write, here, others):
    write()
    Path("fails.py").write_text(FAILS)
    study = {
        "name": "tiny", "scenario": "small.toml", "set": {"duration_s": 0.6, "warmup_s": 0.2},
        "grid": {"policy": ["fails.py:Fails", *others]},
    }  # fmt: skip
    mainspring.sweep(study, "out", executor=here)
    page = Page(page_of("out", "page.html"))
    assert page.says("1 run failed; the first: policy Fails", "ValueError: <b>no</b>")
    assert page.says("attainment is 1 throughout." if others else "every run failed.")


def page_of(*args):
    """Make a page as the command does."""
    from mainspring.report import report

    return report(args[:-1], args[-1])


def test_a_plan_has_a_page(tmp_path, monkeypatch, here):
    monkeypatch.chdir(tmp_path)
    Path("bench.toml").write_text(PROFILE)
    table = {
        "name": "steady", "duration_s": 1.0, "warmup_s": 0.4, "slo_ms": 5.0,
        "cluster": {"pages": 8}, "models": [{"profile": "bench.toml/*"}],
        "workload": [{"kind": "constant", "rate_rps": 510}], "policy": {"fifo": {}},
    }  # fmt: skip
    came = mainspring.plan(table, 1.0, out="plan", executor=here)
    assert came.gpus == 3  # 4 ms each, 510 a second
    page = Page(page_of("plan", "page.html"))
    stands_alone(page)
    assert page.says(
        "How many GPUs answer 100% of the requests of steady in time, under fifo",
        "3 GPUs (<b>bench</b>) will do",
        "1. What fleet?", "2. What binds?", "3. How much headroom?", "4. What to change next?",
    )  # fmt: skip
    assert page.says(*came.answer.fleet, *came.answer.headroom)


def test_a_plan_that_cannot_be_met_says_why(tmp_path, monkeypatch, here):
    monkeypatch.chdir(tmp_path)
    Path("bench.toml").write_text(PROFILE)
    table = {
        "name": "tight", "duration_s": 1.0, "slo_ms": 3.0, "cluster": {"pages": 8},
        "models": [{"profile": "bench.toml/*"}],
        "workload": [{"kind": "constant", "rate_rps": 50}], "policy": {"fifo": {}},
    }  # fmt: skip
    came = mainspring.plan(table, 0.9, out="plan", executor=here)
    page = Page(page_of("plan", "page.html"))
    assert page.says("No fleet is known to do", came.answer.why)


# -- what is refused -------------------------------------------------------------------------------


def refused(call, *args) -> str:
    """The one line; nothing may have been written."""
    code, out, err = call("report", *args)
    assert (code, out) == (2, "")
    assert err.startswith("mainspring: ")
    assert err.count("\n") == 1
    assert not list(Path().rglob("*.html"))
    assert not list(Path().rglob("*.html.part"))
    return err


def test_what_is_no_run_is_refused(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    assert "empty: no summary.json: not the directory of a run" in refused(
        call, "empty", "--html", "page.html"
    )
    assert "nowhere: no such directory" in refused(call, "nowhere", "--html", "page.html")


def test_a_run_without_its_scenario_is_refused(runs, call):
    Path("out/fifo/scenario.toml").unlink()
    line = refused(call, "out", "--html", "page.html")
    assert "out/fifo/scenario.toml: No such file or directory; a page needs" in line


def test_a_scenario_of_another_version_is_refused(runs, call):
    file = Path("out/fifo/scenario.toml")
    file.write_text("colour = 1\n" + file.read_text())
    line = refused(call, "out", "--html", "page.html")
    assert "unknown field `colour`" in line
    assert "another version" in line


def test_rows_that_are_cut_short_are_refused(runs, call):
    file = Path("out/fifo/outcomes.parquet")
    file.write_bytes(file.read_bytes()[:1000])
    assert "outcomes.parquet: cannot be read" in refused(call, "out", "--html", "page.html")


def test_a_place_where_no_page_can_be_is_refused(runs, call):
    Path("in-the-way").mkdir()
    assert "in-the-way: cannot be written (it is a directory)" in refused(
        call, "out", "--html", "in-the-way"
    )
    assert "cannot be written" in refused(call, "out", "--html", "small.toml/page.html")


def test_a_sweep_or_plan_is_reported_alone_and_as_a_page(runs, call):
    shutil.copytree("out", "plan")
    Path("plan/plan.json").write_text("{}")
    assert "plan is a sweep or a plan; expected it alone" in refused(
        call, "out", "plan", "--html", "page.html"
    )
    assert "expected --html FILE.html" in refused(call, "plan")
    assert "plan.json: Object missing required field" in refused(
        call, "plan", "--html", "page.html"
    )


def test_a_page_that_fails_leaves_the_old_one(runs, monkeypatch):
    path = runs.report("page.html")
    before = path.read_bytes()
    monkeypatch.setattr("results.files.publish", lambda path: (_ for _ in ()).throw(OSError(28)))
    with pytest.raises(OSError, match="28"):
        runs.report("page.html")
    assert path.read_bytes() == before
    with pytest.raises(ResultsError, match="no such directory; expected the directory of a run"):
        page_of("nowhere", "page.html")
    assert path.read_bytes() == before
