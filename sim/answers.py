"""What models say: labels drawn for each request and model, right and wrong together.

Models err on the same requests, because some requests are hard. One number a request says how hard
it is, and models see it with a noise of their own (a Gaussian copula with one factor):

    model i errs   if  sqrt(alike) * hard + sqrt(1 - alike) * own_i  >  quantile(1 - error_i)

so each model errs at its own rate, whatever `alike` is. A wrong answer is the label that the
request is most easily taken for, with probability `confused`, else any other wrong one.

Answers depend on the seed and the request's number alone, not on who asks first.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]

BLOCK = 4096
KEPT = 16
"""Blocks at hand; an older one is drawn again."""


class Answers:
    """errors: by model, the share that it gets wrong, from 0 to 1. alike, confused: 0 to 1.

    labels: how many there are, at least 2. Raises ValueError for anything else.
    """

    def __init__(
        self,
        errors: Sequence[float],
        labels: int,
        alike: float,
        confused: float,
        seed: int | Sequence[int],
    ) -> None:
        shares = [("alike", alike), ("confused", confused), *(("error", e) for e in errors)]
        for name, share in shares:
            if not 0 <= share <= 1:
                raise ValueError(f"{name} = {share} is not a share; expected 0 to 1")
        if labels < 2:
            raise ValueError(f"labels = {labels}; expected at least 2, one of them wrong")
        self.errors = tuple(errors)
        self.labels = labels
        self._alike = alike
        self._confused = confused
        self._seed = list(seed) if isinstance(seed, Sequence) else [seed]
        self._blocks: dict[int, tuple[list[int], list[list[int]]]] = {}

    def block(self, number: int, n: int = BLOCK) -> tuple[Labels, Labels]:
        """Truth, shape (n,), and what each model says, shape (n, models)."""
        rng = np.random.default_rng([*self._seed, number])
        models = len(self.errors)
        hard = rng.standard_normal((n, 1))
        own = rng.standard_normal((n, models))
        seen = np.sqrt(self._alike) * hard + np.sqrt(1 - self._alike) * own
        from scipy.special import ndtri  # late: it takes long to load, and few runs need it

        wrong = seen > ndtri(1 - np.array(self.errors))
        truth = rng.integers(self.labels, size=n)
        # A shift by 1 to labels - 1 is wrong whatever the truth is.
        taken_for = rng.integers(1, self.labels, size=(n, 1))
        any_other = rng.integers(1, self.labels, size=(n, models))
        shift = np.where(rng.random((n, models)) < self._confused, taken_for, any_other)
        said = (truth[:, None] + np.where(wrong, shift, 0)) % self.labels
        return truth, said

    def truth(self, request: int) -> int:
        """The label of a request."""
        return self._load(request)[0][request % BLOCK]

    def says(self, request: int, model: int) -> int:
        """What a model says to a request."""
        return self._load(request)[1][request % BLOCK][model]

    def _load(self, request: int) -> tuple[list[int], list[list[int]]]:
        number = request // BLOCK
        block = self._blocks.get(number)
        if block is None:
            truth, said = self.block(number)
            block = self._blocks[number] = truth.tolist(), said.tolist()
            if len(self._blocks) > KEPT:
                del self._blocks[next(iter(self._blocks))]
        return block
