"""Torch on a CPU behind the device interface: weights move about, answers do not change."""

import platform
import random
import resource
import select
import time

import numpy as np
import pytest

from executor.device import DeviceError
from executor.job import Job
from executor.measure import no_collector
from executor.models import Sources
from executor.wire import Bill, Setup
from profiles.durations import Constant
from scheduler.memory import Contiguous
from scheduler.records import FOREVER, Infer, Load, Status, Unload, Why
from scheduler.worker import Engine, Worker

torch = pytest.importorskip("torch", reason="models need torch: pip install 'mainspring[executor]'")
from executor.devices.cpu import CpuDevice  # noqa: E402

PAGE_BYTES = 4096
MS = Constant(1_000_000)
CODE = """
import torch

class Net(torch.nn.Module):
    def __init__(self, seed, width):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.first = torch.nn.Parameter(torch.randn(width, 24, generator=g))
        self.second = torch.nn.Parameter(torch.randn(24, width, generator=g).t())  # strided
        self.tied = self.first
        self.register_buffer("shift", torch.randn(24, generator=g))

    def forward(self, x):
        return {"y": torch.tanh(x @ self.first) @ self.second.t()[:, :5] + self.tied[0, :5],
                "z": x.sum(dim=1, keepdim=True) + self.shift[0]}

def net(seed):
    width = 16 + 32 * seed
    return Net(seed, width), {"x": torch.arange(width) / width}

def double():
    class Double(torch.nn.Module):
        def forward(self, x):
            if (x < 0).any():
                raise ValueError("no negative numbers, please")
            return 2 * x
    return Double(), torch.ones(1)
"""


def sources(tmp_path, models=10):
    lines = [f"\ndef net{i}():\n    return net({i})\n" for i in range(models)]
    file = tmp_path / "nets.py"
    file.write_text(CODE + "".join(lines))
    code = {f"net{i}": f"{file}:net{i}" for i in range(models)}
    return Sources(code | {"double": f"{file}:double"})


def wait(device, engine):
    end = time.monotonic() + 60
    while (done := device.poll(engine)) is None:
        assert time.monotonic() < end, f"{engine.name} did not end"
    return done


def with_one_model(file, name):
    """A device on which a model of the file lies."""
    bill = Bill(1, MS, {1: MS}, name)
    device = CpuDevice([bill], 1, PAGE_BYTES, 0, Sources({name: f"{file}:{name}"}))
    device.begin_load(0, range(1))
    assert not wait(device, Engine.COPY).error
    return device


def run_until(job, reports):
    end = time.monotonic() + 60
    while len(job.reports) < reports:
        job.step()
        assert time.monotonic() < end, f"only {job.reports}"


def infer(device, model, batch, inputs):
    device.begin_infer(model, batch, inputs)
    return wait(device, Engine.EXEC)


