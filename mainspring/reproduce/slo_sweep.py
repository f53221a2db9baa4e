"""What figures 7 and 8 share: one run in which the SLO grows by half, step after step.

The SLO is a multiple of what a batch of one takes (the labels of the paper's axis are multiples of
2.9 ms, our batch of one takes 2.73). Each step is a workload of its own, one after the other, so
the queue at the end of a step is the next one's beginning, as in the original.
"""

from typing import Any

import numpy as np

from mainspring.reproduce.experiment import RESNET50, V100, Requests, clockwork

FACTORS = tuple(1.5**i for i in range(12))
"""1, 1.5, 2.25, ... 86.5."""

GPUS = 6
LEAD_IN_S = 3.0
"""Before the first step, at an SLO of 100 ms: the models come to the GPUs."""


def table(
    name: str, copies: int, asked: int, rate_rps: float, step_s: float, more: list[dict[str, Any]]
) -> dict[str, Any]:
    """A scenario. asked: how many of the copies the open loop asks; more: other workloads.

    The lead-in is workload 0, step i is workload 1 + i, then come the others.
    """
    models = [f"resnet50_v2.{i}" for i in range(asked)]

    def step(start_s: float, length_s: float, **slo: float) -> dict[str, Any]:
        steps = [[0.0, rate_rps], [length_s, 0.0]]
        return {"kind": "steps", "steps": steps, "models": models, "start_s": start_s, **slo}

    return {
        "name": name,
        "seed": 7,
        "duration_s": LEAD_IN_S + step_s * len(FACTORS),
        "cluster": {"gpus": GPUS} | V100,
        "models": [{"profile": RESNET50, "copies": copies}],
        "workload": [
            step(0.0, LEAD_IN_S, slo_ms=100.0),
            *(
                step(LEAD_IN_S + i * step_s, step_s, slo_factor=factor)
                for i, factor in enumerate(FACTORS)
            ),
            *more,
        ],
        "policy": clockwork(schedule_ahead_ms=5.0, latest_delta_ms=5.0, max_batch=8),
    }


def satisfaction(requests: Requests) -> list[tuple[int, int]]:
    """For each step, how many were answered in time, and of how many."""
    found = []
    for i in range(len(FACTORS)):
        step = requests.client == 1 + i
        found.append((int((requests.ok & step).sum()), int(step.sum())))
    return found


def reaches(shares: list[float], level: float) -> float:
    """The multiple of the SLO at which the share passes a level, between two steps by line."""
    for i, share in enumerate(shares):
        if share >= level:
            if i == 0:
                return FACTORS[0]
            part = (level - shares[i - 1]) / (share - shares[i - 1])
            return float(np.exp(np.interp(part, [0, 1], np.log(FACTORS[i - 1 : i + 1]))))
    return float("inf")
