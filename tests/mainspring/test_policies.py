"""A policy of a user's own, from a file."""

from pathlib import Path

import pytest

from mainspring import load_scenario
from mainspring.cli import main
from mainspring.policies import find_policy
from mainspring.scenario import ScenarioError
from scheduler.policies import POLICIES

MINE = """\
import msgspec
from scheduler.policies.fifo import Fifo

class Params(msgspec.Struct, forbid_unknown_fields=True):
    patience_ms: float = 3.0

class Mine(Fifo):
    Params = Params

class Half:
    def on_start(self, *event): ...
    def on_request(self, *event): ...
"""


def test_our_own_are_found_by_name():
    for name, policy in POLICIES.items():
        assert find_policy(name) is policy


def test_a_class_is_found_in_a_file(write):
    scenario = load_scenario(write())
    Path("mine.py").write_text(MINE)
    (choice,) = scenario.choose(["mine.py:Mine"])
    assert choice.label == "Mine"
    assert choice.name == f"{Path('mine.py').absolute()}:Mine"
    assert choice.params.patience_ms == 3.0
    assert type(choice.build()).__name__ == "Mine"


def test_how_a_scenario_gives_one_of_ones_own_parameters_is_said(write, capsys):
    """Who tries it as for ours learns where the file's name goes."""
    Path("mine.py").write_text(MINE)
    with pytest.raises(
        ScenarioError, match=r'expected a label .*; a policy in a file gets name = "'
    ):
        load_scenario(write(("[policy.fifo]", '[policy."mine.py:Mine"]')))
    with pytest.raises(
        ScenarioError, match=r"as my_policy.py:MyPolicy\), in a key name of this tab"
    ):
        load_scenario(write(("[policy.fifo]", "[policy.mine]")))
    with pytest.raises(SystemExit):
        main(["policies", "mine.py:Mine"])
    assert '[policy.Mine] with name = "mine.py:Mine"' in capsys.readouterr().out


def test_a_scenario_may_give_it_parameters(write):
    scenario_file = write(
        ("[policy.fifo]", '[policy.mine]\nname = "mine.py:Mine"\npatience_ms = 8')
    )
    Path("mine.py").write_text(MINE)
    scenario = load_scenario(scenario_file)
    assert scenario.policies[1].params.patience_ms == 8
    assert scenario.choose(["mine"]) == scenario.policies[1:]


MISTAKES = {
    "mine.py": "mine.py: which class of it? expected mine.py:Mine",
    "nothing.py": "nothing.py: no such file; expected a Python file with a policy in it",
    "nothing.py:Mine": "nothing.py: no such file; expected a Python file with a policy in it",
    "mine.py:Mien": "mine.py: no class Mien; did you mean Mine?",
    "mine.py:Half": "mine.py:Half is not a policy: it has no on_result, on_wake",
    "syntax.py:Mine": "syntax.py, line 2: SyntaxError: invalid syntax",
    "name.py:Mine": "name.py, line 3: NameError: name 'nothing' is not defined",
    "bare.py:Bare": "bare.py:Bare is not a policy: it has no Params; expected a "
    "class Params(msgspec.Struct, forbid_unknown_fields=True)",
    "mine.txt:Mine": "mine.txt: not a Python file; expected a name that ends in .py",
    "lifo": "no policy lifo; did you mean fifo? "
    "(one of your own is given as my_policy.py:MyPolicy)",
}


@pytest.mark.parametrize(("ref", "message"), MISTAKES.items())
def test_what_is_no_policy_is_named_in_one_line(ref, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    Path("mine.txt").write_text(MINE)
    Path("syntax.py").write_text("x = 1\ndef def\n")
    Path("name.py").write_text("x = 1\n\nnothing\n")
    Path("bare.py").write_text(MINE + "\nclass Bare(Fifo):\n    Params = None\n")
    with pytest.raises(ScenarioError) as caught:
        find_policy(ref)
    assert str(caught.value) == message


def test_two_policies_of_one_label_are_an_error(write):
    scenario = load_scenario(write())
    with pytest.raises(ScenarioError, match="two policies have the label fifo"):
        scenario.choose(["fifo", "fifo"])
