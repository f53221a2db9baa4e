"""What all tests share."""

import os

from hypothesis import HealthCheck, settings

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
