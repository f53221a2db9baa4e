"""The brain and the device of a worker together, on the real clock."""

import time
from itertools import pairwise

from executor.job import Job
from executor.wire import Bill, Setup
from profiles.durations import Constant
from scheduler.records import FOREVER, Infer, Load, Status, Unload, Why

MS = 1_000_000


BILL = Bill(7, Constant(2 * MS), {1: Constant(MS)})


def job(pages: int = 7) -> Job:
    return Job(Setup(pages, 1, [BILL, BILL]))


def run_until(job: Job, reports: int) -> None:
    end_ns = time.monotonic_ns() + 10_000 * MS
    while len(job.reports) < reports:
        job.step()
        assert time.monotonic_ns() < end_ns, f"only {job.reports} within 10 s"


def test_a_load_and_a_batch_take_their_time():
    worker = job()
    now_ns = time.monotonic_ns()
    worker.take([Load(0, 0, 0, now_ns, FOREVER, 0)])
    run_until(worker, 1)
    worker.take([Infer(1, 0, 0, 1, (5,), now_ns, FOREVER, 0)])
    run_until(worker, 2)

    load, infer = worker.reports
    assert (load.status, infer.status) == (Status.DONE, Status.DONE)
    assert load.end_ns - load.start_ns >= 2 * MS
    assert infer.end_ns - infer.start_ns >= MS
    assert infer.start_ns >= load.end_ns


def test_an_action_is_taken_once():
    worker = job()
    load = Load(3, 0, 0, 0, FOREVER, 0)
    worker.take([load])
    worker.take([load, Load(2, 0, 1, 0, FOREVER, 0)])
    run_until(worker, 1)
    worker.step()

    assert [(report.id, report.status) for report in worker.reports] == [(3, Status.DONE)]


def test_what_can_start_no_more_does_not_start():
    worker = job()
    worker.take([Load(0, 0, 0, 0, 1, 0)])
    run_until(worker, 1)

    (report,) = worker.reports
    assert (report.status, report.why) == (Status.MISSED, Why.WINDOW)
    assert report.received_ns > 1


def test_pages_are_kept_count_of():
    worker = job(pages=13)
    worker.take([Load(0, 0, 0, 0, FOREVER, 0), Load(1, 0, 1, 0, FOREVER, 0)])
    run_until(worker, 2)
    worker.take([Unload(2, 0, 0, 0, FOREVER, 0), Load(3, 0, 1, 0, FOREVER, 0)])
    run_until(worker, 4)

    assert [(report.id, report.status, report.why) for report in worker.reports] == [
        (0, Status.DONE, Why.NOTHING),
        (1, Status.FAILED, Why.NO_PAGES),
        (2, Status.DONE, Why.NOTHING),
        (3, Status.DONE, Why.NOTHING),
    ]


def test_an_action_began_when_the_brain_let_it_begin(monkeypatch):
    """A device looks at the clock a little later, by then perhaps after the window."""
    worker = job()
    device_ns = []
    begin = worker._device.begin_load

    def slowly(model, place):
        time.sleep(0.002)
        device_ns.append(time.monotonic_ns())
        begin(model, place)

    monkeypatch.setattr(worker._device, "begin_load", slowly)
    latest_ns = time.monotonic_ns() + 10_000 * MS
    worker.take([Load(0, 0, 0, 0, latest_ns, 0)])
    run_until(worker, 1)

    assert worker.reports[0].start_ns < device_ns[0]


def test_engines_that_take_turns_never_run_together_and_neither_starves():
    """Five loads and five batches, all there from the start, of models of which one is loaded."""
    bills = [Bill(1, Constant(2 * MS), {1: Constant(MS)})] * 6
    worker = Job(Setup(6, 1, bills, engines=1))
    worker.take([Load(0, 0, 0, 0, FOREVER, 0)])
    run_until(worker, 1)
    loads = [Load(i, 0, i, 0, FOREVER, 0) for i in range(1, 6)]
    batches = [Infer(i, 0, 0, 1, (i,), 0, FOREVER, 0) for i in range(6, 11)]
    worker.take([*loads, *batches])
    run_until(worker, 11)

    done = sorted(worker.reports, key=lambda report: report.start_ns)[1:]
    assert all(one.end_ns <= other.start_ns for one, other in pairwise(done))
    kinds = [report.id <= 5 for report in done]  # whether it is a load
    assert kinds == [False, True] * 5
