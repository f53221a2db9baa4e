"""The figures are drawn, say what they must, and are the same for the same run."""

import itertools

import matplotlib as mpl
import numpy as np
import pytest

from results import ResultsError, plots
from scheduler.records import Outcome
from tests.results.helpers import MS, SECOND, action, request, writer


@pytest.fixture(name="runs")
def two_runs(tmp_path):
    """One answers everything; one drops three of ten."""
    found = {}
    for name, dropped in (("all", 0), ("some", 3)):
        found[name] = tmp_path / name
        with writer(found[name], end_ns=4 * SECOND, pages_of_gpu=[2] * 10, name=name) as sink:
            for i in range(1_000):
                at = i * 4 * MS
                fate = {"outcome": Outcome.REJECTED} if i % 10 < dropped else {}
                sink.request(request(i, at=at, end=at + 5 * MS + i * 1000, **fate))
                sink.action(action(i, gpu=i % 10, start=at, end=at + 3 * MS, batch=1 + i % 4))
            sink.action(action(1_000, "load", start=0, end=9 * MS))
            sink.action(action(1_001, "unload", start=40 * MS, end=40 * MS))
            sink.close(arrivals=1_000)
    return found


def test_every_figure_is_drawn_as_png_and_svg(runs, tmp_path):
    where = tmp_path / "figures" / "a"
    files = plots.latency_cdf(runs).save(where)
    assert [file.name for file in files] == ["a.png", "a.svg"]
    assert files[0].read_bytes()[:4] == b"\x89PNG"
    assert b"<svg" in files[1].read_bytes()
    assert plots.comparison(runs).save(where.with_suffix(".svg")) == [where.with_suffix(".svg")]
    assert plots.gpu_timeline(runs["all"], start_ns=0, length_ns=100 * MS).save(where)


def test_the_same_run_gives_the_same_bytes(runs, tmp_path):
    a, b = (plots.comparison(runs).save(tmp_path / f"{name}.svg")[0] for name in "ab")
    assert a.read_bytes() == b.read_bytes()


def test_a_curve_ends_where_fewer_than_ten_requests_lie_beyond():
    latency_ms, counts = np.arange(1.0, 1001.0), np.arange(1, 1001)
    x, nines = plots._curve(latency_ms, counts, offered=1_000)
    assert (x[-1], nines[-1]) == (990.0, pytest.approx(2.0))


def test_what_was_not_answered_keeps_a_curve_down():
    x, nines = plots._curve(np.arange(1.0, 701.0), np.arange(1, 701), offered=1_000)
    assert x[-1] == 700.0
    assert 1 - 10 ** -nines[-1] == pytest.approx(0.70)


def test_a_run_without_answers_can_be_drawn(tmp_path):
    with writer(tmp_path / "run") as sink:
        sink.request(request(0, outcome=Outcome.REJECTED))
        sink.close(arrivals=1)
    runs = {"none": tmp_path / "run"}
    plots.latency_cdf(runs).save(tmp_path / "a.png")
    plots.comparison(runs).save(tmp_path / "b.png")
    plots.gpu_timeline(tmp_path / "run", start_ns=0, length_ns=MS).save(tmp_path / "c.png")


def test_a_figure_that_cannot_be_drawn_says_why(runs, tmp_path):
    with pytest.raises(ResultsError, match="9 runs cannot be told apart"):
        plots.latency_cdf({str(i): runs["all"] for i in range(9)})
    with pytest.raises(ResultsError, match=r"cannot draw \.pdf"):
        plots.latency_cdf(runs).save(tmp_path / "a.pdf")
    with pytest.raises(ResultsError, match="not the directory of a run"):
        plots.latency_cdf({"none": tmp_path})


@pytest.mark.parametrize("longest_ms", [60, 500, 20_000, 1_000_000])
def test_labels_of_the_latency_axis_do_not_touch(longest_ms):
    """A sample of 1 ms and one of so many: 10 ms to 20 s once gave "1,0002,000"."""
    with plots.styled((10.5, 4.2), "") as figure:
        axes = figure.add_subplot(1, 2, 2)
        plots.log_axis(axes, 1 / 1.3, longest_ms * 1.3)
        figure.canvas.draw()
    low, high = axes.get_xlim()
    boxes = [
        label.get_window_extent()
        for at, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        if low <= at <= high
    ]
    assert len(boxes) >= 3
    for left, right in itertools.pairwise(boxes):
        assert left.x1 + 5 < right.x0


def test_an_slo_near_zero_lies_over_no_label_and_thousands_are_told_apart(tmp_path):
    """FIFO under overload: the least latency is 50 times the SLO, and most of it a line's width
    beside zero."""
    with writer(tmp_path / "run", end_ns=40 * SECOND) as sink:
        for i in range(1_000):
            at = i * 4 * MS
            sink.request(request(i, at=at, end=at + 5 * SECOND + i * 17 * MS))
        sink.close(arrivals=1_000)
    figure = plots.latency_cdf({"fifo": tmp_path / "run"})
    with mpl.rc_context(plots.STYLE):
        figure.canvas.draw()
    (axes,) = figure.axes
    (slo,) = (text for text in axes.texts if text.get_text().startswith("SLO"))
    labels = [*axes.get_yticklabels(), *axes.get_xticklabels()]
    assert "10,000" in [label.get_text() for label in labels]
    assert not any(slo.get_window_extent().overlaps(label.get_window_extent()) for label in labels)
