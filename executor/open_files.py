"""How many files this process may have open: a connection is one.

The soft limit is often 1,024, for the sake of programs that wait with select(); ours does not
(executor/selector.py), so the soft limit is raised as far as the hard one lets us.
Not here: what else is limited (executor/front.py, Limits).
"""

from contextlib import suppress

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]


def allow(files: int) -> int:
    """Let this process have so many files open, where it may. Returns how many it may have now."""
    if resource is None:
        return files
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= files:
        return files
    most = files if hard == resource.RLIM_INFINITY else min(files, hard)
    with suppress(OSError, ValueError):  # macOS has one more limit, which it does not tell
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return int(soft)
