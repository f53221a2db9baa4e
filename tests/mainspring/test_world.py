"""One seed a run, split by purpose; the collector."""

import gc
import warnings
from pathlib import Path

import msgspec
import numpy as np
import pytest

from mainspring import build_scenario, load_scenario
from mainspring import run as mainspring_run
from mainspring.scenario import ScenarioError
from mainspring.trials import Variant, changed
from mainspring.world import (
    FROZEN_MODULES,
    Purpose,
    build_world,
    cluster_info,
    generator,
    quiet_collector,
)
from profiles.durations import Samples
from results import read_actions, read_outcomes
from scheduler.memory import Contiguous
from scheduler.records import FOREVER, Reason, Status
from tests.sim.test_cluster import Script
from tests.worlds import MS
from tests.worlds import Sink as Rows


def draws(seed, purpose, *index):
    return generator(seed, purpose, *index).integers(2**62, size=4).tolist()


def test_purposes_workloads_and_gpus_have_streams_of_their_own():
    streams = [
        draws(1, Purpose.POLICY),
        *(draws(1, Purpose.ARRIVALS, workload) for workload in range(3)),
        *(draws(1, Purpose.DURATIONS, gpu) for gpu in range(3)),
        draws(2, Purpose.POLICY),
    ]
    assert len({tuple(stream) for stream in streams}) == len(streams)


def test_a_stream_never_changes_from_one_version_to_the_next():
    # From numpy's SeedSequence(1, spawn_key=(0, 0)) and PCG64, whose streams numpy keeps.
    sequence = np.random.SeedSequence(1, spawn_key=(0, 0))
    expected = np.random.Generator(np.random.PCG64(sequence)).integers(2**62, size=4).tolist()
    assert draws(1, Purpose.ARRIVALS, 0) == expected
    assert [purpose.value for purpose in Purpose] == [0, 1, 3, 4, 5, 6, 7]


class Sink:
    """Keeps the outcomes."""

    def __init__(self):
        self.requests = []

    def request(self, row):
        self.requests.append(row)

    def action(self, row):
        pass


def arrivals(scenario, label):
    """Who asked for what, when, and by when."""
    (choice,) = scenario.choose([label])
    sink = Sink()
    build_world(scenario, choice.build(), sink).run(2_000_000_000, 1_000_000_000)
    return sorted(row[:5] for row in sink.requests)


def test_the_policy_and_the_number_of_gpus_change_no_arrival(write):
    scenario_file = write()
    expected = arrivals(load_scenario(scenario_file), "clockwork")
    assert len(expected) > 300
    assert arrivals(load_scenario(scenario_file), "fifo") == expected
    assert arrivals(load_scenario(scenario_file, ["cluster.gpus=3"]), "clockwork") == expected
    assert arrivals(load_scenario(scenario_file, ["seed=2"]), "clockwork") != expected


def test_a_workloads_slo_goes_before_its_models(write):
    scenario_file = write(
        ("slo_ms = 100.0\n", ""),
        (
            "rate_rps = 200",
            'rate_rps = 200\n[[workload]]\nkind = "closed"\nconcurrency = 2\nslo_ms = 9',
        ),
    )
    rows = arrivals(load_scenario(scenario_file), "fifo")
    open_loop = [row for row in rows if row[2] == 0]
    closed = [row for row in rows if row[2] > 0]
    assert {row[4] for row in open_loop} == {FOREVER}
    assert {row[4] - row[3] for row in closed} == {9_000_000}
    assert {row[2] for row in closed} == {2, 3, 4, 5, 6, 7}  # two clients a model, after the loops


def test_delays_that_vary_are_drawn_and_written_down(write, tmp_path):
    us = "[cluster.delays_us]\nworker_to_controller = [0, 20, 70.5]\noverrun = [0, 1000]"
    scenario = load_scenario(write(("pages = 64", f"pages = 64\n{us}")))
    run = mainspring_run(scenario, tmp_path / "run", ["fifo"])["fifo"]
    actions = read_actions(run.directory).to_pydict()
    took = zip(actions["type"], actions["batch"], actions["duration_ns"], strict=True)
    batches = [ns for kind, batch, ns in took if kind == "infer" and batch == 1]
    plain_ns = scenario.models[0].profile.exec[1].estimate_ns()
    assert set(batches) == {plain_ns, plain_ns + 1_000_000}
    again = mainspring_run(load_scenario(run.directory), tmp_path / "again", ["fifo"])["fifo"]
    assert again.summary.digest == run.summary.digest


