"""`mainspring profile`: what models cost on this device, written where `mainspring run` reads it.

A profile holds every duration that was measured. The file is written after each model, so that
Ctrl-C leaves what there is, whole.
Not here: the measuring (executor.measure), and the file format (profiles).
"""

import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from executor.device import DeviceError, DeviceState
from executor.measure import WARM_UP, Measured, measure
from executor.models import ModelError, size_of
from executor.watch import CLOCK_CHANGED
from mainspring import __version__
from mainspring.live import Box
from mainspring.run import Progress, stop_on_ctrl_c
from profiles import Constant, Profile, ProfileError, ProfileWarning, Samples, read
from profiles.writer import write

BEYOND: Final = 10
"""A quantile is quoted where so many values lie beyond it."""

QUANTILES: Final = (0.9999, 0.999, 0.99, 0.9)

PREDICTABLE: Final = 1.25
"""A window is planned for the slow end of a batch's durations. Where that is further above the
median, more than a fifth of a planned GPU stands idle, and windows make little sense. The GPU of
the Clockwork paper had 1.0003 at p99.99 (section 2.2)."""

GRAIN_MS: Final = 0.1
"""What a message between processes takes; a slow end that costs less than that costs nothing."""

PAGE_BYTES: Final = 1 << 24

SPREAD_BYTES: Final = 1 << 27
"""Copies of a model are measured in turn until their weights exceed what caches hold."""

MOST_COPIES: Final = 8


class Steadiness(msgspec.Struct, frozen=True):
    """How predictable one batch size is. ratio: the highest quantile that n runs support, over the
    median."""

    model: str
    batch: int
    n: int
    median_ms: float
    quantile: float
    ratio: float

    @property
    def predictable(self) -> bool:
        """Whether windows make sense."""
        return self.ratio <= PREDICTABLE or self.median_ms * (self.ratio - 1) <= GRAIN_MS


def runs_for(quantile: float) -> int:
    """How many runs support a quantile."""
    return int(np.ceil(round(BEYOND / (1 - quantile), 6)))


def profile(
    models: Sequence[str],
    batches: Sequence[int],
    out: Path,
    *,
    box: Box,
    quantile: float,
    loads: int,
    add: bool = False,
    partial: bool = True,
    seconds: float = math.inf,
    rest_s: float = 0.0,
    progress: Progress | None = None,
) -> list[Profile]:
    """Measure models, and write their profiles to `out`; returns all that it then holds.

    quantile: that each batch size has to support. loads: of each model. add: keep what `out` has,
    and measure the models that it lacks. seconds: a model gets at most so many, and then perhaps
    fewer runs. rest_s: the mean pause before each batch. Ends early on Ctrl-C; partial: and then
    keeps what it has of the model under way. Raises ProfileError.
    """
    if out.suffix != ".toml":
        raise ProfileError(f"-o {out}; expected a name that ends in .toml")
    if out.exists() and not add:
        raise ProfileError(f"-o {out} is there already; choose another name, or --add to it")
    done = _read(out) if out.exists() else []
    names = [name for name in dict.fromkeys(models) if name not in {one.name for one in done}]
    with stop_on_ctrl_c() as stopped:
        for name in names:
            end_s = math.inf

            def stop(share: float, name: str = name) -> bool:
                nonlocal end_s
                now_s = time.monotonic()
                if share == 0:
                    end_s = now_s + seconds
                if progress is not None:
                    progress(name, max(share, 1 - (end_s - now_s) / seconds))
                return stopped.is_set() or now_s > end_s

            try:
                one = _measured(name, batches, box, runs_for(quantile), loads, stop, rest_s)
            except (DeviceError, ModelError) as error:
                raise ProfileError(f"{name}: {error}") from None
            if one is not None and (partial or not stopped.is_set()):
                done.append(one)
                _write(out, done)
            if stopped.is_set():
                break
            if progress is not None:
                progress(name, 1.0)
    if not done and partial:
        raise ProfileError("interrupted before there was anything to keep")
    return done


def steadiness(profiles: Sequence[Profile]) -> list[Steadiness]:
    """How predictable each measured batch size is."""
    return [
        Steadiness(one.name, batch, len(durations.ns), *_tail(np.array(durations.ns)))
        for one in profiles
        for batch, durations in one.exec.items()
        if isinstance(durations, Samples)
    ]


def print_steadiness(found: Sequence[Steadiness]) -> None:
    """A line a batch size, then what follows."""
    print(f"{'model':<20} {'batch':>5} {'n':>7} {'median ms':>10}  slow end / median")
    for one in found:
        print(
            f"{one.model:<20} {one.batch:>5} {one.n:>7,} {one.median_ms:>10.4g}  "
            f"p{100 * one.quantile:g} {one.ratio:.3f}{'' if one.predictable else '  !'}"
        )
    bad = [one for one in found if not one.predictable]
    if bad:
        worst = max(bad, key=lambda one: one.ratio)
        print(
            f"\nnot predictable enough for windows: {len(bad)} of {len(found)} (!), the worst "
            f"{worst.model} at batch {worst.batch} with {worst.ratio:.2f} where {PREDICTABLE:g} "
            "is the limit. Policies that plan by windows (clockwork) will reserve too much or "
            "miss; free the device of other work, fix its clocks, and measure again."
        )
    else:
        print(
            f"\npredictable enough for windows: all are within {PREDICTABLE:g}, "
            f"or within {GRAIN_MS:g} ms of the median"
        )


