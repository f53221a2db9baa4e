"""Clients that wait for their answer before they ask again.

When they ask depends on how they are served, so there are no arrivals to give in advance: this
says who the clients are, and the world plays them.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from workloads.common import LONGEST_MS, Common, WorkloadError, require_time

MIN_RETRY_NS: Final = 1_000
"""A client asks again after this long at the earliest: an instant answer must not stop time."""


RETRY_AFTER_MS: Final = 0.1
"""What TF Serving's batch_scheduler_retrier.h waits before it tries again."""


class Client(NamedTuple):
    """One client: asks, waits for the end of its request, thinks, asks again. id: what its
    requests bear."""

    id: int
    model: int
    slo_ns: int
    think_ns: int
    start_ns: int
    until_ns: int
    retry_after_ns: int = 0

    def wait_ns(self, answered: bool) -> int:
        """How long it waits, after the end of a request, before it asks again."""
        return self.think_ns if answered else max(self.think_ns, self.retry_after_ns)


class Closed(Common, frozen=True, kw_only=True, tag_field="kind", tag="closed"):
    """Closed-loop clients.

    concurrency: clients for each model; each has one request under way. think_ms: what a client
    waits after an answer before it asks again.
    retry_after_ms: what it waits at least after a request that got no answer. Where a policy
    rejects at once, a client that asked again at once would ask for ever and time stand still. The
    default is RETRY_AFTER_MS.
    link_gbit_per_s: the clients share one link to the controller, and their inputs go over it one
    after the other; a request counts, as in Clockwork, from when it is through. 0: no such link.
    rate_rps: always refused: it belongs to the open-loop kinds.
    """

    concurrency: int
    think_ms: float = 0.0
    retry_after_ms: float = RETRY_AFTER_MS
    link_gbit_per_s: float = 0.0
    rate_rps: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rate_rps is not None:
            raise WorkloadError(
                f"rate_rps = {self.rate_rps}; this kind is closed-loop: a client asks again when "
                "it has its answer, so that the rate follows from the latency. Requests at a "
                'rate of their own are kind = "constant" or "poisson", without concurrency'
            )
        if self.concurrency < 1:
            raise WorkloadError(
                f"concurrency = {self.concurrency}; expected clients a model, at least 1"
            )
        require_time("think_ms", self.think_ms, longest=LONGEST_MS)
        require_time("retry_after_ms", self.retry_after_ms, longest=LONGEST_MS)
        if not 0 <= self.link_gbit_per_s <= 1e9:
            raise WorkloadError(
                f"link_gbit_per_s = {self.link_gbit_per_s}; expected Gbit/s, at least 0, which is "
                "no link"
            )

    @property
    def think_ns(self) -> int:
        """What a client waits after an answer."""
        return round(self.think_ms * 1e6)

    @property
    def retry_after_ns(self) -> int:
        """What a client waits at least after a request that got no answer."""
        return round(self.retry_after_ms * 1e6)

    def clients(self, models: Sequence[int]) -> list[tuple[int, int]]:
        """(index of the client from 0, model it asks for), all clients of a model in a row.

        models: what `select` gave.
        """
        asked = [model for model in models for _ in range(self.concurrency)]
        return list(enumerate(asked))
