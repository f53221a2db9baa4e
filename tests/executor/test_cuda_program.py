"""How models are fed and read on CUDA, with the CPU in the GPU's place.

Streams and page-locked memory are nothing here, so no order is tested: that is what
test_cuda_device.py is for.
"""

import random
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from executor.models import Sources, build
from executor.packing import Packed

torch = pytest.importorskip("torch", reason="models need torch: pip install 'mainspring[executor]'")
from executor.devices.cuda import CudaDevice, CudaError  # noqa: E402
from executor.devices.cuda_driver import TorchProgram  # noqa: E402
from executor.wire import Bill  # noqa: E402
from profiles.durations import Constant  # noqa: E402
from scheduler.worker import Engine  # noqa: E402
from tests.executor.recording import RecordingDriver  # noqa: E402

PAGE = 4096
CODE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(6, 3))
        self.register_buffer("shift", torch.randn(3))

    def forward(self, x, k):
        if (x < -100).any():
            raise ValueError("out of range")
        return {"y": x @ self.w + self.shift, "k": 2 * k}

def make():
    return Net(), {"x": torch.rand(6), "k": torch.arange(2)}
"""


class Fake:
    """A driver whose addresses are places in one CPU tensor, and whose torch has no streams."""

    def __init__(self):
        self.memory = torch.zeros(16 * PAGE, dtype=torch.uint8)
        self.device = torch.device("cpu")
        names = {name: getattr(torch, name) for name in ("empty", "inference_mode")}
        self.torch = SimpleNamespace(**names, cuda=SimpleNamespace(stream=lambda s: nullcontext()))

    def tensor(self, address, size):
        return self.memory[address : address + size]


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self.clone())
    (tmp_path / "net.py").write_text(CODE)
    built = build("net", Sources({"net": f"{tmp_path}/net.py:make"}))
    packed = Packed(built.module)
    driver = Fake()
    one = TorchProgram(driver, built, packed, packed.another(), packed.weights)
    one.driver = driver
    return one


def at(program, address):
    program.driver.memory.zero_()
    program.driver.memory[address : address + program.size].copy_(program.weights)
    program.bind(address)


def ask(program, batch, tasks):
    program.fill(batch, tasks, None)
    program.run(batch, None)
    program.fetch(batch, None)
    return program.rows(batch, len(tasks))


def request(rng):
    x = np.float32([rng.random() for _ in range(6)])
    return {"x": x, "k": np.int64([rng.randrange(9), 1])}


def test_every_task_gets_its_own_rows_wherever_the_weights_are(program):
    rng = random.Random(0)
    at(program, 0)
    for batch in (1, 4):
        program.prepare(batch, None)
    tasks = [request(rng) for _ in range(4)]
    alone = [ask(program, 1, [task])[0] for task in tasks]
    for address in (0, PAGE, 3 * PAGE):
        at(program, address)
        for n in (4, 2, 3, 4):
            came = ask(program, 4, tasks[:n])
            assert len(came) == n
            for out, one, task in zip(came, alone, tasks, strict=False):
                np.testing.assert_allclose(out["y"], one["y"], rtol=1e-5)
                assert out["k"].tolist() == (2 * task["k"]).tolist()


def test_bytes_are_equal_after_a_reload_and_cleared_ones_are_not(program):
    at(program, 0)
    program.prepare(4, None)
    before = program.output_bytes(4)
    program.clear(4, None)
    assert program.output_bytes(4) != before
    at(program, 2 * PAGE)
    program.run(4, None)
    assert program.output_bytes(4) == before


def test_a_shape_that_does_not_fit_is_refused(program):
    at(program, 0)
    program.prepare(2, None)
    with pytest.raises(ValueError, match="shape"):
        program.fill(2, [{"x": np.ones(5, np.float32), "k": np.int64([1, 2])}], None)


def test_the_device_survives_what_a_model_raises(program):
    """Together with the device, on the driver that knows CUDA's rules."""
    rules = RecordingDriver()
    program.driver.tensor = lambda address, size: program.driver.memory[:size]
    rules.copy = lambda address, host, size, stream: program.driver.memory[:size].copy_(host)
    bill = Bill(1, Constant(1), {2: Constant(1)}, "net")
    device = CudaDevice(rules, [bill], [program], 2, PAGE, 0, paged=False)

    def infer(x):
        device.begin_infer(0, 2, [{"x": np.full(6, x, np.float32), "k": np.int64([1, 2])}])
        rules.advance_all()
        return device.poll(Engine.EXEC)

    device.begin_load(0, (1,))
    rules.advance_all()
    assert not device.poll(Engine.COPY).error
    assert infer(-200).error == "ValueError: out of range"
    (out,) = infer(1).outputs
    assert out["k"].tolist() == [2, 4]
    device.close()
    assert rules.leaks() == []


def test_what_torch_raises_for_cuda_is_one_line():
    from executor.devices.cuda_driver import _told

    told = r"^CUDA error: an illegal memory access Compile with$"
    with pytest.raises(CudaError, match=told), _told():
        raise RuntimeError("CUDA error: an illegal memory access\n  Compile with")
