"""Each figure of the Clipper paper from a tiny run: its points can be measured, judged and drawn.

What the figures say at their own length is told by `mainspring reproduce clipper all`.
"""

import importlib
import pickle
from pathlib import Path

import numpy as np
import pytest

from mainspring.document import ScenarioError
from mainspring.reproduce import clipper
from mainspring.reproduce.clipper import (
    agreement,
    cache,
    clockwork,
    fig3,
    fig4,
    fig5,
    fig6,
    fig7,
    fig8,
    fig9,
    fig10,
    fig11,
    mnist,
    sharing,
)
from mainspring.reproduce.clipper.containers import (
    Container,
    Line,
    line_through,
    lognormal_sigma,
    run_containers,
    served,
)
from mainspring.reproduce.figures import chosen, make
from mainspring.reproduce.rows import Row, fitted
from sim.answers import Answers

SHARED = Path(__file__).parents[5] / "shared"
PROFILES = SHARED / "data/profiles"

needs_profiles = pytest.mark.skipif(
    not (PROFILES / "parvagpu").is_dir(), reason=f"needs ParvaGPU's and DISB's files in {PROFILES}"
)


def by_quantity(rows: list[Row], part: str) -> Row:
    (row,) = [row for row in rows if part in row.quantity]
    return row


def drawn(module, results, folder):
    files = module.draw(results, full=False).save(folder / "picture")
    assert [file.suffix for file in files] == [".png", ".svg"]


def explained(rows):
    """What misses says why."""
    for row in rows:
        assert bool(row.cause) == row.missed, row


def test_all_means_all_and_the_message_names_clippers_figures():
    assert chosen("all", clipper.FIGURES, ()) == clipper.FIGURES
    with pytest.raises(ScenarioError, match=r"figure fig2: there is no such figure; expected fig"):
        chosen("fig2", clipper.FIGURES, ())


@pytest.mark.parametrize("name", clipper.FIGURES)
def test_the_points_of_a_figure_can_travel_and_full_is_more(name):
    module = importlib.import_module(f"{clipper.__name__}.{name}")
    short, full = (module.points(full=full) for full in (False, True))
    assert pickle.loads(pickle.dumps(full)) == full
    assert short != full or name == "sharing"  # which reads data, and has no length
    assert module.cost(full=True)
    assert module.rows([]) == []


def test_a_fitted_row_says_so():
    row = fitted("f", "q", 2.0, "published", 2.0)
    assert (row.verdict, row.difference, row.tolerance) == ("fitted", 0.0, "")


# ---- containers


def test_a_line_through_two_points():
    assert line_through(1, 10.0, 5, 18.0) == Line(8.0, 2.0)
    assert Line(8.0, 2.0).at_ns(3) == 14_000
    assert Line(-8.0, 2.0).at_ns(1) == 0


def test_noise_has_the_mean_of_the_line_and_the_tail_that_was_asked_for():
    durations = Container("c", Line(0.0, 1000.0), Line(0.0, 0.0), tail=1.3).durations(10)
    assert durations.mean_ns() == pytest.approx(10e6, rel=0.005)
    assert durations.estimate_ns(0.99) == pytest.approx(13e6, rel=1e-6)
    assert np.exp(2.3263 * lognormal_sigma(1.3) - lognormal_sigma(1.3) ** 2 / 2) == pytest.approx(
        1.3, rel=1e-4
    )


def test_a_container_without_noise_serves_a_batch_a_cycle():
    """Batches of 4 take 4 + 1 ms, and 2 ms idle: 4 / 7 ms."""
    log, _ = run_containers(
        "clipper-nsdi-aimd",
        {"max_batch": 4, "wait_ms": 0.0, "defaults": False},
        [Container("c", Line(1000.0, 1000.0), Line(0.0, 500.0))],
        clients=[20],
        length_s=1.0,
        largest=4,
    )
    found = served(log, 0, 0.1, 1.0)
    assert found.rate_rps == pytest.approx(4 / 7e-3)
    assert (found.mean_batch, found.mean_ms, found.p99_ms) == (4, 5, 5)


# ---- figures


def test_hits_multiply_the_throughput(tmp_path):
    results = [(point := cache.Point(hits, 0.2), cache.measure(point)) for hits in (0.0, 0.8)]
    rows = cache.rows(results)
    assert [row.verdict for row in rows if row.quantity.startswith("0% hits")] == ["fitted"]
    assert by_quantity(rows, "T0 / (1 - h)").verdict == "holds"
    drawn(cache, results, tmp_path)


