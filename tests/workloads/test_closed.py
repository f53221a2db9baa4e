import math

import pytest

from workloads import Closed, WorkloadError


def test_each_model_has_its_own_clients():
    workload = Closed(concurrency=2, think_ms=1.5)
    assert workload.clients([4, 7]) == [(0, 4), (1, 4), (2, 7), (3, 7)]
    assert workload.think_ns == 1_500_000
    assert Closed(concurrency=1).think_ns == 0


def test_a_client_without_an_answer_waits_as_tf_servings_retrier_does():
    """100 us: batch_scheduler_retrier.h, retry_delay_micros."""
    assert Closed(concurrency=1).retry_after_ns == 100_000
    assert Closed(concurrency=1, retry_after_ms=0.0).retry_after_ns == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"concurrency": 0}, "concurrency = 0; expected clients a model, at least 1"),
        (
            {"link_gbit_per_s": -1.0},
            "link_gbit_per_s = -1.0; expected Gbit/s, at least 0, which is no link",
        ),
        ({"think_ms": -1.0}, "think_ms = -1.0; expected a finite time, at least 0"),
        ({"retry_after_ms": -1.0}, "retry_after_ms = -1.0; expected a finite time, at least 0"),
        ({"think_ms": math.nan}, "think_ms = nan; expected a finite time, at least 0"),
    ],
)
def test_values_that_make_no_sense_are_refused(fields, message):
    with pytest.raises(WorkloadError) as error:
        Closed(**{"concurrency": 1, **fields})
    assert str(error.value) == message
