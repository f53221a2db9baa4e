"""What is said about a policy and its parameters."""

from pathlib import Path

import pytest

from mainspring.parameters import as_list, as_page, describe
from mainspring.scenario import ScenarioError
from scheduler.policies import POLICIES

MINE = """\
from typing import Annotated, Literal
import msgspec
from msgspec import Meta
from scheduler.policies.fifo import Fifo

class Params(msgspec.Struct, kw_only=True):
    patience_ms: Annotated[
        float,
        Meta(gt=0, le=1e6, description="how long", extra={"unit": "ms", "source": "a guess"}),
    ] = 3.0
    order: Literal["up", "down"] = "up"
    limit: int | None = None
    sizes: list[int] = []
    weight: float

class Mine(Fifo):
    \"\"\"Mine: it waits.

    And then?
    \"\"\"
    Params = Params
"""


@pytest.fixture(name="mine")
def described(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    return describe("mine.py:Mine")


def test_a_policy_of_ones_own_is_described_from_its_class(mine):
    assert (mine.name, mine.about, mine.more) == ("mine.py:Mine", "Mine: it waits.", "And then?")
    patience, order, limit, sizes, weight = mine.parameters
    assert (patience.default, patience.unit, patience.source) == (3.0, "ms", "a guess")
    assert (patience.above, patience.at_least, patience.at_most) == (0, None, 1e6)
    assert (order.default, order.choices) == ("up", ["down", "up"])
    assert (limit.type, limit.default, limit.required) == ("whole number or nothing", None, False)
    assert (sizes.type, sizes.default) == ("list of whole number", [])
    assert (weight.required, weight.description, weight.source) == (True, None, None)


def test_its_page_has_a_line_for_each(mine):
    page = as_page(mine)
    assert 'Parameters, to be set in a table [policy.Mine] with name = "mine.py:Mine":' in page
    assert "  patience_ms = 3.0  (ms, number, above 0, at most 1,000,000)\n" in page
    assert "      how long\n      Source: a guess\n" in page
    assert "  limit = none  (whole number or nothing)\n" in page
    assert "  weight = must be given  (number)\n" in page


def test_our_own_are_listed_with_what_they_say_of_themselves():
    lines = as_list([describe(name) for name in POLICIES]).splitlines()
    assert [line.split()[0] for line in lines] == list(POLICIES)
    assert "First come, first served" in lines[list(POLICIES).index("fifo")]
    assert "It has no parameters." in as_page(describe("fifo"))


@pytest.mark.parametrize("name", POLICIES)
def test_every_parameter_of_ours_says_what_it_is_and_where_its_default_is_from(name):
    for parameter in describe(name).parameters:
        assert parameter.description, parameter.name
        assert parameter.source, parameter.name
        assert not parameter.required, parameter.name
        if parameter.type in ("number", "whole number"):
            assert parameter.at_most is not None, parameter.name
        if parameter.name.endswith(("_ms", "_us")):
            assert parameter.unit == parameter.name[-2:]


def test_what_is_no_policy_is_an_error():
    with pytest.raises(ScenarioError, match="no policy clokwork; did you mean clockwork"):
        describe("clokwork")
