"""A run taken apart: each part by hand, and all parts together against the summary."""

import numpy as np
import pytest

from results import ResultsError
from results.breakdown import _ratio, breakdown, together
from results.columns import WORDS
from scheduler.records import AnswerKind, Outcome
from tests.results.helpers import MS, SECOND, request, writer


def run_of(directory, rows, **about):
    """The directory of a finished run of these requests, of two models."""
    two = {"models": ["resnet50", "bert"], "pages_of_model": [1, 1]}
    with writer(directory, **(two | about)) as sink:
        for row in rows:
            sink.request(row)
        sink.close(arrivals=len(rows))
    return directory


def test_each_model_has_its_own_numbers(tmp_path):
    rows = [
        request(0, end=10 * MS, cold=True),
        request(1, end=30 * MS),
        request(2, slo=5 * MS, end=8 * MS),  # late
        request(3, model=1, outcome=Outcome.REJECTED, end=2 * MS),
        request(4, model=1, slo=None, end=700 * MS),
    ]
    resnet50, bert = breakdown(run_of(tmp_path / "run", rows)).models
    assert (resnet50.name, resnet50.arrivals, resnet50.cold_requests) == ("resnet50", 3, 1)
    assert (resnet50.outcomes["ok"], resnet50.outcomes["late"]) == (2, 1)
    assert (resnet50.slo_requests, resnet50.slo_in_time, resnet50.missed) == (3, 2, 1)
    assert resnet50.share_in_time == pytest.approx(2 / 3)
    assert resnet50.slo_ms == (5.0, 100.0)
    assert (resnet50.offered_rps, resnet50.goodput_rps) == (3.0, 2.0)  # in a second
    assert (resnet50.latency.n, resnet50.latency.mean_ms) == (3, 16.0)
    assert (bert.arrivals, bert.slo_requests, bert.share_in_time) == (2, 1, 0.0)
    assert (bert.latency.n, bert.latency.max_ms) == (1, 700.0)


def test_a_model_that_nobody_asked_for_is_in_no_table(tmp_path):
    assert [part.name for part in breakdown(run_of(tmp_path / "run", [request(0)])).models] == [
        "resnet50"
    ]


def test_a_quantile_needs_ten_answers_beyond_it(tmp_path):
    rows = [request(i, end=(20 - i) * MS) for i in range(20)]  # 20, 19, ..., 1 ms
    rows += [request(20 + i, model=1, end=(1 + i) * MS) for i in range(19)]
    models = breakdown(run_of(tmp_path / "run", rows)).models
    assert [part.latency.quantiles_ms["p50"] for part in models] == [10.0, None]
    assert [part.latency.quantiles_ms["p90"] for part in models] == [None, None]


def test_what_arrives_outside_the_measured_span_is_left_out(tmp_path):
    rows = [request(i, at=at * MS, end=(at + 1) * MS) for i, at in enumerate((0, 100, 999))]
    rows.append(request(3, at=1000 * MS, end=1001 * MS))
    (model,) = breakdown(run_of(tmp_path / "run", rows, warmup_ns=100 * MS)).models
    assert model.arrivals == 2


def test_an_answer_by_default_is_in_time_for_nobody(tmp_path):
    found = breakdown(run_of(tmp_path / "run", [request(0, kind=AnswerKind.DEFAULT)]))
    assert (found.models[0].slo_in_time, found.models[0].latency.n) == (0, 0)


def test_clients_are_told_apart_and_may_be_put_together(tmp_path):
    rows = [request(i, client=client) for i, client in enumerate((0, 2, 3, 3))]
    run = run_of(tmp_path / "run", rows)
    each = breakdown(run).clients
    assert [(part.name, part.arrivals) for part in each] == [
        ("client 0", 1), ("client 2", 1), ("client 3", 2),
    ]  # fmt: skip
    two = breakdown(run, {0: 0, 2: 1, 3: 1}, ["open", "closed"]).clients
    assert [(part.name, part.arrivals) for part in two] == [("open", 1), ("closed", 3)]
    rest = breakdown(run, {0: 0, 2: 0}, ["known"]).clients
    assert [(part.name, part.arrivals) for part in rest] == [("known", 2), ("others", 2)]