def test_figure_11_latency_is_two_batches(tmp_path):
    point = fig11.Point(fig11.PYTHON, "ImageNet", 20)
    results = [(point, found := fig11.measure(point))]
    cycle_ms = sum(fig11.BREAKDOWN_MS[fig11.PYTHON, "ImageNet"])
    assert found.latency_ms == pytest.approx(2 * cycle_ms, rel=1e-3)
    assert found.served.rate_rps == pytest.approx(16e3 / cycle_ms, rel=1e-3)
    assert {row.verdict for row in fig11.rows(results)} == {"holds"}
    drawn(fig11, results, tmp_path)


def test_figure_8_a_model_that_fails_is_left(tmp_path):
    results = [(point := fig8.Point(0, 2, 2_000), fig8.measure(point))]
    found = results[0][1]
    before, during = found.chosen[3:5].mean(), found.chosen[8:10].mean()
    assert during < before
    assert found.static[-1][fig8.BEST] > 0.25
    assert len(fig8.rows(results)) == 9
    drawn(fig8, results, tmp_path)


def test_clipper_loses_nearly_everything_where_the_slo_is_tight(tmp_path):
    points = [clockwork.Point(s, 100, 2.0) for s in (clockwork.CLOCKWORK, clockwork.CLIPPER)]
    results = [(point, clockwork.measure(point)) for point in points]
    rows = clockwork.rows(results)
    assert by_quantity(rows, "over Clipper 0.3's").verdict == "shape holds"
    assert by_quantity(rows, "share of defaults").obtained > 0.5
    drawn(clockwork, results, tmp_path)


def test_clipper_keeps_up_where_clients_wait_less_than_the_slo(tmp_path):
    """60 clients in place of 240 wait 60 ms for batches of one, at an SLO of 100 ms."""
    points = [
        clockwork.Point(s, 100, 2.0, clockwork.FEW)
        for s in (clockwork.CLOCKWORK, clockwork.CLIPPER)
    ]
    results = [(point, clockwork.measure(point)) for point in points]
    rows = clockwork.rows(results)
    assert by_quantity(rows, "a client waits (ms)").obtained == pytest.approx(60, rel=0.1)
    assert by_quantity(rows, "over Clipper 0.3's").obtained < 1
    assert by_quantity(rows, "share of defaults").obtained < 0.1
    drawn(clockwork, results, tmp_path)


def test_clippers_defaults_are_no_goodput():
    """All answers of the tight run are in time, with their defaults; hardly any is a prediction."""
    found = clockwork.measure(clockwork.Point(clockwork.CLIPPER, 25, 2.0))
    assert found.goodput_rps < 100


def test_figure_10_feedback_helps_where_models_differ_and_hurts_where_they_do_not(tmp_path):
    """Dialects alone are 4 points apart; a vote of eight that err apart beats any one of them."""
    points = [fig10.Point(0.06, 0.9, 0.01, 24, 100), fig10.Point(0.0, 0.5, 0.01, 24, 100)]
    results = [(point, fig10.measure(point)) for point in points]
    (_, differ), (_, alike) = results
    assert differ.curve[7] < differ.curve[0] - 0.02
    assert alike.curve[7] > alike.curve[0] + 0.02
    assert alike.own == pytest.approx(fig10.OWN, abs=0.03)
    rows = fig10.rows(results)
    least = by_quantity(rows, "after 8 of 8 sentences: the least of 2")
    most = by_quantity(rows, "after 8 of 8 sentences: the most of 2")
    assert (least.obtained, most.obtained) == (differ.curve[7], alike.curve[7])
    assert {row.verdict for row in rows} == {"fitted", "no reference"}
    drawn(fig10, results, tmp_path)


# ---- ensembles


def test_members_agree_as_often_as_counted_by_hand():
    said = np.array([[1, 1, 1, 1, 1], [1, 2, 1, 1, 1], [1, 2, 2, 3, 4], [0, 1, 2, 3, 4]])
    assert agreement.agree(said).tolist() == [5, 4, 2, 1]


def test_a_vote_goes_to_the_heavier_side():
    said = np.array([[1, 2, 2], [3, 3, 1]])
    assert agreement.vote(said, np.array([3.0, 1.0, 1.0])).tolist() == [1, 3]
    assert agreement.vote(said, np.array([1.0, 1.0, 1.0])).tolist() == [2, 3]


def test_weights_are_learned_from_who_is_right():
    answers = Answers([0.05, 0.4, 0.4], 10, 0.3, 0.2, 3)
    weights = agreement.learn(*answers.block(0, 4000), 10)
    assert weights[0] > weights[1] + 1
    assert weights[1] == pytest.approx(weights[2], abs=0.4)


def test_figure_7_the_fit_gives_back_what_it_was_given(tmp_path):
    results = [(point := fig7.Point("CIFAR-10", 20_000), fig7.measure(point))]
    rows = fig7.rows(results)
    fits = [row for row in rows if row.verdict == "fitted"]
    assert len(fits) == 7
    assert max(abs(row.obtained - row.reference) for row in fits) < 0.012
    explained(fig7.rows(results))
    drawn(fig7, results, tmp_path)


