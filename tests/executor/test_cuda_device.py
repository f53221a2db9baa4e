"""The CUDA device's logic, on a driver that enforces CUDA's rules and does the work late.

Nothing here says that a GPU does the same: that is what `make gpu-check` is for.
"""

import random
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from executor.device import DeviceError
from executor.devices import cuda
from executor.devices.cuda import CudaDevice, CudaError, check_paged
from executor.wire import Bill
from profiles.durations import Constant
from scheduler.memory import Contiguous, Paged
from scheduler.records import FOREVER, Load, Unload, Why
from scheduler.worker import Engine, Worker
from tests.executor.recording import GRANULARITY, FakeProgram, Pinned, RecordingDriver, RuleBroken

PAGE = GRANULARITY
ANY = Constant(1_000)


class Rig:
    """A device with some models, 1 to 3 pages each."""

    def __init__(self, models=3, pages=6, *, paged=True, batches=(1, 4)):
        self.driver = RecordingDriver()
        sizes = [PAGE * (1 + i % 3) - 5 for i in range(models)]
        self.programs = [FakeProgram(self.driver, f"m{i}", n) for i, n in enumerate(sizes)]
        self.bills = [
            Bill(-(-n // PAGE), ANY, dict.fromkeys(batches, ANY), f"m{i}")
            for i, n in enumerate(sizes)
        ]
        self.pages = pages
        self.paged = paged

    def open(self):
        self.device = CudaDevice(
            self.driver, self.bills, self.programs, self.pages, PAGE, 0, paged=self.paged
        )
        return self

    def load(self, model, place):
        self.device.begin_load(model, place)
        return self.end(Engine.COPY)

    def infer(self, model, batch=4, xs=(1, 2)):
        self.device.begin_infer(model, batch, [{"x": np.int64(x)} for x in xs])
        return self.end(Engine.EXEC)

    def end(self, engine):
        self.driver.advance_all()
        done = self.device.poll(engine)
        assert done is not None
        return done

    def answers(self, model, xs=(1, 2)):
        """What comes out, which must be what the model says."""
        done = self.infer(model, xs=xs)
        assert not done.error
        return [int(out["y"]) for out in done.outputs] == [
            self.programs[model].expected(x) for x in xs
        ]


@pytest.fixture(params=[True, False], ids=["paged", "contiguous"])
def rig(request):
    rig = Rig(paged=request.param).open()
    yield rig
    rig.device.close()
    assert rig.driver.leaks() == []


def test_a_model_answers_wherever_it_is_loaded(rig):
    for place in (range(2), range(3, 5), range(1, 3)):
        assert not rig.load(1, place).error
        assert rig.answers(1)
        rig.device.unload(1)


def test_pages_may_lie_anywhere_where_they_are_mapped():
    rig = Rig().open()
    rig.load(2, (5, 0, 3))
    rig.load(1, (4, 1))
    assert rig.answers(2)
    assert rig.answers(1)
    rig.device.unload(2)
    rig.load(2, (3, 5, 0))
    assert rig.answers(2)
    rig.device.close()


@pytest.mark.parametrize("paged", [True, False])
def test_a_thousand_loads_evictions_and_batches_never_answer_wrongly(paged):
    rig = Rig(models=10, pages=9, paged=paged).open()
    memory = Paged(9) if paged else Contiguous(9)
    brain = Worker(tuple(bill.pages for bill in rig.bills), 9, memory)
    rng = random.Random(3)
    loads = batches = 0
    for step in range(1_000):
        model = rng.randrange(10)
        if model not in brain.places:
            brain.submit(step, Load(step, 0, model, 0, FOREVER, 0))
            started = brain.start(Engine.COPY, step)
            if not isinstance(started, Load):
                assert started.why in (Why.NO_PAGES, Why.NO_SPACE)
                victim = rng.choice(list(brain.places))
                brain.submit(step, Unload(step, 0, victim, 0, FOREVER, 0))
                rig.device.unload(victim)
                continue
            done = rig.load(model, brain.places[model])
            assert not done.error
            brain.finish(Engine.COPY, 0, 0, done.duration_ns)
            loads += 1
        assert rig.answers(model, [rng.randrange(256) for _ in range(rng.randint(1, 4))])
        batches += 1
        used = rig.device.state().memory_used_bytes
        assert used == brain.pages_used * PAGE <= 9 * PAGE
    assert loads > 100
    assert batches > 300
    rig.device.close()
    assert rig.driver.leaks() == []


def test_graphs_are_captured_once_and_survive_reloads():
    rig = Rig(models=1).open()
    captured = rig.driver.calls.count("begin_capture")
    for i in range(5):
        rig.load(0, (i,))
        assert rig.answers(0)
        rig.device.unload(0)
    assert rig.driver.calls.count("begin_capture") == captured == 2  # batches of 1 and 4
    assert rig.driver.calls.count("launch") == 5


def test_a_copy_and_a_batch_are_in_flight_at_once(rig):
    rig.load(0, (0,))
    rig.device.begin_infer(0, 1, ())
    rig.device.begin_load(1, (1, 2))
    assert rig.device.poll(Engine.EXEC) is None
    assert rig.device.poll(Engine.COPY) is None
    rig.driver.advance(rig.driver.streams[Engine.COPY])
    assert rig.device.poll(Engine.EXEC) is None
    assert not rig.device.poll(Engine.COPY).error
    rig.driver.advance_all()
    assert not rig.device.poll(Engine.EXEC).error


def test_durations_are_the_gpus_own(rig):
    """BUG-EXE-09: between two marks on the stream that did the work, once both are done."""
    assert rig.load(1, (0, 1)).duration_ns == 10 * rig.programs[1].size
    assert rig.infer(1, batch=4).duration_ns == 4_000
    assert rig.infer(1, batch=1, xs=(1,)).duration_ns == 1_000


def test_inputs_and_answers_of_one_batch_are_not_those_of_the_next(rig):
    """BUG-EXE-07, BUG-EXE-08, BUG-EXE-12: static buffers, large and small batches in turn."""
    rig.load(0, (0,))
    for xs in ([1, 2, 3, 4], [9], [1, 2, 3, 4], [7, 7], [5, 6, 7, 8]):
        assert rig.answers(0, xs)


def test_the_host_memory_of_inputs_is_not_touched_before_it_was_read(monkeypatch):
    """BUG-EXE-07: with the guard the answers are right; without it this very test goes wrong."""
    rig = Rig(models=1).open()
    rig.load(0, (0,))
    rig.device.begin_infer(0, 4, [{"x": np.int64(x)} for x in (1, 2, 3, 4)])
    with pytest.raises(AssertionError, match="EXEC is busy"):
        rig.device.begin_infer(0, 4, [{"x": np.int64(9)}])
    rig.programs[0].fill(4, [{"x": np.int64(9)}] * 4, rig.driver.streams[0])  # past the guard
    outputs = rig.end(Engine.EXEC).outputs
    assert [int(out["y"]) for out in outputs] != [rig.programs[0].expected(x) for x in (1, 2, 3, 4)]


def test_an_unload_waits_for_what_uses_the_memory():
    """The worker's brain does not unload a running model; the device does not rely on it."""
    rig = Rig(models=1).open()
    rig.load(0, (0,))
    rig.device.begin_infer(0, 1, ())
    rig.device.unload(0)
    assert rig.device.poll(Engine.EXEC) is not None


def test_a_model_that_cannot_be_captured_runs_without_a_graph():
    rig = Rig(models=2)
    rig.programs[1].capturable = False
    rig.open()
    for model in (0, 1):
        rig.load(model, (model, model + 2)[: rig.bills[model].pages])
        assert rig.answers(model)
    assert "m1 without: the model asks the host in the middle" in rig.device.state().kind


def test_an_arena_has_no_graphs_for_they_would_go_stale(rig):
    assert (rig.driver.calls.count("begin_capture") == 0) is rig.device.contiguous


@pytest.mark.parametrize("call", ["map", "allow", "copy"])
def test_a_load_that_fails_is_reported_and_leaves_nothing_behind(call):
    rig = Rig().open()
    rig.driver.fail = [call]
    done = rig.load(2, (0, 1, 2))
    assert done.error == f"CUDA_ERROR_IN_{call.upper()}"
    assert rig.driver.mapped == {}
    assert rig.device.state().memory_used_bytes == 0
    assert not rig.load(2, (2, 1, 0)).error
    assert rig.answers(2)
    rig.device.close()
    assert rig.driver.leaks() == []


def test_the_second_page_that_cannot_be_mapped_takes_the_first_with_it():
    rig = Rig().open()
    original, calls = rig.driver.map, []

    def second_fails(address, size, handle):
        calls.append(address)
        if len(calls) == 2:
            raise CudaError("no more")
        original(address, size, handle)

    rig.driver.map = second_fails
    assert rig.load(2, (0, 1, 2)).error == "no more"
    assert rig.driver.mapped == {}


@pytest.mark.parametrize("call", ["launch", "record", "is_done"])
def test_a_batch_that_fails_is_reported_and_the_next_one_runs(call):
    rig = Rig(models=1).open()
    rig.load(0, (0,))
    rig.driver.fail = [call]
    assert "CUDA_ERROR_IN_" in rig.infer(0).error
    assert rig.answers(0)


def test_a_model_that_raises_ends_its_batch_only():
    rig = Rig(models=1, paged=False).open()
    rig.load(0, (0,))
    rig.programs[0].broken = True
    assert rig.infer(0).error == "ValueError: broken"
    rig.programs[0].broken = False
    assert rig.answers(0)


def test_a_model_that_is_not_loaded_does_not_run(rig):
    assert rig.infer(0).error == "CudaError: model 0 is not loaded"


@pytest.mark.parametrize("call", ["create", "reserve", "map", "allow", "copy"])
@pytest.mark.parametrize("paged", [True, False])
def test_a_device_that_cannot_be_had_gives_everything_back(call, paged):
    rig = Rig(paged=paged)
    rig.driver.fail = [call]
    with pytest.raises(DeviceError, match=f"6 pages of 64 bytes: CUDA_ERROR_IN_{call.upper()}"):
        rig.open()
    assert rig.driver.leaks() == []


def test_memory_that_is_short_gives_everything_back():
    """The GPU has room for four of six pages."""
    rig = Rig()
    create = rig.driver.create

    def four_only(size):
        if len(rig.driver.handles) == 4:
            raise CudaError("CUDA_ERROR_OUT_OF_MEMORY")
        return create(size)

    rig.driver.create = four_only
    with pytest.raises(DeviceError, match="6 pages of 64 bytes: CUDA_ERROR_OUT_OF_MEMORY"):
        rig.open()
    assert rig.driver.leaks() == []
    program = FakeProgram(rig.driver, "m", 3 * PAGE)
    rig.driver.closed = False
    assert check_paged(rig.driver, program, 1, PAGE) == "CUDA_ERROR_OUT_OF_MEMORY"
    assert rig.driver.leaks() == []


def test_spinning_models_lie_between_the_others():
    rig = Rig(models=2)
    rig.programs[1] = None
    rig.bills[1] = Bill(2, Constant(1), {1: Constant(1)}, "spin")
    rig.open()
    rig.load(1, (0, 1))
    assert rig.device.state().memory_used_bytes == 2 * PAGE
    rig.load(0, (2,))
    assert rig.answers(0)


# ---- the check that chooses the kind of memory


def checked(change=lambda program, driver: None):
    driver = RecordingDriver()
    program = FakeProgram(driver, "m", 2 * PAGE - 5)
    change(program, driver)
    why = check_paged(driver, program, 4, PAGE)
    assert driver.leaks() == []
    return why


def test_the_check_passes_where_a_graph_survives():
    assert checked() == ""


def test_the_check_sees_a_graph_that_reads_other_memory_after_the_reload():
    """As if the GPU cached translations of the old pages: it sees what lay there."""

    def change(program, driver):
        launch, seen = driver.launch, []

        def stale(graph, stream):
            launch(graph, stream)
            seen.append(graph)
            if len(seen) == 2:
                driver.put(stream, lambda: program.output[4].__setitem__(0, 1), [], 1)

        driver.launch = stale

    assert checked(change) == "a graph gave other bytes after a reload on other pages"


def test_the_check_sees_a_graph_that_does_nothing_after_the_reload():
    def change(program, driver):
        launch, seen = driver.launch, []

        def once(graph, stream):
            seen.append(graph)
            if len(seen) == 1:
                launch(graph, stream)

        driver.launch = once

    assert checked(change) == "a graph gave other bytes after a reload on other pages"


def test_the_check_sees_a_graph_that_differs_from_its_model():
    def change(program, driver):
        kernels = program._kernels

        def other(batch, stream):
            kernels(batch, stream)
            if driver.capturing is not None:
                driver.put(stream, lambda: program.output[4].__setitem__(0, 1), [], 1)

        program._kernels = other

    assert checked(change) == "a graph gave other bytes than the model itself"


@pytest.mark.parametrize("call", ["create", "reserve", "map", "allow", "copy", "launch", "unmap"])
def test_the_check_says_what_cuda_refused_and_gives_everything_back(call):
    def change(program, driver):
        driver.fail = [call]

    assert checked(change) == f"CUDA_ERROR_IN_{call.upper()}"


# ---- the driver of these tests notices what is forbidden


def ready():
    """One page, mapped and usable, and work on a stream that reads it."""
    d = RecordingDriver()
    address, handle, stream = d.reserve(2 * PAGE), d.create(PAGE), d.stream()
    d.map(address, PAGE, handle)
    d.allow(address, PAGE)
    return d, address, handle, stream


HOST = Pinned(bytearray(PAGE))


def use_unreserved(d, address, handle, stream):
    d.unmap(address, PAGE)
    d.map(address + 4 * PAGE, PAGE, handle)


def map_uncreated(d, address, handle, stream):
    d.map(address + PAGE, PAGE, 12345)


def map_released(d, address, handle, stream):
    d.unmap(address, PAGE)
    d.release(handle)
    d.map(address, PAGE, handle)


def map_twice(d, address, handle, stream):
    d.map(address, PAGE, d.create(PAGE))


def map_aliased(d, address, handle, stream):
    d.map(address + PAGE, PAGE, handle)


def map_half(d, address, handle, stream):
    d.map(address + PAGE, PAGE, d.create(2 * PAGE))


def odd_size(d, address, handle, stream):
    d.create(PAGE + 1)


def copy_without_access(d, address, handle, stream):
    d.map(address + PAGE, PAGE, d.create(PAGE))
    d.copy(address + PAGE, HOST, PAGE, stream)


def copy_past_the_end(d, address, handle, stream):
    d.copy(address, Pinned(bytearray(2 * PAGE)), 2 * PAGE, stream)


def allow_unmapped(d, address, handle, stream):
    d.allow(address, 2 * PAGE)


def unmap_unmapped(d, address, handle, stream):
    d.unmap(address + PAGE, PAGE)


def unmap_part(d, address, handle, stream):
    d.unmap(address, PAGE // 2)


def unmap_in_use(d, address, handle, stream):
    d.copy(address, HOST, PAGE, stream)
    d.unmap(address, PAGE)


def release_mapped(d, address, handle, stream):
    d.release(handle)


def release_twice(d, address, handle, stream):
    d.unmap(address, PAGE)
    d.release(handle)
    d.release(handle)


def free_mapped(d, address, handle, stream):
    d.free(address, 2 * PAGE)


def free_part(d, address, handle, stream):
    d.unmap(address, PAGE)
    d.free(address, PAGE)


def launch_unmapped(d, address, handle, stream):
    d.begin_capture()
    d.copy(address, HOST, PAGE, stream)
    graph = d.end_capture()
    d.unmap(address, PAGE)
    d.launch(graph, stream)


def capture_unpinned(d, address, handle, stream):
    d.begin_capture()
    d.copy(address, Pinned(bytearray(PAGE), locked=False), PAGE, stream)


def wait_in_capture(d, address, handle, stream):
    event = d.event()
    d.record(event, stream)
    d.begin_capture()
    d.wait(event)


def ask_in_capture(d, address, handle, stream):
    event = d.event()
    d.record(event, stream)
    d.begin_capture()
    d.is_done(event)


def map_in_capture(d, address, handle, stream):
    d.begin_capture()
    d.map(address + PAGE, PAGE, d.create(PAGE))


def time_too_early(d, address, handle, stream):
    start, end = d.event(), d.event()
    d.record(start, stream)
    d.wait(start)
    d.copy(address, HOST, PAGE, stream)
    d.record(end, stream)
    d.elapsed_ns(start, end)


def ask_unrecorded(d, address, handle, stream):
    d.is_done(d.event())


def use_closed(d, address, handle, stream):
    d.close()
    d.reserve(PAGE)


@pytest.mark.parametrize(
    "order",
    [
        use_unreserved, map_uncreated, map_released, map_twice, map_aliased, map_half, odd_size,
        copy_without_access, copy_past_the_end, allow_unmapped, unmap_unmapped, unmap_part,
        unmap_in_use, release_mapped, release_twice, free_mapped, free_part, launch_unmapped,
        capture_unpinned, wait_in_capture, ask_in_capture, map_in_capture, time_too_early,
        ask_unrecorded, use_closed,
    ],
    ids=lambda order: order.__name__,
)  # fmt: skip
def test_a_broken_order_is_caught(order):
    with pytest.raises(RuleBroken):
        order(*ready())


def test_the_right_order_is_not():
    d, address, handle, stream = ready()
    start, end = d.event(), d.event()
    d.record(start, stream)
    d.copy(address, HOST, PAGE, stream)
    d.record(end, stream)
    d.wait(end)
    assert d.elapsed_ns(start, end) > 0
    d.unmap(address, PAGE)
    d.release(handle)
    d.free(address, 2 * PAGE)
    assert d.leaks() == []


def broken_device(monkeypatch, method, replacement):
    """A device with one mistake in it, driven through a load, a batch, an unload and a close."""
    monkeypatch.setattr(CudaDevice, method, replacement)
    rig = Rig(models=3).open()
    rig.load(2, (0, 1, 2))
    rig.device.begin_infer(2, 1, ())
    rig.device.unload(2)
    rig.load(1, (0, 1))
    rig.device.close()


def no_wait(self, model):
    self._used.pop(model, None)
    if handles := self._mapped.pop(model, None):
        self._driver.unmap(self._address[model], len(handles) * self._page_bytes)


def no_unmap(self, model):
    self._used.pop(model, None)
    self._mapped.pop(model, None)


def no_access(self, address, handles):
    for i, handle in enumerate(handles):
        self._driver.map(address + i * self._page_bytes, self._page_bytes, handle)


def release_first(self):
    for handle in self._handles:
        self._driver.release(handle)


def release_all_first(self):
    self._driver.advance_all()
    self._mapped.clear()
    release_first(self)


@pytest.mark.parametrize(
    ("method", "mistake"),
    [("unload", no_wait), ("unload", no_unmap), ("_map", no_access), ("close", release_all_first)],
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
def test_a_mistake_in_the_device_fails_these_tests(monkeypatch, method, mistake):
    with pytest.raises(RuleBroken):
        broken_device(monkeypatch, method, mistake)


# ---- without a GPU


def test_it_imports_without_a_gpu_and_says_so_where_one_is_needed():
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'mainspring[executor]'")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU; make gpu-check tests it")
    from executor.devices.cuda_driver import TorchDriver

    with pytest.raises(DeviceError, match="no CUDA GPU that torch can use here; take --device cpu"):
        TorchDriver(0)


@pytest.mark.parametrize(("gpu", "is_there"), [(1, True), (2, False), (9, False)])
def test_a_gpu_that_is_not_there_is_told_with_the_last_one(gpu, is_there, monkeypatch):
    pytest.importorskip("torch", reason="needs torch: pip install 'mainspring[executor]'")
    from executor.devices import cuda_driver

    two = SimpleNamespace(is_available=lambda: True, device_count=lambda: 2)
    monkeypatch.setattr(cuda_driver, "import_torch", lambda what: SimpleNamespace(cuda=two))
    if is_there:
        assert cuda_driver.cuda_torch(gpu).cuda is two
        return
    with pytest.raises(DeviceError, match=f"no GPU {gpu} here, the last one is 1; set cluster.gpu"):
        cuda_driver.cuda_torch(gpu)


def test_the_logic_does_not_import_torch():
    code = "import executor.devices.cuda, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert cuda.__doc__
