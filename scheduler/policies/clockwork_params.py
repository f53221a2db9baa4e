"""Clockwork's parameters, and the faults of its artifact that they switch on."""

from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

_SOURCE: Final = "Clockwork artifact, concurrent_infer_and_load_scheduler.h"


def _ms(about: str, *, most: float, source: str = _SOURCE) -> Meta:
    return Meta(ge=0, le=most, description=about, extra={"unit": "ms", "source": source})


_BY_VARIANT: Final = {
    "max_loads": (2, 1000),
    "load_interval_us": (100.0, 0.0),
    "max_batch": (16, 8),
}
"""Constants in which infer4 and infer5 differ."""


class ClockworkParams(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Everything that is a constant in the artifact."""

    variant: Annotated[
        Literal["infer4", "infer5"],
        Meta(
            description="which of the artifact's schedulers; they differ in their queues, and "
            "infer5 has no limit on outstanding loads",
            extra={"source": _SOURCE + ", infer5_scheduler.h"},
        ),
    ] = "infer4"
    faithful_to: Annotated[
        Literal["none", "osdi20-artifact"],
        Meta(
            description="repeat the artifact's known faults: loads onto every GPU, plans 15 ms at "
            "the least, tells of a rejection only at the deadline less the buffer, and others "
            "(scheduler/policies/clockwork_params.py, Faults)",
            extra={"source": _SOURCE},
        ),
    ] = "none"
    faults: Annotated[
        list[str],
        Meta(
            description="repeat these of the artifact's faults, by name", extra={"source": _SOURCE}
        ),
    ] = []
    order: Annotated[
        Literal["latest_start", "deadline"],
        Meta(
            description="which strategy comes first: the one that has to start first, or (for "
            "comparison, infer4 only) the one that is due first",
            extra={"source": _SOURCE},
        ),
    ] = "latest_start"
    loads: Annotated[
        Literal["demand", "arrival"],
        Meta(
            description="which model is loaded first: the one with the most unmet demand, or (for "
            "comparison) the one whose oldest request came first; the latter makes no copies",
            extra={"source": _SOURCE},
        ),
    ] = "demand"
    default_slo_ms: Annotated[
        float,
        Meta(
            gt=0,
            le=1e9,
            description="time in which a GPU ought to serve what lies on it",
            extra={"unit": "ms", "source": _SOURCE + ", default_slo (capacity of LoadTracker)"},
        ),
    ] = 100.0
    buffer_ms: Annotated[float, _ms("aim to be done this long before the deadline", most=1e6)] = 5.0
    schedule_ahead_ms: Annotated[
        float, _ms("give a GPU work this long before it is free", most=1e6)
    ] = 10.0
    latest_delta_ms: Annotated[
        float, _ms("an action may start this long after the planned start", most=1e6)
    ] = 10.0
    future_ms: Annotated[
        float, _ms("an action reaches the worker this long after now", most=1e6)
    ] = 1.0
    lag_ms: Annotated[float, _ms("give no work to an engine that is overdue by more", most=1e6)] = (
        10.0
    )
    max_loads: Annotated[
        Annotated[int, Meta(ge=1, le=1000)] | None,
        Meta(
            description="outstanding loads a GPU; by default 2 in infer4 and 1000 in infer5",
            extra={"source": _SOURCE},
        ),
    ] = None
    load_interval_us: Annotated[
        Annotated[float, Meta(ge=0, le=1e6)] | None,
        Meta(
            description="between two loads of a GPU; by default 100 in infer4 and 0 in infer5",
            extra={"unit": "us", "source": _SOURCE + ", schedule_load"},
        ),
    ] = None
    max_load_slo_ms: Annotated[
        float, _ms("load demand of a request counts for at most this long", most=1e6)
    ] = 25.0
    estimate_window: Annotated[
        int,
        Meta(ge=1, le=10_000, description="measurements remembered", extra={"source": _SOURCE}),
    ] = 10
    estimate_percentile: Annotated[
        float,
        Meta(ge=0, le=1, description="share of them below the estimate", extra={"source": _SOURCE}),
    ] = 0.99
    max_batch: Annotated[
        Annotated[int, Meta(ge=1, le=65536)] | None,
        Meta(
            description="larger batch sizes are not used; by default 16 in infer4 and 8 in infer5",
            extra={"source": _SOURCE},
        ),
    ] = None
    max_exec_ms: Annotated[
        float, _ms("batch sizes that take longer are not used (the smallest always is)", most=1e9)
    ] = 250.0

    def __post_init__(self) -> None:
        for name, (infer4, infer5) in _BY_VARIANT.items():
            if getattr(self, name) is None:
                setattr(self, name, infer4 if self.variant == "infer4" else infer5)
        if self.schedule_ahead_ms <= self.future_ms:
            # An engine is free after future_ms at the earliest: nothing would ever be sent.
            raise ValueError(
                f"schedule_ahead_ms = {self.schedule_ahead_ms}; expected more than future_ms, "
                f"{self.future_ms}"
            )
        if unknown := set(self.faults) - set(Faults._fields):
            raise ValueError(
                f"faults = {sorted(unknown)}; expected some of {', '.join(Faults._fields)}"
            )
        if self.order == "deadline" and self.variant == "infer5":
            raise ValueError('order = "deadline" is for infer4; infer5 has no such order')


class Faults(NamedTuple):
    """What the artifact gets wrong, and what it costs.

    load_satisfied: "all demand satisfied" compares a pointer with zero and never holds, so every
        model with any demand is loaded onto every GPU. Costs PCIe time and pages wherever there
        is more than one GPU.
    plan_floor: no request is planned for less than schedule_ahead + buffer (15 ms), even if its
        SLO is shorter. Costs goodput at such SLOs: answers that come late take the GPU from
        requests that could have been in time.
    silent_rejects: a request that is given up is told so only at its deadline less the buffer.
        Costs the client its chance to go elsewhere, or to fail fast.
    used_up: a strategy that sends the requests in front of its own is used up, and its own may be
        left without any, to time out. Costs answers where a larger batch just fails.
    forget: a request speaks for a load of its model for max_load_slo (25 ms) and no longer, even
        if the model is nowhere. Costs requests with long SLOs or none while copy engines are busy.
    in_order: batches are taken in the order of arrival, also where a model's requests have
        different SLOs. Costs those with the shorter ones.
    in_id_order: a new request goes to the GPU with the lowest number among those that hold its
        model and have work for less than schedule_ahead, and not to the one that is free first.
        Costs latency wherever a model is on several GPUs that are not saturated: requests wait
        for up to schedule_ahead on the first GPUs while the last ones stand idle. Seen in the
        recorded runs: 2,000 req/s on 32 GPUs, used to 17%, have a median of 12.65 ms where a batch
        takes 2.73; the infer thread looks at the GPUs one after the other and sleeps in between.
    """

    load_satisfied: bool
    plan_floor: bool
    silent_rejects: bool
    used_up: bool
    forget: bool
    in_order: bool
    in_id_order: bool