# ---- the containers of MNIST models


def test_one_gap_and_one_tail_explain_the_cycles_of_five_containers():
    gap_us, tail = mnist.common()
    assert gap_us == pytest.approx(9.19, abs=0.01)
    assert tail == pytest.approx(1.242, abs=0.001)
    for name, run in mnist.QUANTILE.items():
        if name not in mnist.NOT_IN_THE_FIT:
            said_us = gap_us + run.p99_us / run.mean_batch / tail
            assert said_us == pytest.approx(1e6 / run.rate_rps, rel=0.03)


@pytest.mark.parametrize("name", list(mnist.UNBATCHED))
def test_a_containers_cycles_are_the_two_published_ones(name):
    made = mnist.container(name)
    for run in (mnist.UNBATCHED[name], mnist.QUANTILE[name]):
        size = run.mean_batch
        cycle_us = made.latency.at(size) + made.gap.at(size)
        assert cycle_us == pytest.approx(1e6 * size / run.rate_rps)
        assert made.latency.at(size) > 0


def test_figure_3_the_line_is_the_containers(tmp_path):
    points = [fig3.Point(name, 300) for name in (mnist.LINEAR, mnist.KERNEL)]
    results = [(point, fig3.measure(point)) for point in points]
    spark = mnist.container(mnist.LINEAR)
    expected = spark.tail * spark.latency.per_query_us
    assert results[0][1].slope_us == pytest.approx(expected, rel=0.05)
    assert results[0][1].batches[:4].tolist() == [3, 5, 7, 9]  # by 2, and without the first
    assert by_quantity(fig3.rows(results), "Linear SVM SKLearn: p99 line (us").verdict == (
        "shape holds"
    )
    explained(fig3.rows(results))
    drawn(fig3, results, tmp_path)


def test_figure_4_aimd_stays_below_the_slo(tmp_path):
    points = [
        fig4.Point(mnist.FOREST, "AIMD", 6.0, 3.0),
        fig4.Point(mnist.FOREST, "no batching", 0.2, 1.0),
        fig4.Point(mnist.KERNEL, "quantile regression", 15.0, 5.0),
    ]
    results = [(point, fig4.measure(point)) for point in points]
    aimd, alone, _ = (found for _, found in results)
    assert 17 < aimd.p99_ms < 21.5
    assert alone.rate_rps == pytest.approx(317, rel=0.05)
    rows = fig4.rows(results)
    assert by_quantity(rows, "AIMD: p99").verdict == "shape holds"
    assert by_quantity(rows, "no batching: throughput").verdict == "fitted"
    explained(fig4.rows(results))
    drawn(fig4, results, tmp_path)


def test_figure_5_a_batch_goes_when_its_first_query_has_waited(tmp_path):
    points = [fig5.Point(fig5.SKLEARN, wait_ms, 1.0) for wait_ms in (0, 2)]
    results = [(point, fig5.measure(point)) for point in points]
    none, two = (found for _, found in results)
    # One batch every 2 ms and the time to the next query, here 54 us.
    assert two.mean_batch == pytest.approx(1 + fig5.OFFERED_RPS * 2e-3, rel=0.02)
    assert two.rate_rps == pytest.approx(none.rate_rps, rel=0.02)
    rows = fig5.rows(results)
    assert by_quantity(rows, "2 ms: mean batch").verdict == "holds"
    assert by_quantity(rows, "throughput with 2 ms over none").verdict == "shape fails"
    explained(fig5.rows(results))
    drawn(fig5, results, tmp_path)


def test_figure_6_a_remote_replica_alone_does_not_fill_the_link(tmp_path):
    results = [(point := fig6.Point(1, 2, 1.0), fig6.measure(point))]
    found = results[0][1]
    encode_s = 512 * mnist.common().gap_per_query_us / 1e6
    send_s = 512 * fig6.QUERY_BITS / (1e9 * fig6.PAYLOAD_SHARE)
    assert found.remote_rps == pytest.approx(512 / (encode_s + send_s), rel=0.02)
    assert found.local_rps == pytest.approx(fig6.PUBLISHED_RPS[10][0], rel=0.02)
    assert by_quantity(fig6.rows(results), "2 replicas: throughput").verdict == "holds"
    drawn(fig6, results, tmp_path)


@needs_profiles
def test_sharing_is_fitted_to_its_defaults_and_predicts_what_was_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr(sharing, "DATA", PROFILES)
    results = [(point, sharing.measure(point)) for point in sharing.points(full=False)]
    rows = sharing.rows(results)
    assert by_quantity(rows, "contention").obtained == pytest.approx(0.92, abs=0.005)
    assert by_quantity(rows, "resnet50: geometric mean").verdict == "holds"
    assert by_quantity(rows, "trt.D, left out").verdict == "holds"
    drawn(sharing, results, tmp_path)