def draw(profiles: Sequence[Profile], file: Path) -> list[Path]:
    """Draw which share of the runs took longer than so many times their median."""
    from results.plots import COLOURS, GREY, styled

    with styled((6.5, 3.2), "How predictable the device is") as figure:
        axes: Any = figure.subplots()
        for i, one in enumerate(profiles):
            for durations in one.exec.values():
                if isinstance(durations, Samples):
                    ns = np.sort(np.array(durations.ns, dtype=float))
                    beyond = 1 - (np.arange(len(ns)) + 1) / (len(ns) + 1)
                    axes.plot(ns / np.median(ns), beyond, color=COLOURS[i % len(COLOURS)], lw=0.9)
            axes.plot([], [], color=COLOURS[i % len(COLOURS)], label=one.name)
        axes.axvline(PREDICTABLE, color=GREY, lw=0.8, ls="--")
        axes.text(PREDICTABLE, 1.05, " limit for windows", fontsize=7, color=GREY, va="bottom")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("execution time over its median, a line a batch size")
        axes.set_ylabel("share that takes longer")
        axes.legend(fontsize=7, loc="upper right")
        axes.grid(visible=True)
        _plain_ticks(axes)
    return figure.save(file)


def _plain_ticks(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda x, _: f"{x:g}" if x in (2, 3, 5) else ""))
    axes.tick_params(axis="x", which="minor", labelsize=6)


def _measured(
    name: str,
    batches: Sequence[int],
    box: Box,
    runs: int,
    loads: int,
    stop: Callable[[float], bool],
    rest_s: float = 0.0,
) -> Profile | None:
    """One model's profile; None where it was stopped before there was anything."""
    from executor.devices import open_device
    from executor.wire import Bill, Setup

    size = size_of(name, box.sources)
    pages = -(-size.weights // PAGE_BYTES)
    anything = Constant(1)
    bill = Bill(pages, anything, dict.fromkeys(batches, anything), name)
    copies = max(1, min(MOST_COPIES, -(-SPREAD_BYTES // size.weights)))
    setup = Setup((copies + 1) * pages, 0, [bill] * copies, box.device, PAGE_BYTES)
    device = open_device(setup, box.sources)
    try:
        came = measure(device, copies, pages, batches, runs, loads, stop, rest_s)
    finally:
        device.close()
    if not came.load_ns or not all(came.exec_ns.values()):
        return None
    with warnings.catch_warnings(action="ignore", category=ProfileWarning):
        return Profile(
            name=name,
            device=came.before.name,
            weights_bytes=size.weights,
            input_bytes=size.input,
            output_bytes=size.output,
            load=Samples(tuple(came.load_ns)),
            exec={batch: Samples(tuple(ns)) for batch, ns in came.exec_ns.items()},
            source=f"measured by mainspring {__version__} on {date.today().isoformat()}",
            licence="yours: measured on your device",
            note=_note(came, copies, rest_s),
        )


def _note(came: Measured, copies: int, rest_s: float) -> str:
    """Under which circumstances it was measured."""
    before, after = came.before, came.after
    n = min(map(len, came.exec_ns.values()))
    parts = [
        f"{n} runs of each batch size and {len(came.load_ns)} loads after {WARM_UP} of each for "
        f"warming up, {copies} copies in turn; nothing was left out; batch sizes in random order; "
        "inputs made on the device"
    ]
    if rest_s:
        parts.append(f"a rest of {rest_s * 1e3:g} ms on average before each batch")
    if before.clock_mhz and after.clock_mhz:
        parts.append(f"clock {before.clock_mhz} MHz before, {after.clock_mhz} after")
    if before.temperature_c is not None and after.temperature_c is not None:
        parts.append(f"{before.temperature_c} degrees before, {after.temperature_c} after")
    parts.append(_slowed(before, after) or "no throttling seen")
    if hasattr(os, "getloadavg"):
        parts.append(f"load average {os.getloadavg()[0]:.1f}")
    return "; ".join(parts)


def _slowed(before: DeviceState, after: DeviceState) -> str:
    """What the device said of being slowed down, and a clock that has changed."""
    said = "; ".join(dict.fromkeys(state.throttled for state in (before, after) if state.throttled))
    if said:
        return f"throttled: {said}"
    if before.clock_mhz and after.clock_mhz:
        change = after.clock_mhz / before.clock_mhz - 1
        if abs(change) > CLOCK_CHANGED:
            return f"the clock changed by {change:+.0%} meanwhile"
    return ""


def complaint(one: Profile) -> str:
    """What a profile's note says of a device that was slowed down; nothing where it was not."""
    parts = one.note.split("; ")
    return next((part for part in parts if part.startswith(("throttled:", "the clock"))), "")


def _tail(ns: Any) -> tuple[float, float, float]:
    """The median in ms, the highest quantile with BEYOND values beyond it, and that over it."""
    median = float(np.median(ns))
    quantile = next((q for q in QUANTILES if len(ns) * (1 - q) >= BEYOND - 1e-9), 0.5)
    return median / 1e6, quantile, float(np.quantile(ns, quantile)) / median


def _read(out: Path) -> list[Profile]:
    with warnings.catch_warnings(action="ignore", category=ProfileWarning):
        return read(out)


def _write(out: Path, profiles: Sequence[Profile]) -> None:
    """Whole or not at all."""
    draft = out.with_name(f".{out.name}.part")
    out.parent.mkdir(parents=True, exist_ok=True)
    write(draft, profiles)
    draft.replace(out)