@pytest.mark.parametrize(
    ("us", "load_us"),
    [
        ("worker_to_controller = 2000", 2000),
        ("worker_to_controller = [2000, 2000]", 2000),
        ("worker_to_controller = 2000\nload_to_controller = 500", 500),
        ("worker_to_controller = [2000, 2000]\nload_to_controller = 500", 500),
        ("worker_to_controller = 2000\nload_to_controller = [500, 500]", 500),
        ("worker_to_controller = 2000\nload_to_controller = 0", 0),
    ],
)
def test_results_of_loads_may_have_a_delay_of_their_own(write, us, load_us, tmp_path):
    delays = f"[cluster.delays_us]\npoll = 10\n{us}"
    scenario = load_scenario(write(("pages = 64", f"pages = 64\n{delays}")))
    run = mainspring_run(scenario, tmp_path / "run", ["fifo"])["fifo"]
    actions = read_actions(run.directory).to_pylist()
    ends_ns = {row["model"]: row["end_ns"] for row in reversed(actions) if row["type"] == "load"}
    heard_ns = {row["model"]: row["sent_ns"] for row in reversed(actions) if row["batch"]}
    first = min(ends_ns, key=ends_ns.__getitem__)
    assert heard_ns[first] - ends_ns[first] == (load_us + 10) * 1000
    outcomes = read_outcomes(run.directory).to_pylist()
    batch_ns = {row["id"]: row["end_ns"] for row in actions}
    assert {row["end_ns"] - batch_ns[row["action"]] for row in outcomes if row["batch"]} == {
        2_010_000
    }
    again = mainspring_run(load_scenario(run.directory), tmp_path / "again", ["fifo"])["fifo"]
    assert again.summary.digest == run.summary.digest


def test_batches_of_profiles_that_vary_are_stretched_and_loads_and_constants_are_not(write):
    scenario = load_scenario(write(("pages = 64", "pages = 64\nstretch = 1.5")))
    varies, load = Samples((2_000_000, 4_000_000)), Samples((1_000_000, 3_000_000))
    (first, *others) = scenario.models
    profile = msgspec.structs.replace(first.profile, exec={1: varies}, load=load)
    scenario = msgspec.structs.replace(
        scenario, models=(msgspec.structs.replace(first, profile=profile), *others)
    )
    world = build_world(scenario, scenario.policies[0].build(), Sink())
    costs = world._gpus[0]._costs
    assert costs[0].exec[1] == Samples((3_000_000, 6_000_000))
    assert costs[0].load == load
    assert costs[1].exec == others[0].profile.exec
    # The policy knows the profile, as it does beside a device.
    assert cluster_info(scenario)[1][0].exec_ns == (4_000_000,)


def test_models_lie_in_one_piece_where_the_scenario_says_so(write):
    worlds = {
        memory: build_world(scenario, scenario.policies[0].build(), Sink())
        for memory in ("pages", "contiguous")
        for scenario in [load_scenario(write(), [f"cluster.memory={memory}"])]
    }
    kinds = {memory: type(world._gpus[0].worker._memory) for memory, world in worlds.items()}
    assert kinds == {"pages": type(None), "contiguous": Contiguous}


@pytest.mark.parametrize("frozen", [False, True])
def test_the_collector_is_left_as_it_was(frozen):
    """A process that makes many runs freezes its modules once; no run may thaw them."""
    gc.unfreeze()
    before = gc.get_threshold()
    try:
        if frozen:
            gc.freeze()
        count = gc.get_freeze_count()
        with quiet_collector():
            assert gc.get_freeze_count() > FROZEN_MODULES
            assert gc.get_threshold() != before
        assert gc.get_freeze_count() == count
        assert gc.get_threshold() == before
    finally:
        gc.unfreeze()


class RejectsAll(Script):
    """A policy that gives up every request at once."""

    def on_request(self, now_ns, request, out):
        out.reject(request.id, Reason.NOTHING)


@pytest.mark.parametrize(
    ("more", "asked"),
    [({}, 20_000), ({"retry_after_ms": 2.0}, 1_000), ({"think_ms": 5.0}, 400)],
)
def test_time_goes_on_where_a_client_is_rejected_at_once(write, more, asked):
    """Two clients for 1 s, messages take no time: each asks every 100 us, or as it is told. Asking
    again at once would be an event storm at one instant; 10 s of this are 200,000 requests."""
    scenario = load_scenario(write())
    table = msgspec.to_builtins(scenario.spec)
    table |= {"workload": [{"kind": "closed", "concurrency": 2, "models": "*.0", **more}]}
    del table["inputs"]
    rows = Rows()
    build_world(build_scenario(table), RejectsAll(), rows).run(1_000_000_000, 0)
    assert len(rows.requests) == asked
    assert {row.latency_ns for row in rows.requests} == {0}


REJECTS = """
from scheduler.policies.fifo import Fifo
from scheduler.records import Reason

class Rejects(Fifo):
    def on_request(self, now_ns, request, out):
        out.reject(request.id, Reason.NOTHING)
"""


