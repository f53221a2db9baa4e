"""Scenario files: what they say, and what is said about mistakes in them."""

from pathlib import Path

import msgspec
import pytest

from mainspring import build_scenario, load_scenario
from mainspring.scenario import ScenarioError


def test_copies_are_numbered_and_a_single_one_is_not(write):
    scenario = load_scenario(write())
    assert [model.name for model in scenario.models] == [
        "resnet50_v2.0",
        "resnet50_v2.1",
        "resnet50_v2.2",
    ]

    single = load_scenario(write(("copies = 3", "copies = 1")))
    assert [model.name for model in single.models] == ["resnet50_v2"]


def test_a_models_slo_goes_before_the_scenarios(write):
    own = write(("copies = 3", "copies = 3\nslo_ms = 0.5"))
    assert load_scenario(own).models[0].slo_ns == 500_000
    assert load_scenario(write()).models[0].slo_ns == 100_000_000
    assert load_scenario(write(("slo_ms = 100.0\n", ""))).models[0].slo_ns is None


def test_whole_numbers_may_be_written_as_floats(write):
    scenario = load_scenario(write(("copies = 3", "copies = 3.0"), ("pages = 64", "pages = 2e2")))
    assert len(scenario.models) == 3
    assert scenario.spec.cluster.pages == 200


def test_the_label_names_the_policy_unless_name_does(write):
    scenario = load_scenario(
        write(("[policy.fifo]", '[policy.mine]\nname = "clockwork"\nbuffer_ms = 7.5'))
    )
    clockwork, mine = scenario.policies
    assert (mine.label, mine.name) == ("mine", "clockwork")
    assert (clockwork.params.buffer_ms, mine.params.buffer_ms) == (5.0, 7.5)


MISTAKES = {
    "TOML syntax": (
        ("seed = 1", "seed = "),
        "small.toml, line 2: invalid value",
    ),
    "a misspelled key": (
        ("rate_rps", "rate_rp"),
        "small.toml, line 17: workload.0.rate_rp: unknown key; did you mean rate_rps?",
    ),
    "a misspelled key at the top": (
        ("warmup_s", "warmup"),
        "small.toml, line 4: warmup: unknown key; did you mean warmup_s?",
    ),
    "a misspelled delay": (
        ("pages = 64", "pages = 64\n[cluster.delays_us]\npol = 3"),
        "small.toml, line 11: cluster.delays_us.pol: unknown key; did you mean poll?",
    ),
    "a delay that is drawn from nothing": (
        ("pages = 64", "pages = 64\n[cluster.delays_us]\nwake = []"),
        "small.toml, line 11: cluster.delays_us.wake",
    ),
    "a delay below 0 among others": (
        ("pages = 64", "pages = 64\n[cluster.delays_us]\nwake = [1, -2.0]"),
        "small.toml, line 11: cluster.delays_us.wake",
    ),
    "two things that spread the same durations": (
        ("pages = 64", 'pages = 64\nnoise = "v100"\n[cluster.delays_us]\noverrun = [1, 2]'),
        "small.toml, line 10: cluster.noise: does not go with cluster.delays_us.overrun",
    ),
    "a misspelled parameter of a policy": (
        ("[policy.clockwork]", "[policy.clockwork]\nbufer_ms = 3"),
        "small.toml, line 20: policy.clockwork.bufer_ms: unknown key; did you mean buffer_ms?",
    ),
    "a key that resembles none": (
        ("copies = 3", "colour = 3"),
        "small.toml, line 13: models.0.colour: unknown key; "
        "expected one of profile, copies, model, slo_ms",
    ),
    "a missing key": (
        ('profile = "clockwork_v100/resnet50_v2"\n', ""),
        "small.toml, line 11: models.0: missing key profile",
    ),
    "text for a number": (
        ("duration_s = 2.0", 'duration_s = "2 s"'),
        'small.toml, line 3: duration_s = "2 s"; expected a number',
    ),
    "a negative duration": (
        ("duration_s = 2.0", "duration_s = -2.0"),
        "small.toml, line 3: duration_s = -2.0; expected a number > 0",
    ),
    "an infinite SLO": (
        ("slo_ms = 100.0", "slo_ms = inf"),
        "small.toml, line 5: slo_ms = inf; expected a finite number",
    ),
    "no number": (
        ("rate_rps = 200", "rate_rps = nan"),
        "small.toml, line 17: workload.0.rate_rps = nan; expected a finite number",
    ),
    "half a GPU": (
        ("gpus = 1", "gpus = 1.5"),
        "small.toml, line 8: cluster.gpus = 1.5; expected a whole number",
    ),
    "no GPU": (
        ("gpus = 1", "gpus = 0"),
        "small.toml, line 8: cluster.gpus = 0; expected a whole number >= 1",
    ),
    "a rate of zero": (
        ("rate_rps = 200", "rate_rps = 0"),
        "small.toml, line 17: workload.0.rate_rps = 0.0; "
        "expected requests a second over all models, finite and above 0",
    ),
    "an unknown kind of workload": (
        ('kind = "poisson"', 'kind = "poison"'),
        'small.toml, line 16: workload.0.kind = "poison"; did you mean poisson?',
    ),
    "a warm-up as long as the run": (
        ("warmup_s = 0.5", "warmup_s = 2.0"),
        "small.toml, line 4: warmup_s = 2.0; expected less than duration_s, 2.0",
    ),
    "an unknown profile": (
        ("clockwork_v100/resnet50_v2", "clockwork_v100/resnet50"),
        'small.toml, line 12: models.0.profile = "clockwork_v100/resnet50"; '
        "no model resnet50 in clockwork_v100 (did you mean",
    ),
    "a model larger than a GPU": (
        ("pages = 64", "pages = 6"),
        "small.toml, line 12: models.0.profile: resnet50_v2 needs 7 pages, "
        "but a GPU has 6 (cluster.pages)",
    ),
    "two models of one name": (
        (
            "[[workload]]",
            '[[models]]\nprofile = "clockwork_docs/resnet50_v2"\ncopies = 2\n[[workload]]',
        ),
        "small.toml, line 16: models.1.profile: two models are called resnet50_v2.0; "
        "expected one name each",
    ),
    "a workload for no model": (
        ("rate_rps = 200", 'rate_rps = 200\nmodels = "bert*"'),
        'small.toml, line 18: workload.0.models = "bert*" matches no model',
    ),
    "an unknown policy": (
        ("[policy.fifo]", "[policy.lifo]"),
        "small.toml, line 20: policy.lifo: no policy lifo; did you mean fifo? "
        "(one of your own is given as my_policy.py:MyPolicy), in a key name of this table",
    ),
    "a policy that is no table": (
        ("[policy.clockwork]\n[policy.fifo]", "[policy]\nfifo = 3"),
        "small.toml, line 20: policy.fifo = 3; expected a table",
    ),
    "no models": (
        ('[[models]]\nprofile = "clockwork_v100/resnet50_v2"\ncopies = 3\n', ""),
        "small.toml: no models; add a table [[models]] with a profile",
    ),
    "no workload": (
        ('[[workload]]\nkind = "poisson"\nrate_rps = 200\n', ""),
        "small.toml: no workload; add a table [[workload]] with a kind",
    ),
}


