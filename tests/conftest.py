"""What all tests share."""

from hypothesis import settings

# The same examples everywhere and every day: a failure that nobody can repeat helps nobody.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