@pytest.mark.parametrize(
    ("more", "policy", "warned"),
    [
        ("", "rejects.py:Rejects", True),
        ("", "fifo", False),
        ("retry_after_ms = 1", "rejects.py:Rejects", False),  # whoever says it, means it
        ("think_ms = 5", "rejects.py:Rejects", False),
    ],
)
def test_clients_that_are_given_up_at_once_and_ask_again_are_warned_of(
    write, without_pictures, more, policy, warned
):
    Path("rejects.py").write_text(REJECTS)
    closed = f'kind = "closed"\nconcurrency = 2\nmodels = "*.0"\n{more}\n'
    file = write(
        ('kind = "poisson"\nrate_rps = 200\n', closed), ("duration_s = 2.0", "duration_s = 1.0")
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (one,) = mainspring_run(load_scenario(file), "out", [policy])
    text = (
        "workload.0: 20,000 of the run's 20,000 requests were given up sooner than a model can "
        "answer, and each of 2 clients asked again 0.1 ms later; set workload.0.retry_after_ms to "
        "what they wait"
    )
    assert one.summary.warnings == ([text] if warned else [])
    assert [str(each.message) for each in caught] == one.summary.warnings


GIB = 2**30


def roomy(tmp_path, gib, pages, headroom, copies=1, policy="fifo"):
    """A scenario of a model that takes so much, on a GPU with pages of 16 MiB; all are asked."""
    profile = tmp_path / "models.toml"
    profile.write_text(
        'schema = 1\ndevice = "bench"\nsource = "made up"\nlicence = "none"\n[models.m]\n'
        f"weights_bytes = {round(gib * GIB)}\ninput_bytes = 0\noutput_bytes = 0\n"
        "load_ms = 1.0\nexec_ms = { 1 = 1.0 }\n"
    )
    return build_scenario(
        {
            "name": "roomy",
            "duration_s": 1.0,
            "cluster": {"pages": pages, "headroom": headroom},
            "models": [{"profile": f"{profile}/m", "copies": copies}],
            "workload": [{"kind": "constant", "rate_rps": 100, "weights": "turns"}],
            "policy": {policy: {}},
        }
    )


@pytest.mark.parametrize(("gib", "fit"), [(19.0, 4), (19.1, 3)])
def test_bug_prf_08_headroom_is_room_that_no_model_gets(tmp_path, gib, fit):
    """80 GiB, 5% of them kept back: four models of 19 GiB fit, of 19.1 GiB only three."""
    scenario = roomy(tmp_path, gib, pages=80 * 64, headroom=0.05, copies=4)
    (gpu,), _ = cluster_info(scenario)
    assert gpu.pages == 76 * 64
    rows = Rows()
    world = build_world(scenario, scenario.choose(["fifo"])[0].build(), rows)
    world.run(1_000_000_000, 1_000_000_000)
    loads = sum(row.type == "load" for row in rows.actions)
    assert loads == 4 if fit == 4 else loads > 4
    worker = world._gpus[0].worker
    assert len(worker.residence) == fit


def test_room_for_all_models_is_that_much_whatever_is_kept_back(tmp_path):
    """What a plan tries to find out whether memory binds."""
    scenario = roomy(tmp_path, 10.0, pages=20 * 64, headroom=0.05, copies=4)
    (choice,) = scenario.choose(["fifo"])
    roomier, _ = changed(scenario, choice, Variant(all_fit=True), 1)
    assert roomier.spec.cluster.usable_pages == 40 * 64


def test_bug_sim_14_what_a_runtime_keeps_after_an_unload_is_headroom(tmp_path):
    """10 GiB, of which half a GiB never comes back: 4 GiB come and go five times, and 9.5 GiB are
    free after each. Then 9.4 GiB are taken, 9.6 are not. Ours is kept back from the start, not
    from the first load on."""
    scenario = roomy(tmp_path, 4.0, pages=640, headroom=0.05)

    def start(now_ns, out):
        for i in range(10):
            out.wake_at((i + 1) * 10 * MS, i)

    free = []

    def move(now_ns, key, out):
        worker = world._gpus[0].worker
        if key % 2 == 0:
            free.append(worker.pages - worker.pages_used)
            out.load(0, 0, now_ns, FOREVER, 0)
        else:
            out.unload(0, 0, now_ns, FOREVER)

    script = Script(start, on_wake=move)
    world = build_world(scenario, script, Rows())
    world.run(1_000_000_000, 0)
    worker = world._gpus[0].worker
    assert [result.status for result in script.results] == [Status.DONE] * 10
    assert [*free, worker.pages - worker.pages_used] == [608] * 6
    assert roomy(tmp_path, 9.4, pages=640, headroom=0.05).spec.cluster.usable_pages == 608
    needs = r"m needs 615 pages, but a GPU has 608 \(cluster.pages less cluster.headroom\)"
    with pytest.raises(ScenarioError, match=needs):
        roomy(tmp_path, 9.6, pages=640, headroom=0.05)
