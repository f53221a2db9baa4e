"""A simulated GPU that is not always alike: its times vary a little, and its clock may change.

Profiles often hold one number a batch size. `Noise` spreads such a constant by what an exclusive
GPU was seen to do; a profile that has a distribution of its own is left as it is. The clock of the
cores stretches what runs on them, not what is copied: a batch takes its time at the nominal clock,
times nominal over actual, at the clock at which it starts.
Not here: what a policy makes of it (`scheduler/policies/clockwork.py`), and GPUs that are shared
(`sim/shared.py`), whose times vary far more.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from scheduler.records import NOMINAL_MHZ, Action, Infer, Result, Status
from scheduler.worker import ENGINES, Engine
from sim.gpu import SimGpu


class Factors(NamedTuple):
    """Quantiles of what a constant duration is multiplied by.

    Between two of them the inverse distribution is a straight line, outside it is flat.
    """

    shares: tuple[float, ...]
    factors: tuple[float, ...]


class Noise(NamedTuple):
    """How batches and loads vary."""

    exec: Factors
    load: Factors


V100: Final = Noise(
    exec=Factors(
        (0.0001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999),
        (0.9997, 0.9998123, 0.9998966, 0.9999456, 1, 1.0000544, 1.0001034, 1.0001877,
         1.0002493, 1.0003),
    ),
    load=Factors(
        (0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1),
        (0.99917, 0.99934, 0.99945, 0.99982, 1, 1.00027, 1.00233, 1.00538, 1.01036),
    ),
)  # fmt: skip
"""An exclusive V100.

exec: one quantile is published, the 99.99th percentile within 0.03% of the median (Clockwork,
section 2). The shape is ours: normal, through that quantile and the median.
load: 48 loads that come with the authors' source (malixian/clockwork,
graphs/predictability/model_load_predictability_sample.csv: three ResNets, 16 loads each, over
their medians). The GPU is not named; the times are those of the V100's table within 0.5%."""

NOISES: Final = {"v100": V100}

BLOCK: Final = 1024


class _Factor:
    """Draws factors, a block at a time."""

    def __init__(self, factors: Factors, rng: np.random.Generator) -> None:
        self._factors = factors
        self._rng = rng
        self._block: list[float] = []

    def next(self) -> float:
        """The next factor."""
        if not self._block:
            shares, factors = self._factors
            self._block = np.interp(self._rng.random(BLOCK), shares, factors).tolist()
        return self._block.pop()


class VaryingGpu(SimGpu):
    """The arguments of SimGpu, and how it varies.

    noise: None for none. noise_rngs: one generator for each engine.
    clocks: (from when on in ns, MHz), ascending; before the first the clock is nominal.
    """

    def __init__(
        self,
        *args: Any,
        noise: Noise | None = None,
        noise_rngs: Sequence[np.random.Generator] = (),
        clocks: Sequence[tuple[int, int]] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._tell, self._report = self._report, self._with_clock
        self._clock_from_ns = [at_ns for at_ns, _ in clocks]
        self._clock_mhz = [NOMINAL_MHZ, *(mhz for _, mhz in clocks)]
        self._exec_mhz = NOMINAL_MHZ  # of the batch that runs
        self._factors = (
            None
            if noise is None
            else [
                _Factor(noise.exec if engine is Engine.EXEC else noise.load, noise_rngs[engine])
                for engine in ENGINES
            ]
        )

    def _with_clock(self, result: Result) -> None:
        ran = type(result.action) is Infer and result.status is Status.DONE
        result.clock_mhz = self._exec_mhz if ran else self._now_mhz()
        self._tell(result)

    def _now_mhz(self) -> int:
        return self._clock_mhz[bisect_right(self._clock_from_ns, self._clock.now)]

    def _draw(self, action: Action) -> int:
        duration_ns = super()._draw(action)
        batch = type(action) is Infer
        if self._factors is not None:
            cost = self._costs[action.model]
            durations = cost.exec[action.batch] if isinstance(action, Infer) else cost.load
            if durations.constant_ns is not None:
                engine = Engine.EXEC if batch else Engine.COPY
                duration_ns = round(duration_ns * self._factors[engine].next())
        if batch:
            self._exec_mhz = self._now_mhz()
            if self._exec_mhz != NOMINAL_MHZ:
                duration_ns = duration_ns * NOMINAL_MHZ // self._exec_mhz
        return max(duration_ns, 1)