def test_the_worst_windows_are_those_with_the_most_misses(tmp_path):
    """A span of 2.1 s has windows of 100 ms: 21 of them, the last one whole."""
    lost = {"outcome": Outcome.REJECTED}
    rows = [request(i, at=i * 20 * MS, end=i * 20 * MS + MS) for i in range(105)]
    rows += [
        request(200 + i, at=550 * MS, end=551 * MS, model=m, **lost)
        for i, m in enumerate((0, 1, 1))
    ]
    rows += [request(300, at=1250 * MS, end=1251 * MS, **lost)]
    rows += [request(301, at=50 * MS, end=51 * MS, **lost)]
    found = breakdown(run_of(tmp_path / "run", rows, end_ns=2100 * MS))
    assert (found.width_ns, len(found.starts_ns)) == (100 * MS, 21)
    assert [(w.start_ns // MS, w.end_ns // MS, w.missed) for w in found.worst] == [
        (500, 600, 3), (0, 100, 1), (1200, 1300, 1),
    ]  # fmt: skip
    first = found.worst[0]
    assert (first.worst_model, first.worst_model_missed) == ("bert", 2)
    assert (first.arrivals, first.slo_in_time, first.outcomes["rejected"]) == (8, 5, 3)
    assert len(breakdown(tmp_path / "run", worst=1).worst) == 1


def test_a_long_run_has_minutes_and_a_last_one_that_is_short(tmp_path):
    rows = [request(0, at=1230 * SECOND, end=1230 * SECOND + 1, outcome=Outcome.REJECTED)]
    found = breakdown(run_of(tmp_path / "run", rows, end_ns=1240 * SECOND))
    assert found.width_ns == 60 * SECOND
    (worst,) = found.worst
    assert (worst.start_ns, worst.end_ns) == (1200 * SECOND, 1240 * SECOND)


def crowded(directory, *, windows=40, missed_when_busy=1):
    """Two clients in windows of 50 ms: one asks twice in each; the other once, but five times in
    every fourth, where the first misses some of its two."""
    rows, n = [], 0
    for window in range(windows):
        busy = window % 4 == 0
        for i in range(2):
            fate = {"outcome": Outcome.REJECTED} if busy and i < missed_when_busy else {}
            at = window * 50 * MS + i * MS
            rows.append(request(n := n + 1, at=at, end=at + MS, **fate))
        for i in range(5 if busy else 1):
            at = window * 50 * MS + i * MS
            rows.append(request(n := n + 1, at=at, end=at + MS, client=1))
    return run_of(directory, rows, end_ns=windows * 50 * MS - 1)


def test_a_client_is_looked_at_where_the_others_ask_the_most(tmp_path):
    found = breakdown(crowded(tmp_path / "run"))
    first, second = found.exposures
    # The last of the 40 windows is a nanosecond short and left out; 39 // 4 are busy.
    assert (first.client, first.windows, first.busy_windows) == ("client 0", 39, 9)
    # 10 windows are crowded, of which the earliest 9 are taken; the tenth is among the others.
    assert first.others_busy_rps == pytest.approx(100.0)  # 5 in 50 ms
    assert first.others_rps == pytest.approx((29 + 5) / 30 / 0.05)
    assert (first.own_rps, first.own_busy_rps) == (pytest.approx(40.0), pytest.approx(40.0))
    assert (first.share_busy, first.share) == (0.5, pytest.approx(59 / 60))
    assert first.low < first.difference < first.high < 0
    assert second.share == second.share_busy == 1.0
    assert (second.low, second.high) == (0.0, 0.0)


def test_the_error_of_a_share_takes_windows_for_independent():
    """Of 4 in each of two windows 1 and 3 are in time: off by 2 of 8, sqrt(2/1 * (1 + 1)) / 8."""
    assert _ratio(np.array([1, 3]), np.array([4, 4])) == (0.5, 0.25)


@pytest.mark.parametrize("about", ["one client", "few windows"])
def test_where_nothing_can_be_said_of_isolation_nothing_is_said(tmp_path, about):
    if about == "one client":
        rows = [request(i, at=i * 10 * MS, end=i * 10 * MS + 1) for i in range(100)]
        assert breakdown(run_of(tmp_path / "run", rows)).exposures == []
    else:
        assert breakdown(crowded(tmp_path / "run", windows=15)).exposures == []


def test_the_parts_of_each_kind_add_up_to_the_summary(tmp_path):
    rng = np.random.default_rng(1)
    rows = []
    for i in range(5_000):
        at = int(rng.integers(0, 3 * SECOND))
        fate = Outcome(int(rng.integers(0, 6)))
        other = {} if fate in (Outcome.OK, Outcome.LATE) else {"outcome": fate}
        if fate is Outcome.OK and rng.random() < 0.2:
            other["kind"] = AnswerKind.DEFAULT
        slo = None if rng.random() < 0.2 else 100 * MS
        end = at + (150 if fate is Outcome.LATE else 50) * MS + int(rng.integers(0, 40 * MS))
        place = {"model": int(rng.integers(0, 2)), "client": int(rng.integers(0, 3))}
        rows.append(request(i, at=at, slo=slo, end=end, cold=rng.random() < 0.3, **place, **other))
    with writer(
        tmp_path / "run", models=["a", "b"], pages_of_model=[1, 1], warmup_ns=SECOND // 2,
        end_ns=3 * SECOND - 20 * MS,
    ) as sink:  # fmt: skip
        for row in rows:
            sink.request(row)
        summary = sink.close(arrivals=len(rows))
    found = breakdown(tmp_path / "run", worst=1_000)
    assert 3_000 < summary.arrivals < 5_000
    for parts in (found.models, found.clients):
        whole = together(parts, "all")
        assert whole.offered_rps == pytest.approx(summary.offered_rps)
        assert whole.goodput_rps == pytest.approx(summary.goodput_rps)
        for name in ("arrivals", "outcomes", "slo_requests", "slo_in_time", "slo_ms",
                     "cold_requests", "share_in_time"):  # fmt: skip
            assert getattr(whole, name) == getattr(summary, name), name
        assert sum(part.latency.n for part in parts) == summary.latency.n
        total_ms = sum(part.latency.n * (part.latency.mean_ms or 0) for part in parts)
        assert total_ms / summary.latency.n == pytest.approx(summary.latency.mean_ms)
        assert max(part.latency.max_ms or 0 for part in parts) == summary.latency.max_ms
    assert found.slo_requests.sum() == summary.slo_requests
    assert found.slo_in_time.sum() == summary.slo_in_time
    assert len(found.worst) == len(found.starts_ns)
    assert sum(window.arrivals for window in found.worst) == summary.arrivals
    for word in WORDS["outcome"]:
        assert sum(w.outcomes[word] for w in found.worst) == summary.outcomes[word]


def test_a_run_without_requests_has_no_parts(tmp_path):
    found = breakdown(run_of(tmp_path / "run", []))
    assert (found.models, found.clients, found.worst, found.exposures) == ([], [], [], [])


def test_what_is_no_run_is_an_error(tmp_path):
    with pytest.raises(ResultsError, match=r"no summary\.json: not the directory of a run"):
        breakdown(tmp_path)
