"""Look for what is odd about profiles before a run is built on them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from profiles.durations import Samples
from profiles.errors import ProfileError
from profiles.schema import Profile

MOST_DRIFT: Final = 0.05
"""How far the medians of the first and the second half of the samples may be apart."""


def complaints(profile: Profile) -> Iterator[str]:
    """What is odd about one profile, each in a line."""
    if dent := profile.not_monotone():
        yield dent
    lacking = missing_batches(profile)
    if lacking:
        yield (
            f"{profile.name}: no measurement at batch {', '.join(map(str, lacking))}; "
            "a policy that rounds batches to powers of two cannot use them"
        )
    for batch, durations in profile.exec.items():
        if isinstance(durations, Samples) and (drift := _drift(durations)):
            early, late = drift
            yield (
                f"{profile.name} at batch {batch} is unstable: the first half of its samples has "
                f"a median of {early / 1e6:g} ms, the second of {late / 1e6:g} ms "
                f"({late / early - 1:+.0%}); did the device get hot?"
            )


def missing_batches(profile: Profile) -> list[int]:
    """The powers of two below the largest batch size that were not measured."""
    largest = profile.batch_sizes[-1]
    powers = [2**i for i in range(largest.bit_length()) if 2**i < largest]
    return [batch for batch in powers if batch not in profile.exec]


def mixed_devices(profiles: Sequence[Profile]) -> list[str]:
    """A line about each profile of another device than most of them."""
    devices = Counter(profile.device for profile in profiles)
    most, _ = devices.most_common(1)[0]
    return [
        f"{profile.name} was measured on {profile.device}, and most of the others on {most}; "
        "expected one device"
        for profile in profiles
        if profile.device != most
    ]


def require_device(profiles: Sequence[Profile], device: str) -> list[Profile]:
    """The profiles of a device. Raises ProfileError if there is none."""
    found = [profile for profile in profiles if profile.device == device]
    if not found:
        have = ", ".join(sorted({profile.device for profile in profiles}))
        raise ProfileError(f"no profile for {device}; have {have}")
    return found


def infeasible(profile: Profile, slo_ns: int, *, times: float = 1.0, rule: str = "") -> str:
    """Why no request can be in time at all, in one line; nothing if one can.

    times: how often the fastest batch has to fit into the SLO; 2 is Nexus' rule, where a request
    may just miss a batch. rule: what that is called.
    """
    fastest, durations = min(profile.exec.items(), key=lambda item: item[1].mean_ns())
    ms = durations.mean_ns() / 1e6
    if times * durations.mean_ns() <= slo_ns:
        return ""
    needs = f"{times:g} x " if times != 1 else ""
    return (
        f"{profile.name}: infeasible{f' under {rule}' if rule else ''}: its fastest batch "
        f"({fastest}) needs {needs}{ms:g} ms, and the SLO is {slo_ns / 1e6:g} ms"
    )


def _drift(samples: Samples) -> tuple[float, float] | None:
    half = len(samples.ns) // 2
    if half < 2:
        return None
    early, late = median(samples.ns[:half]), median(samples.ns[half:])
    return (early, late) if abs(late / early - 1) > MOST_DRIFT else None
