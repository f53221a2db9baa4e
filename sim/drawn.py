"""Delays that vary: each message draws one of those that were measured.

A median is not enough where a server waits for its own messages: one that sends the next batch when
it hears of the last one is as fast as the mean of its round trips, and on a shared machine a few of
them are many times the median. What is drawn comes on top of the constant delays of
`sim.cluster.Delays`; draws are independent, also of what runs.
"""

from collections.abc import Mapping

import numpy as np

from profiles.durations import Durations
from sim.gpu import Stream


class Drawn:
    """Streams of delays, in ns; None where a delay does not vary.

    durations: by the names of these attributes; what is not there does not vary either, but for
    that of loads, which then is drawn from the batches'. rng: what all of them draw from.
    """

    def __init__(self, durations: Mapping[str, Durations | None], rng: np.random.Generator) -> None:
        streams = {name: each and Stream(each, rng) for name, each in durations.items()}
        self.client_to_controller = streams.pop("client_to_controller", None)
        self.wake = streams.pop("wake", None)
        self.controller_to_worker = streams.pop("controller_to_worker", None)
        self.worker_gap = streams.pop("worker_gap", None)
        self.worker_to_controller = streams.pop("worker_to_controller", None)
        self.load_to_controller = streams.pop("load_to_controller", self.worker_to_controller)
        assert not streams, f"{sorted(streams)} do not vary"