def test_a_thousand_loads_evictions_and_batches_never_answer_wrongly(tmp_path):
    """Beside each model stands one that was never moved; the arena holds about half of them."""
    given = sources(tmp_path)
    bills = [Bill(3 + i * 2, MS, {1: MS, 4: MS}, f"net{i}") for i in range(10)]
    pages = 60
    device = CpuDevice(bills, pages, PAGE_BYTES, 0, given)
    never_moved = [CpuDevice([bill], bill.pages, PAGE_BYTES, 0, given) for bill in bills]
    for reference, bill in zip(never_moved, bills, strict=True):
        reference.begin_load(0, range(bill.pages))
        assert not wait(reference, Engine.COPY).error
    brain = Worker(tuple(bill.pages for bill in bills), pages, Contiguous(pages))
    rng = random.Random(7)
    loads = moved = batches = 0
    last_place = {}
    for step in range(1_000):
        model = rng.randrange(10)
        now_ns = step
        if model not in brain.places:
            action = Load(step, 0, model, 0, FOREVER, 0)
            brain.submit(now_ns, action)
            started = brain.start(Engine.COPY, now_ns)
            if started is not action:
                assert started.why in (Why.NO_PAGES, Why.NO_SPACE)
                victim = rng.choice(list(brain.places))
                brain.submit(now_ns, Unload(step, 0, victim, 0, FOREVER, 0))
                device.unload(victim)
                continue
            place = brain.places[model]
            device.begin_load(model, place)
            done = wait(device, Engine.COPY)
            assert not done.error
            brain.finish(Engine.COPY, done.start_ns, done.end_ns, done.duration_ns)
            loads += 1
            moved += last_place.get(model, place) != place
            last_place[model] = place
        tasks = rng.randint(1, 4)
        width = 16 + 32 * model
        x = [{"x": np.float32([rng.random() for _ in range(width)])} for _ in range(tasks)]
        came = infer(device, model, 4, x)
        expected = infer(never_moved[model], 0, 4, x)
        assert not came.error
        assert len(came.outputs) == tasks
        for one, other in zip(came.outputs, expected.outputs, strict=True):
            assert sorted(one) == ["y", "z"]
            assert all(np.array_equal(one[name], other[name]) for name in one)
        batches += 1
        state = device.state()
        assert state.memory_used_bytes == brain.pages_used * PAGE_BYTES <= state.memory_bytes
    assert loads > 100
    assert moved > 30
    assert batches > 300


def test_the_weights_that_are_used_are_those_in_the_arena(tmp_path):
    """Or the test above would prove nothing."""
    device = CpuDevice([Bill(3, MS, {1: MS}, "net0")], 3, PAGE_BYTES, 0, sources(tmp_path))
    device.begin_load(0, range(3))
    wait(device, Engine.COPY)
    x = [{"x": np.ones(16, np.float32)}]
    before = infer(device, 0, 1, x).outputs[0]["y"]
    device._arena.zero_()
    assert not np.array_equal(infer(device, 0, 1, x).outputs[0]["y"], before)


def test_answers_go_to_their_callers_and_padding_to_nobody(tmp_path):
    """BUG-EXE-05 and BUG-EXE-12: small batches after large ones, in any order."""
    device = CpuDevice([Bill(1, MS, {8: MS}, "double")], 1, PAGE_BYTES, 0, sources(tmp_path))
    device.begin_load(0, range(1))
    wait(device, Engine.COPY)
    rng = random.Random(1)
    for _ in range(1_000):
        numbers = [rng.randrange(1_000) for _ in range(rng.randint(1, 8))]
        done = infer(device, 0, 8, [{"input": np.float32([n])} for n in numbers])
        assert [float(out["output"][0]) for out in done.outputs] == [2.0 * n for n in numbers]


def test_a_model_that_raises_ends_its_batch_and_nothing_else(tmp_path):
    """BUG-EXE-06."""
    device = CpuDevice([Bill(1, MS, {1: MS}, "double")], 1, PAGE_BYTES, 0, sources(tmp_path))
    device.begin_load(0, range(1))
    wait(device, Engine.COPY)
    assert infer(device, 0, 1, [{"input": np.float32([-1])}]).error == (
        "ValueError: no negative numbers, please"
    )
    (out,) = infer(device, 0, 1, [{"input": np.float32([4])}]).outputs
    assert out["output"].tolist() == [8.0]


