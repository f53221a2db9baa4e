"""Work on a profile's curve: durations over batch sizes.

Measured curves have holes and dents. What is done about them is asked for by name, and the
profile's note says so afterwards.
"""

from collections.abc import Sequence

import msgspec

from profiles.durations import Constant, Durations, Quantiles
from profiles.errors import ProfileError
from profiles.schema import Profile


def largest_batch(profile: Profile, limit_ns: int, q: float | None = None) -> int | None:
    """The largest measured batch that takes at most limit_ns; None if even the fastest does not.

    q: which quantile is to hold the limit; None for the mean. All sizes are looked at: on a curve
    with a dent, a scan that stops at the first size that is too slow misses larger ones.
    """
    fits = [
        batch
        for batch, durations in profile.exec.items()
        if (durations.mean_ns() if q is None else durations.estimate_ns(q)) <= limit_ns
    ]
    return max(fits, default=None)


def interpolated(profile: Profile, batches: Sequence[int]) -> Profile:
    """The profile at these batch sizes, in straight lines between those that were measured.

    Straight in the batch size itself, not in its logarithm: a kernel's time grows by the element.
    Raises ProfileError outside the measured sizes, and between sizes of different kinds.
    """
    have = profile.batch_sizes
    exec_ = {}
    added = []
    for batch in sorted(set(batches)):
        if batch in profile.exec:
            exec_[batch] = profile.exec[batch]
            continue
        if not have[0] < batch < have[-1]:
            raise ProfileError(
                f"{profile.name} at batch {batch}: measured are {have[0]} to {have[-1]}, and "
                "nothing is known beyond; leave it out, or measure it"
            )
        low = max(size for size in have if size < batch)
        high = min(size for size in have if size > batch)
        exec_[batch] = _between(profile, low, high, (batch - low) / (high - low), batch)
        added.append(batch)
    if not added:
        return msgspec.structs.replace(profile, exec=exec_)
    sizes = ", ".join(map(str, added))
    return _noted(profile, exec_, f"batch {sizes}: interpolated in straight lines, not measured")


def pooled(profile: Profile) -> Profile:
    """The profile without dents: neighbours that fall get their common mean.

    That is the closest curve which never falls, in the sense of least squares (pool adjacent
    violators).
    """
    pools: list[tuple[float, list[int]]] = []
    for batch, durations in profile.exec.items():
        mean_ns, sizes = durations.mean_ns(), [batch]
        while pools and pools[-1][0] > mean_ns:
            before_ns, before = pools.pop()
            total = before_ns * len(before) + mean_ns * len(sizes)
            sizes = before + sizes
            mean_ns = total / len(sizes)
        pools.append((mean_ns, sizes))
    exec_ = dict(profile.exec)
    changed = []
    for mean_ns, sizes in pools:
        if len(sizes) > 1:
            exec_.update({batch: Constant(round(mean_ns)) for batch in sizes})
            changed += sizes
    if not changed:
        return profile
    names = ", ".join(map(str, changed))
    return _noted(profile, exec_, f"batch {names}: pooled to a common mean, as measured they fall")


def _between(profile: Profile, low: int, high: int, share: float, batch: int) -> Durations:
    below, above = profile.exec[low], profile.exec[high]
    if isinstance(below, Constant) and isinstance(above, Constant):
        return Constant(round(below.ns + share * (above.ns - below.ns)))
    if (
        isinstance(below, Quantiles)
        and isinstance(above, Quantiles)
        and below.shares == above.shares
    ):
        return Quantiles(
            below.shares,
            tuple(round(a + share * (b - a)) for a, b in zip(below.ns, above.ns, strict=True)),
        )
    raise ProfileError(
        f"{profile.name} at batch {batch}: batches {low} and {high} are not both constants or "
        "quantiles of the same shares; expected two alike, to interpolate between"
    )


def _noted(profile: Profile, exec_: dict[int, Durations], note: str) -> Profile:
    note = f"{profile.note}; {note}" if profile.note else note
    return msgspec.structs.replace(profile, exec=exec_, note=note)