def test_slow_downs_are_read_of_the_whole_gpu(tmp_path):
    file = tmp_path / "m.csv"
    file.write_text(
        "Mig instance,Batch size,Workload Number,Throughput,Latency\n"
        "7,1,1,100,0.01\n7,1,2,80,0.0125\n7,2,1,200,0.01\n7,2,2,0,0\n4,1,2,10,0.1\n"
    )
    asked, slow = sharing.slow_downs(file)
    assert asked.tolist() == [1.0]  # two that keep half of it busy each
    assert slow.tolist() == [1.25]


def test_without_the_data_sharing_is_left_out_with_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(sharing, "DATA", tmp_path)
    (made,) = make(["sharing"], tmp_path / "out", full=False, package=clipper.__name__)
    assert (made.rows, made.pictures, made.complete) == ([], [], True)
    assert made.cost.startswith("left out: it needs the measurements of ParvaGPU and DISB")


def test_figure_9_a_deadline_bounds_the_tail_and_blocking_does_not(tmp_path):
    results = [
        (point := fig9.Point(2, mitigated, 0, 2.0), fig9.measure(point))
        for mitigated in (True, False)
    ]
    rows = fig9.rows(results)
    assert by_quantity(rows, "mitigated: p99").obtained <= fig9.RENDER_MS
    assert by_quantity(rows, "mitigated: missing predictions").verdict == "holds"
    assert by_quantity(rows, "blocking: mean").verdict == "fitted"
    blocking = results[1][1]
    assert blocking.missing == 0
    assert blocking.p99_ms > fig9.SLO_MS  # while AIMD grows
    explained(fig9.rows(results))
    drawn(fig9, results, tmp_path)


def test_figure_9_what_is_known_of_a_size_is_the_mean_of_its_trials(tmp_path):
    def found(mean_ms, p99_ms):
        return fig9.Measured(mean_ms, p99_ms, 0.0, 0.0)

    results = [
        (fig9.Point(4, False, 0), found(10.0, 80.0)),
        (fig9.Point(4, False, 1), found(20.0, 90.0)),
        (fig9.Point(12, False, 0), found(40.0, 128.0)),
        (fig9.Point(12, True, 0), fig9.Measured(17.0, 17.0, 0.41, 0.0)),
    ]
    rows = fig9.rows(results)
    assert by_quantity(rows, "4 members, blocking: mean").obtained == 15.0
    p99 = by_quantity(rows, "4 members, blocking: p99")
    assert (p99.obtained, p99.verdict) == (85.0, "shape fails")
    assert by_quantity(rows, "12 members, blocking: p99").verdict == "shape holds"
    drawn(fig9, results, tmp_path)


def test_figure_9_the_scale_is_where_the_published_mean_is(monkeypatch):
    def mean_ms(scale):
        monkeypatch.setitem(fig9.SCALES, 2, scale)
        return fig9.measure(fig9.Point(2, False, 0)).mean_ms

    below, at, above = (mean_ms(part * 0.467) for part in (0.97, 1.0, 1.03))
    assert below < fig9.PUBLISHED[2].blocking_mean < above
    assert at == pytest.approx(fig9.PUBLISHED[2].blocking_mean, rel=0.02)


def test_figure_9_the_forest_is_one_query_of_figure_4_and_the_line_of_figure_3():
    """Published: a batch of one every 1e6 / 317 us; 99 of 100 below 11,069 + 20.2 a query us."""
    one, scale = fig9.forest(2), fig9.SCALES[2]
    assert one.latency.at(1) == pytest.approx(scale * 1e6 / 317, rel=0.02)
    assert one.tail * one.latency.at(2) == pytest.approx(scale * (11_069 + 2 * 20.2))
    assert one.tail * one.latency.at(400) == pytest.approx(scale * (11_069 + 400 * 20.2))


def test_figure_9_is_not_a_serial_front_end():
    """16 members ask for 240,000 a second where 177,000 pass: 0.356 s of delay more each second."""
    assert fig9.front_end(10) == (0.0, 0.0)  # 150,000
    mean_ms, missing = fig9.front_end(16, length_s=2.0)
    assert mean_ms == pytest.approx(1e3 * (240 / 177 - 1))
    assert missing == pytest.approx(1 - 0.017 / (240 / 177 - 1) / 2)
    published = fig9.PUBLISHED[16]
    assert fig9.front_end(16)[0] > 10 * published.blocking_mean
    assert 100 * fig9.front_end(12)[1] > 2 * fig9.PUBLISHED[12].missing