def test_a_device_error_is_reported_as_one(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text(
        "import torch\n"
        "class Bad(torch.nn.Module):\n"
        "    runs = 0\n"
        "    def forward(self, x):\n"
        "        Bad.runs += 1\n"
        "        if Bad.runs == 2:  # the first is the warm-up\n"
        "            raise RuntimeError('out of luck')\n"
        "        return x\n"
        "def bad():\n"
        "    return Bad(), torch.ones(1)\n"
    )
    setup = Setup(1, 0, [Bill(1, MS, {1: MS}, "bad")], "cpu", PAGE_BYTES)
    job = Job(setup, Sources({"bad": f"{file}:bad"}))
    job.take([Load(0, 0, 0, 0, FOREVER, 0)])
    run_until(job, 1)
    job.take([Infer(i, 0, 0, 1, (i,), 0, FOREVER, 0) for i in (1, 2)])
    run_until(job, 3)
    job.close()
    assert [(report.status, report.why, report.error) for report in job.reports] == [
        (Status.DONE, Why.NOTHING, ""),
        (Status.FAILED, Why.DEVICE_ERROR, "RuntimeError: out of luck"),
        (Status.DONE, Why.NOTHING, ""),
    ]


def test_while_a_batch_runs_the_loop_goes_on_and_is_woken_at_its_end(tmp_path):
    file = tmp_path / "held.py"
    file.write_text(
        "import threading\n"
        "import torch\n"
        "class Held(torch.nn.Module):\n"
        "    gate = threading.Event()\n"
        "    gate.set()  # for the warm-up\n"
        "    def forward(self, x):\n"
        "        assert self.gate.wait(60)\n"
        "        return x\n"
        "def held():\n"
        "    return Held(), torch.ones(1)\n"
    )
    device = with_one_model(file, "held")
    gate = device._models[0].module.gate
    gate.clear()
    device.begin_infer(0, 1, ())
    assert device.poll(Engine.EXEC) is None
    assert device.due_ns(Engine.EXEC) is None
    assert select.select([device.wakes], [], [], 0)[0] == []
    gate.set()
    assert select.select([device.wakes], [], [], 60)[0] == [device.wakes]
    assert not wait(device, Engine.EXEC).error
    assert select.select([device.wakes], [], [], 0)[0] == []
    device.close()


def test_a_profile_with_less_room_than_the_weights_is_refused(tmp_path):
    bill = Bill(1, MS, {1: MS}, "net9")
    with pytest.raises(DeviceError, match=r"net9 has .* bytes of weights.* profile it again"):
        CpuDevice([bill], 1, PAGE_BYTES, 0, sources(tmp_path))


def test_copies_of_a_model_have_their_own_place(tmp_path):
    device = CpuDevice([Bill(3, MS, {1: MS}, "net0")] * 2, 6, PAGE_BYTES, 0, sources(tmp_path))
    for model, place in ((0, range(3)), (1, range(3, 6))):
        device.begin_load(model, place)
        wait(device, Engine.COPY)
    x = [{"x": np.ones(16, np.float32)}]
    one, other = (infer(device, model, 1, x).outputs[0]["y"] for model in (0, 1))
    assert np.array_equal(one, other)
    device._arena[: 3 * PAGE_BYTES].zero_()
    assert np.array_equal(infer(device, 1, 1, x).outputs[0]["y"], other)


def test_a_spinning_model_takes_its_profile_time_beside_real_ones(tmp_path):
    bills = [Bill(3, MS, {1: MS}, "net0"), Bill(3, MS, {1: MS}, "spin")]
    device = CpuDevice(bills, 6, PAGE_BYTES, 0, sources(tmp_path))
    device.begin_load(1, range(3))
    assert wait(device, Engine.COPY).duration_ns >= 1_000_000
    device.begin_infer(1, 1, ())
    assert wait(device, Engine.EXEC).duration_ns >= 1_000_000
    assert device.state().memory_used_bytes == 3 * PAGE_BYTES


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc is told to")
def test_a_warm_batch_faults_no_memory_in(tmp_path):
    """Its time would be the system's as much as the model's."""
    file = tmp_path / "wide.py"
    file.write_text(
        "import torch\n"
        "class Wide(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return (x * torch.ones(4_000_000)).sum().reshape(1, 1)  # 16 MB, twice\n"
        "def wide():\n"
        "    return Wide(), torch.ones(1)\n"
    )
    device = with_one_model(file, "wide")
    with no_collector():  # as in a worker: what other tests left would be freed in between
        for _ in range(10):  # the first ones find holes, and make them
            infer(device, 0, 1, ())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(10):
            infer(device, 0, 1, ())
        assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 1_000
    device.close()