@pytest.mark.parametrize(("change", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_named_with_its_place_and_the_way_out(write, change, message):
    with pytest.raises(ScenarioError) as caught:
        load_scenario(write(change))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_scenario_without_policies_says_so_when_it_is_to_run(write):
    scenario = load_scenario(write(("[policy.clockwork]\n[policy.fifo]\n", "")))
    with pytest.raises(ScenarioError, match="small has no policy; add a table such as"):
        scenario.choose([])
    assert [choice.label for choice in scenario.choose(["fifo"])] == ["fifo"]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ScenarioError, match=r"nothing.toml: No such file or directory"):
        load_scenario(tmp_path / "nothing.toml")


def test_an_override_sets_a_key_of_a_list_or_a_table_that_is_not_there(write):
    overrides = ["workload.0.rate_rps=800", "cluster.delays_us.poll=60", "name=other"]
    spec = load_scenario(write(), overrides).spec
    assert spec.workload[0].rate_rps == 800
    assert spec.cluster.delays_us.poll == 60
    assert spec.name == "other"


WRONG_OVERRIDES = {
    "sed=3": "--set sed=3: sed: unknown key; did you mean seed?",
    "workload.0.rate_rp=3": "--set workload.0.rate_rp=3: workload.0.rate_rp: unknown key; "
    "did you mean rate_rps?",
    "workload.1.rate_rps=3": "--set workload.1.rate_rps=3: 1 is not an index (have 0 to 0)",
    "seed.x=3": "--set seed.x=3: x lies inside 1, not a table",
    "seed": "--set seed: expected key=value, as in seed=2",
    "seed=two": '--set seed=two: seed = "two"; expected a whole number',
    "policy.fifo.speed=2": "--set policy.fifo.speed=2: policy.fifo.speed: unknown key; "
    "expected none",
}


@pytest.mark.parametrize(("override", "message"), WRONG_OVERRIDES.items())
def test_a_wrong_override_is_named_and_not_the_file(write, override, message):
    with pytest.raises(ScenarioError) as caught:
        load_scenario(write(), [override])
    assert str(caught.value) == message


def test_paths_start_from_the_scenario_and_those_of_overrides_from_here(write, tmp_path):
    trace = 'kind = "trace"\npath = "a.csv"\ntime_column = "t"\ntime_unit = "s"\nmodel_column = "m"'
    scenario = write(('kind = "poisson"\nrate_rps = 200', trace))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for folder in (tmp_path, elsewhere):
        (folder / "a.csv").write_text("t,m\n1.0,0\n")

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(elsewhere)
        plain = load_scenario(tmp_path / scenario)
        override = load_scenario(tmp_path / scenario, ["workload.0.path=a.csv"])

    assert plain.spec.workload[0].path == str(tmp_path / "a.csv")
    assert override.spec.workload[0].path == str(elsewhere / "a.csv")


def test_a_trace_that_is_not_there_is_an_error_before_the_run(write, tmp_path):
    trace = 'kind = "trace"\npath = "a.csv"\ntime_column = "t"\ntime_unit = "s"\nmodel_column = "m"'
    with pytest.raises(ScenarioError) as caught:
        load_scenario(write(('kind = "poisson"\nrate_rps = 200', trace)))
    path = tmp_path / "a.csv"
    assert str(caught.value) == f'small.toml, line 17: workload.0.path = "{path}"; no such file'


def test_what_is_written_down_is_complete_and_reads_back_the_same(write):
    scenario = load_scenario(write(), ["workload.0.rate_rps=300"])
    text = scenario.to_toml(scenario.policies)
    Path("again.toml").write_text(text)
    again = load_scenario("again.toml")

    assert again.spec.workload == scenario.spec.workload
    assert again.spec.inputs == scenario.spec.inputs
    assert again.models == scenario.models
    assert [choice.params for choice in again.policies] == [
        choice.params for choice in scenario.policies
    ]
    assert msgspec.toml.decode(text)["policy"]["clockwork"]["buffer_ms"] == 5.0
    assert "drain_s = 1.0  # default" in text
    assert "rate_rps = 300.0" in text


def test_an_input_that_has_changed_since_is_an_error(write):
    store = load_scenario(write()).spec.inputs["clockwork_v100"]
    with pytest.raises(ScenarioError) as caught:
        load_scenario(write(("[policy.fifo]", f'[inputs]\nclockwork_v100 = "{"0" * 64}"')))
    assert str(caught.value).startswith(
        "small.toml, line 21: inputs.clockwork_v100: it has changed since "
        f"(sha256 now {store[:12]}, then 000000000000)"
    )


def test_bug_cli_03_a_misspelled_setting_is_an_error_and_what_ran_says_what_was_default(write):
    with pytest.raises(ScenarioError, match=r"policy\.edf\.max_bach: unknown key; did you mean"):
        load_scenario(write(("[policy.fifo]", "[policy.edf]\nmax_bach = 8")))
    scenario = load_scenario(write(("[policy.fifo]", "[policy.edf]\nmax_batch = 8")))
    text = scenario.to_toml(scenario.choose(["edf"]))
    assert "\nmax_batch = 8\n" in text
    assert "\nnetwork_ms = 2.0  # default\n" in text


def test_bug_cli_04_numbers_and_words_are_what_they_look_like(write):
    scenario = load_scenario(
        write(("slo_ms = 100.0", "slo_ms = 1e-3"), ("rate_rps = 200", "rate_rps = 2e2")),
        ["name=no", "models.0.copies=4.0"],
    )
    assert (scenario.spec.slo_ms, scenario.models[0].slo_ns) == (1e-3, 1_000)
    assert scenario.spec.workload[0].rate_rps == 200.0
    assert scenario.spec.name == "no"
    assert len(scenario.models) == 4
    with pytest.raises(ScenarioError, match=r"line 13: models\.0\.copies = 4\.5; expected a whole"):
        load_scenario(write(("copies = 3", "copies = 4.5")))


def test_bug_cli_05_a_limit_may_be_below_one_unit_and_its_unit_is_in_its_name(write):
    assert load_scenario(write(("slo_ms = 100.0", "slo_ms = 0.5"))).models[0].slo_ns == 500_000
    for written, complaint in {
        "slo = 0.5": "line 5: slo: unknown key; did you mean slo_ms?",
        "slo_us = 500": "line 5: slo_us: unknown key; did you mean slo_ms?",
        'slo_ms = "500us"': 'line 5: slo_ms = "500us"; expected a number',
    }.items():
        with pytest.raises(ScenarioError) as caught:
            load_scenario(write(("slo_ms = 100.0", written)))
        assert str(caught.value) == f"small.toml, {complaint}"


@pytest.mark.parametrize(
    ("kind", "own", "foreign"),
    [
        ("poisson", "rate_rps = 20", "concurrency = 4"),
        ("closed", "concurrency = 4", "rate_rps = 20"),
    ],
)
def test_bug_cli_06_a_rate_and_clients_contradict_each_other(write, kind, own, foreign):
    both = f'kind = "{kind}"\n{own}\n{foreign}'
    with pytest.raises(ScenarioError) as caught:
        load_scenario(write(('kind = "poisson"\nrate_rps = 200', both)))
    key = foreign.split()[0]
    assert str(caught.value).startswith(f"small.toml, line 18: workload.0.{key}")
    assert "closed" in str(caught.value)


def test_a_key_of_another_kind_says_whose_it_is(write):
    with pytest.raises(ScenarioError) as caught:
        load_scenario(write(("rate_rps = 200", "rate_rps = 20\nthink_ms = 4")))
    assert str(caught.value) == (
        'small.toml, line 18: workload.0.think_ms: unknown key; it belongs to kind = "closed"'
    )


def test_bug_cli_07_what_can_never_be_granted_is_refused_before_the_run(write):
    """Pages are the one resource that can be asked for; the example of the report has others."""
    with pytest.raises(ScenarioError, match=r"resnet50_v2 needs 7 pages, but a GPU has 6"):
        load_scenario(write(("pages = 64", "pages = 6")))


def test_a_scenario_can_be_made_in_code(write):
    table = msgspec.toml.decode(write().read_text())
    made = build_scenario(table, ["seed=3"])
    read = load_scenario("small.toml", ["seed=3"])
    assert (made.spec, made.models, made.policies) == (read.spec, read.models, read.policies)
    assert table["seed"] == 1  # what was given is left alone

    del table["cluster"]["pages"]
    with pytest.raises(ScenarioError, match=r"scenario: cluster: missing key pages \(a GPU's room"):
        build_scenario(table)


def test_answers_need_an_error_for_each_model_or_one_for_all(write):
    scenario = load_scenario(write(), ["answers.errors=[0.1]"])
    assert scenario.spec.answers.errors == [0.1]
    with pytest.raises(ScenarioError, match=r"answers.errors.*has 5; expected one for each of"):
        load_scenario(write(), ["answers.errors=[0.1, 0.2, 0.3, 0.1, 0.1]"])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ('kind = "worker_kiled"\nat_s = 1', r"did you mean worker_killed\?"),
        ('kind = "worker_killed"\nat_s = 1', r"faults\.0: missing key gpu"),
        ('kind = "worker_killed"\nat_s = 1\ngpu = 3', r"faults\.0\.gpu = 3; there is 0 alone"),
        ('kind = "device_error"\nat_s = 99\ngpu = 0', r"at_s = 99.*; the run ends by then"),
        ('kind = "slow_gpu"\nat_s = 1\ngpu = 0\nfor_s = 1\nfactor = 0.5', r"= 0\.5; expected"),
        ('kind = "paused_controller"\nat_s = 1\nfor_s = 1\ngpu = 0', r"gpu: unknown key; "),
        ('kind = "lost_messages"\nat_s = 1\ngpu = 0\nlose = "x"', "expected one of actions"),
    ],
)  # fmt: skip
def test_a_fault_that_cannot_be_is_named(write, fault, message):
    path = write()
    path.write_text(path.read_text() + f"\n[[faults]]\n{fault}\n")
    with pytest.raises(ScenarioError, match=message):
        load_scenario(path)


def test_a_policy_that_cannot_hear_of_a_loss_is_refused_where_a_worker_is_killed(write, tmp_path):
    (tmp_path / "deaf.py").write_text(
        "import msgspec\nclass Deaf:\n    class Params(msgspec.Struct): pass\n"
        "    def __init__(self, params): pass\n"
        "    def on_start(self, *event): pass\n    on_request = on_result = on_wake = on_start\n"
    )
    path = write()
    path.write_text(
        path.read_text() + '\n[[faults]]\nkind = "worker_killed"\nat_s = 1.0\ngpu = 0\n'
    )
    with pytest.raises(ScenarioError, match="policy Deaf has no on_worker"):
        load_scenario(path).choose([f"{tmp_path}/deaf.py:Deaf"])


def test_faults_and_a_link_to_the_workers_go_together(write):
    link = "pages = 64\nlink = { gbit_per_s = 5.0 }"
    fault = '[policy.fifo]\n[[faults]]\nkind = "worker_killed"\nat_s = 0.5\ngpu = 0'
    scenario = load_scenario(write(("pages = 64", link), ("[policy.fifo]", fault)))
    assert scenario.spec.cluster.link is not None
    assert len(scenario.spec.faults) == 1
