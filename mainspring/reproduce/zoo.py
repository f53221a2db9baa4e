"""The models of figures 9 and 11: 61 varieties, 66 copies of each.

The paper and its artifact say 61 varieties; the table in the appendix has 64 rows, and which three
were not in the experiment is not known. Our rule: the three rows of pruned models (`*_tuned_*`) are
left out, since they are the only three that are variants of a row beside them and not models of
their own. It is a guess. Like the artifact, we list the varieties by name and the copies of each
one after the other; the busiest functions go to the first ones.
"""

from pathlib import Path
from typing import Any

from mainspring.document import ScenarioError
from profiles import Profile, find

COPIES = 66

AZURE = Path("../shared/data/traces/azure_functions_2019/fn500_min480-799_invocations.csv.gz")
"""Microsoft's Azure Functions Trace 2019, 500 functions, minutes 480 to 799 (CC-BY 4.0)."""

FUNCTIONS = 17_000


def varieties() -> list[Profile]:
    """The 61 profiles, by name."""
    kept = [each for each in find("clockwork_v100/*") if "_tuned_" not in each.name]
    return sorted(kept, key=lambda profile: profile.name)


def models() -> list[dict[str, Any]]:
    """The tables `[[models]]` of 61 x 66 = 4,026 instances."""
    return [
        {"profile": f"clockwork_v100/{profile.name}", "copies": COPIES} for profile in varieties()
    ]


def derived(rate_rps: float) -> dict[str, Any]:
    """The workload of derived functions (workloads/azure2019_derived.py).

    Raises ScenarioError where the recorded trace is not there.
    """
    return {
        "kind": "azure2019_derived",
        "path": str(trace()),
        "functions": FUNCTIONS,
        "rate_rps": rate_rps,
    }


def trace() -> Path:
    """The recorded trace. Raises ScenarioError where it is not there."""
    if not AZURE.is_file():
        raise ScenarioError(
            f"{AZURE}: no such file; it is the extract of 500 functions of the Azure Functions "
            "Trace 2019 that scenarios/azure-2019.toml names; put it there"
        )
    return AZURE


def least_exec_ns(profile: Profile, max_batch: int) -> float:
    """What a request takes at the least: its share of the batch size that is cheapest a request."""
    return min(
        durations.mean_ns() / batch
        for batch, durations in profile.exec.items()
        if batch <= max_batch
    )
