"""Curves with holes and dents, and what a check says of them."""

import warnings

import pytest

from profiles import Constant, Profile, ProfileError, ProfileWarning, Quantiles, Samples
from profiles.check import complaints, infeasible, mixed_devices, require_device
from profiles.curve import interpolated, largest_batch, pooled


def profile(exec_ms, name="m", device="X", **fields):
    """A profile with these milliseconds for each batch size."""
    values = {
        batch: Constant(round(ms * 1e6)) if isinstance(ms, int | float) else ms
        for batch, ms in exec_ms.items()
    }
    return Profile(
        name=name, device=device, weights_bytes=1, input_bytes=1, output_bytes=1,
        load=Constant(1), exec=values, **fields,
    )  # fmt: skip


def ms(found):
    return {batch: durations.mean_ns() / 1e6 for batch, durations in found.exec.items()}


DENTED = {1: 5, 2: 6, 4: 12, 8: 11}


def dented():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ProfileWarning)
        return profile(DENTED)


def test_bug_prf_03_a_dent_does_not_hide_the_larger_batch_behind_it():
    assert largest_batch(dented(), 11_200_000) == 8
    smooth = pooled(dented())
    assert ms(smooth) == {1: 5, 2: 6, 4: 11.5, 8: 11.5}
    assert largest_batch(smooth, 11_200_000) == 2
    assert smooth.note == "batch 4, 8: pooled to a common mean, as measured they fall"


def test_bug_prf_03_the_loader_warns_once_with_both_numbers():
    with pytest.warns(ProfileWarning) as caught:
        profile(DENTED)
    assert [str(warning.message) for warning in caught] == [
        "m on X: batch 8 (11 ms) is faster than batch 4 (12 ms); used as measured"
    ]
    with pytest.warns(ProfileWarning) as caught:
        profile({1: 5, 2: 4, 3: 6, 4: 3})
    assert [str(warning.message) for warning in caught] == [
        "m on X: batch 2 (4 ms) is faster than batch 1 (5 ms), and so 1 more times; "
        "used as measured"
    ]


def test_pooling_is_the_closest_curve_that_never_falls():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ProfileWarning)
        falling = profile({1: 9, 2: 6, 3: 3, 4: 10})
    assert ms(pooled(falling)) == {1: 6, 2: 6, 3: 6, 4: 10}
    rising = profile({1: 1, 2: 2})
    assert pooled(rising) is rising


def test_bug_prf_04_between_measured_sizes_the_line_is_straight_in_the_batch_size():
    line = profile({1: 11, 64: 74})
    found = interpolated(line, (1, 8, 33, 64))
    assert ms(found) == {1: 11, 8: 18, 33: 43, 64: 74}
    assert found.note == "batch 8, 33: interpolated in straight lines, not measured"
    with pytest.raises(ProfileError) as error:
        interpolated(line, (128,))
    assert str(error.value) == (
        "m at batch 128: measured are 1 to 64, and nothing is known beyond; "
        "leave it out, or measure it"
    )


def test_quantiles_are_interpolated_one_by_one_and_other_kinds_not():
    low, high = Quantiles((0.5, 0.9), (10, 20)), Quantiles((0.5, 0.9), (30, 60))
    found = interpolated(profile({1: low, 3: high}), (2,))
    assert found.exec == {2: Quantiles((0.5, 0.9), (20, 40))}
    with pytest.raises(ProfileError, match="are not both constants or quantiles"):
        interpolated(profile({1: low, 3: Samples((30,))}), (2,))


def test_bug_prf_05_a_missing_size_names_those_there_are():
    with pytest.raises(ProfileError) as error:
        profile({4: 4, 8: 8}).at_batch(1)
    assert "no profile for m at batch 1 (have 4, 8)" in str(error.value)
    assert list(complaints(profile({4: 4, 8: 8}))) == [
        "m: no measurement at batch 1, 2; a policy that rounds batches to powers of two "
        "cannot use them"
    ]


def test_bug_prf_05_an_slo_below_the_fastest_batch_is_infeasible():
    assert infeasible(profile({1: 120}), 100_000_000) == (
        "m: infeasible: its fastest batch (1) needs 120 ms, and the SLO is 100 ms"
    )
    mid = profile({1: 60})
    assert infeasible(mid, 100_000_000) == ""
    assert infeasible(mid, 100_000_000, times=2, rule="Nexus' rule") == (
        "m: infeasible under Nexus' rule: its fastest batch (1) needs 2 x 60 ms, and the SLO is "
        "100 ms"
    )


def test_bug_prf_06_a_profile_of_another_device_is_named():
    """The live half waits for the executor: a worker that reports another device."""
    found = [profile({1: 1}, "a", "X"), profile({1: 1}, "b", "X"), profile({1: 1}, "c", "Y")]
    with pytest.raises(ProfileError) as error:
        require_device(found, "Z")
    assert str(error.value) == "no profile for Z; have X, Y"
    assert [p.name for p in require_device(found, "X")] == ["a", "b"]
    assert mixed_devices(found) == [
        "c was measured on Y, and most of the others on X; expected one device"
    ]


def test_bug_prf_07_samples_that_drift_are_unstable_and_both_medians_are_told():
    """The other half, samples that a device flags as throttled, waits for measuring."""
    drifting = Samples((40_000_000,) * 50 + (48_000_000,) * 50)
    assert list(complaints(profile({1: drifting}))) == [
        "m at batch 1 is unstable: the first half of its samples has a median of 40 ms, "
        "the second of 48 ms (+20%); did the device get hot?"
    ]
    assert list(complaints(profile({1: Samples((40, 41, 40, 41))}))) == []
