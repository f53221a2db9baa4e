"""What devices tell of themselves: when they are looked at, what is kept, what is made of it."""

import msgspec
import pytest

from executor import job as job_module
from executor.controller import LiveCluster
from executor.device import DeviceState
from executor.job import LOOK_NS, Job
from executor.watch import Span, Watched, not_representative, together
from executor.wire import Bill, Condition, Pong, Setup, decode_from_worker, encode
from mainspring.live import LIVE, Punctuality, run_live
from profiles.durations import Constant
from results import read_summary
from tests.executor.scenarios import COMPUTING, loaded

STEADY = Condition(1_980, 60, 7, "")
HOT = Condition(1_200, 91, 7, "too hot (hardware)")


def test_of_each_number_the_least_the_most_and_the_last_are_kept():
    watched = Watched()
    for condition in (STEADY, HOT, Condition(None, 75, 3)):
        watched.add(condition)

    assert watched.clock_mhz == Span(1_200, 1_980, 1_200)
    assert watched.temperature_c == Span(60, 91, 75)
    assert watched.memory_used_bytes == Span(3, 7, 3)
    assert (watched.told, watched.throttled) == (3, {"too hot (hardware)": 1})
    assert watched.clock_change == pytest.approx(1 - 1_200 / 1_980)


def test_what_a_device_never_told_is_not_made_up():
    watched = Watched()
    watched.add(Condition(None, None, 0))
    assert (watched.clock_mhz, watched.temperature_c, watched.clock_change) == (None, None, None)
    assert list(not_representative([watched, Watched()])) == []


def test_one_look_tells_of_no_change_and_two_runs_do():
    first, second = Watched(), Watched()
    first.add(STEADY)
    second.add(HOT)
    assert first.clock_change is None
    assert together([first, second]).clock_change == pytest.approx(1 - 1_200 / 1_980)
    assert together([Watched(), Watched()]).clock_change is None


def test_a_run_of_a_device_that_was_slowed_down_says_so():
    steady, hot = Watched(), Watched()
    for _ in range(3):
        steady.add(STEADY)
        hot.add(STEADY)
    hot.add(HOT)

    assert list(not_representative([steady, hot])) == [
        "GPU 1 was slowed down (too hot (hardware)) at 1 of 4 looks: the run is not representative",
        "GPU 1's clock was between 1,200 and 1,980 MHz: the run is not representative",
    ]


@pytest.mark.parametrize(
    "lie",
    [[-1, 1, 1], [10**7, 1, 1], [1, -300, 1], [1, 1, -1], [1, 1, 2**63], [1, 1, 1, "x" * 201]],
)
def test_a_worker_that_lies_of_its_device_is_not_believed(lie):
    frame = msgspec.msgpack.encode(["Pong", 1, 2, [], lie])
    with pytest.raises(msgspec.ValidationError):
        decode_from_worker(frame)


def test_a_pong_without_a_look_has_none():
    assert decode_from_worker(encode(Pong(1, 2))).condition is None
    assert decode_from_worker(encode(Pong(1, 2, [], HOT))).condition == HOT


class Clock:
    """It stands still, but where a device is asked how it is."""

    def __init__(self) -> None:
        self.now_ns = 10**12

    def monotonic_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def looked(monkeypatch):
    """A job, its clock, and what asking its device takes from now on."""
    clock = Clock()
    monkeypatch.setattr(job_module, "time", clock)
    job = Job(Setup(7, 1, [Bill(3, Constant(1), {1: Constant(1)})]))

    def takes(ns: int) -> None:
        def state() -> DeviceState:
            clock.now_ns += ns
            return DeviceState("a GPU", 100, 7, 1_980, 60, "")

        monkeypatch.setattr(job._device, "state", state)

    takes(300_000)
    return job, clock, takes


def test_a_device_is_looked_at_once_a_second(looked):
    job, clock, _ = looked
    job.in_force()  # as at Ready, which tells how long a look takes
    begun_ns = clock.now_ns
    took_ns = [job.look(200_000_000)]
    assert job.condition == STEADY
    while clock.now_ns < begun_ns + 3 * LOOK_NS:
        clock.now_ns += LOOK_NS // 10
        took_ns.append(job.look(200_000_000))

    assert [ns for ns in took_ns if ns] == [300_000] * 4


def test_no_look_delays_what_is_due(looked):
    """Nothing may be due for twice as long as the last ones took."""
    job, clock, takes = looked
    clock.now_ns += LOOK_NS
    takes(4_000_000)
    job.in_force()
    for _ in range(5):  # it held on to what the first took: 20 ms until it is known
        clock.now_ns += LOOK_NS
        job.look(200_000_000)
    clock.now_ns += LOOK_NS
    assert job.look(7_999_999) == 0
    assert job.look(8_000_000) == 4_000_000
    takes(3_000_000_000)  # stopped in the middle of it, say
    clock.now_ns += LOOK_NS
    assert job.look(200_000_000)
    takes(4_000_000)
    clock.now_ns += LOOK_NS
    assert job.look(200_000_000) == 4_000_000  # it is looked at yet


def test_a_live_run_keeps_what_its_device_told(tmp_path):
    pytest.importorskip("zmq", reason="live runs need pyzmq: pip install 'mainspring[executor]'")
    pytest.importorskip("torch", reason="models need torch: pip install 'mainspring[executor]'")
    scenario = loaded(tmp_path, "duration_s=3", text=COMPUTING)
    (live,) = run_live(scenario, tmp_path / "live")

    (device,) = live.punctuality.devices
    assert device.told >= 1
    assert device.memory_used_bytes.most == 2 << 20
    kept = msgspec.json.decode((live.directory / LIVE).read_bytes(), type=Punctuality)
    assert kept.devices == [device]


def test_the_summary_of_a_run_warns_of_a_device_that_was_slowed_down(tmp_path, monkeypatch):
    pytest.importorskip("zmq", reason="live runs need pyzmq: pip install 'mainspring[executor]'")
    told = LiveCluster._told
    monkeypatch.setattr(LiveCluster, "_told", lambda world, gpu, _: told(world, gpu, HOT))
    (live,) = run_live(loaded(tmp_path, "cluster.gpus=1"), tmp_path / "live")

    (warning,) = read_summary(live.directory).warnings
    assert warning.startswith("GPU 0 was slowed down (too hot (hardware)) at ")
