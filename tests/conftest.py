"""What all tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.pop("COLUMNS", None)  # of the terminal; what is printed here is as wide as in a file

_LIVE = {
    "executor": "bug_cases callers connections cpu_device faults front keys leaks live live_models "
    "measure noise open_files selector sender server service watch",
    "mainspring": "notebooks profile remote resumed_validation serve validate",
}
LIVE = [
    Path(__file__).parent / area / f"test_{name}.py"
    for area, names in _LIVE.items()
    for name in names.split()
]
"""Tests with real processes and clocks, which others beside them would slow down."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is live; `make test` runs the rest on all cores first."""
    for item in items:
        if item.path in LIVE:
            item.add_marker(pytest.mark.live)


# The same examples everywhere and every day: a failure that nobody can repeat helps nobody.
settings.register_profile("repeatable", derandomize=True, deadline=None)
# Other examples each time, and many: `pytest tests/properties --hypothesis-profile=soak`, or just
# MAINSPRING_EXAMPLES=200000 for so many a property. A failure prints how to repeat it.
settings.register_profile(
    "soak",
    derandomize=False,
    deadline=None,
    max_examples=int(os.environ.get("MAINSPRING_EXAMPLES", "20000")),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("soak" if "MAINSPRING_EXAMPLES" in os.environ else "repeatable")
