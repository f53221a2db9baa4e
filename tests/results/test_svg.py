"""Figures that are put into a page: colours of the page, names of their own, no way out of it."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from results import plots
from results.breakdown import breakdown
from results.breakdown_plots import by_client, by_model
from results.plots import styled
from results.svg import VARIABLES, inline
from scheduler.records import Outcome
from tests.results.helpers import MS, SECOND, request, writer


@pytest.fixture(name="run")
def one_run(tmp_path):
    """Two models and two clients; the second of each misses half."""
    two = {"models": ["a", "b"], "pages_of_model": [1, 1]}
    with writer(tmp_path / "run", end_ns=4 * SECOND, **two) as sink:
        for i in range(1_000):
            at, which = i * 4 * MS, i % 2
            fate = {"outcome": Outcome.REJECTED} if i % 4 == 1 else {}
            row = request(i, at=at, end=at + 5 * MS + i, model=which, client=which, **fate)
            sink.request(row)
        sink.close(arrivals=1_000)
    return tmp_path / "run"


def test_what_is_black_grey_or_white_is_left_to_the_page(run):
    text = inline(plots.over_time({"run": run}), "fates", "a")
    assert "var(--ink)" in text
    assert "var(--fate-in)" in text
    assert not re.findall(r"#[0-9a-f]{6}", text)
    assert 'style="fill: #ffffff' not in text  # transparent


def test_every_fate_and_every_run_has_a_variable_of_its_own():
    assert len(set(VARIABLES.values())) == len(plots.FATES) + len(plots.COLOURS) + 4


def test_it_is_whole_and_refers_to_nothing_outside_itself(run):
    text = inline(plots.latency_cdf({"run": run}), "latency", "b")
    root = ET.fromstring(text)
    assert root.attrib["aria-label"] == "latency"
    assert "http" not in text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids)) > 0
    assert {*re.findall(r"url\(#([^)]+)\)", text), *re.findall(r'href="#([^"]+)"', text)} == {*ids}


def test_two_figures_on_a_page_share_no_name(run):
    picture = plots.latency_cdf({"run": run})
    first, second = (
        set(re.findall(r' id="([^"]+)"', inline(picture, "", key))) for key in ("a", "b")
    )
    assert first
    assert not first & second


def test_the_same_figure_gives_the_same_text(run):
    assert inline(plots.over_time({"run": run}), "", "a") == inline(
        plots.over_time({"run": run}), "", "a"
    )


def test_a_name_can_do_nothing():
    with styled((4, 3), "") as figure:
        figure.text(0.1, 0.1, "<script>alert(1)</script> $\\frac{1}{2}$")
    text = inline(figure, '"><script>', "a")
    assert "<script" not in text
    assert "$\\frac{1}{2}$" in text
    ET.fromstring(text)


def test_each_model_is_a_dot_and_each_client_a_line(run):
    parts = {"run": breakdown(run)}
    dots = by_model(parts)
    assert dots is not None
    (points,) = dots.axes[0].get_lines()
    assert sorted(np.asarray(points.get_ydata()).tolist()) == [0.5, 1.0]
    lines = by_client(parts)
    assert lines is not None
    drawn = {line.get_label(): np.asarray(line.get_ydata()) for line in lines.axes[0].get_lines()}
    assert (drawn["client 0"] == 1).all()
    assert drawn["client 1"].mean() == pytest.approx(0.5)


def test_models_that_are_close_to_all_in_time_are_not_pressed_to_the_top(tmp_path):
    two = {"models": ["a", "b"], "pages_of_model": [1, 1]}
    with writer(tmp_path / "run", **two) as sink:
        for i in range(200):
            fate = {"outcome": Outcome.REJECTED} if i == 1 else {}
            sink.request(request(i, model=i % 2, at=i * MS, end=i * MS + 1, **fate))
        sink.close(arrivals=200)
    dots = by_model({"run": breakdown(tmp_path / "run")})
    assert dots is not None
    low, high = dots.axes[0].get_ylim()
    assert 0.98 < low < 0.99
    assert high > 1


def test_one_client_or_one_model_is_not_drawn(tmp_path):
    with writer(tmp_path / "run") as sink:
        sink.request(request(0))
        sink.close(arrivals=1)
    parts = {"run": breakdown(tmp_path / "run")}
    assert by_model(parts) is None
    assert by_client(parts) is None
