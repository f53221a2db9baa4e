"""Which model should be loaded next, and where: Clockwork's accounting of unmet demand.

Each request brings demand: the share of a GPU that it needs if it is to be served within its SLO
(`exec`), and within the time in which a load can still help it (`load`). A GPU that holds a model
serves a share of that model's load demand, the smaller the more work the GPU already has. What
remains is the model's priority to be loaded.
Source: Clockwork, src/clockwork/controller/load_tracker.cpp.

As in the original, a model's work is spread anew over its GPUs whenever something about it
changes, and its priority counts as it was at its own last change. The original keeps every model
sorted for every GPU; here only the models that are wanted stand in one heap.
"""

from collections import deque
from heapq import heapify, heappop, heappush


class ModelDemand:
    """The demand for one model. Sizes are in ns of a GPU's time per capacity."""

    __slots__ = (
        "added",
        "exec",
        "expired",
        "expiring",
        "holders",
        "id",
        "listed",
        "met",
        "shares",
    )  # fmt: skip

    def __init__(self, model: int) -> None:
        self.id = model
        self.exec = 0
        """Demand of the requests that are not finished."""
        self.holders: list[GpuDemand] = []
        """GPUs that hold the model or are loading it."""
        self.shares: list[tuple[GpuDemand, float]] = []
        """What of `exec` was laid on which of them."""
        self.listed: float | None = None
        """The priority at which it waits to be loaded; None if it does not."""
        self.added = 0
        self.met = 0
        self.expired = 0
        """Load demand: all there was, what was sent to a GPU, and what is too old for a load to
        help. What is left is added less the larger of the other two."""
        self.expiring: deque[tuple[int, int]] = deque()
        """(when, size) of what will expire."""


class GpuDemand:
    """The demand that models lay on one GPU."""

    __slots__ = ("outstanding", "weight")

    def __init__(self) -> None:
        # The original's initial values: 1 ms of work is always assumed.
        self.outstanding = 1e6
        self.weight = 0.01


class Demand:
    """The demand for all models on all GPUs.

    capacity_ns: the time in which a GPU ought to serve what lies on it; the default SLO.
    load_satisfied: whether a model with no demand left to meet is still a candidate.
    """

    def __init__(self, models: int, gpus: int, capacity_ns: int, *, load_satisfied: bool) -> None:
        self.models = [ModelDemand(model) for model in range(models)]
        self._gpus = [GpuDemand() for _ in range(gpus)]
        self._capacity = capacity_ns
        self._load_satisfied = load_satisfied
        self._heap: list[tuple[float, int]] = []  # (-priority, model)

    def add(self, model: int, exec_size: int, load_size: int, now_ns: int, until_ns: int) -> None:
        """A request came, and speaks for a load of its model until until_ns."""
        m = self.models[model]
        m.exec += exec_size
        m.added += load_size
        m.expiring.append((until_ns, load_size))
        self._list(m, self._priority(m, now_ns))

    def meet(self, model: int, load_size: int) -> None:
        """Requests were sent to a GPU, or given up."""
        self.models[model].met += load_size

    def complete(self, model: int, exec_size: int, now_ns: int) -> None:
        """Requests were finished, or given up."""
        m = self.models[model]
        m.exec -= exec_size
        self._priority(m, now_ns)  # less work makes no model wanted

    def hold(self, model: int, gpu: int, now_ns: int) -> None:
        """A GPU begins to load the model."""
        m = self.models[model]
        m.holders.append(self._gpus[gpu])
        self._list(m, self._priority(m, now_ns))

    def release(self, model: int, gpu: int, now_ns: int) -> None:
        """A GPU does not hold the model any more."""
        m = self.models[model]
        m.holders.remove(self._gpus[gpu])
        self._list(m, self._priority(m, now_ns))

    def any_wanted(self) -> bool:
        """False if no model is wanted; True if one may be."""
        return bool(self._heap)

    def pop_most_wanted(self, now_ns: int) -> int | None:
        """Take the model that some GPU should load before all others, None if there is none.

        It is listed again when its demand changes, which a load of it does, or by `list_again`.
        """
        heap = self._heap
        while heap:
            negative, model = heappop(heap)
            m = self.models[model]
            if m.listed != -negative:
                continue  # an old entry: the model is listed elsewhere, or not at all
            m.listed = None
            priority = self._priority(m, now_ns)  # its demand may have expired while it waited
            if priority == -negative:
                return model
            self._list(m, priority)
        return None

    def list_again(self, model: int, now_ns: int) -> None:
        """Put a model back that nobody can load now."""
        m = self.models[model]
        self._list(m, self._priority(m, now_ns))

    def empty(self, model: int) -> bool:
        """Whether nobody waits for the model."""
        return self.models[model].exec == 0

    def _list(self, m: ModelDemand, priority: float | None) -> None:
        """Put the model where its priority belongs; None: it is not wanted."""
        if priority == m.listed:
            return
        m.listed = priority
        if priority is None:
            return
        heap = self._heap
        heappush(heap, (-priority, m.id))
        if len(heap) > 4 * len(self.models) + 64:  # mostly old entries
            heap[:] = [(-m.listed, m.id) for m in self.models if m.listed is not None]
            heapify(heap)

    def _priority(self, m: ModelDemand, now_ns: int) -> float | None:
        """Distribute the model's demand over its holders; return what they leave unmet."""
        holders = m.holders
        expiring = m.expiring
        while expiring and expiring[0][0] < now_ns:
            m.expired += expiring.popleft()[1]
        # Nearly every request's demand is met as well as expired, in this order or that.
        unmet = m.added - (m.met if m.met > m.expired else m.expired)
        capacity = self._capacity
        shares = m.shares
        if len(holders) == 1 == len(shares):  # the frequent case, without the loops
            gpu = holders[0]
            gpu.outstanding += m.exec - shares[0][1]
            shares[0] = (gpu, m.exec)
            gpu.weight = capacity / gpu.outstanding
            priority = unmet - unmet * gpu.weight
        else:
            for gpu, share in shares:
                gpu.outstanding -= share
            shares.clear()
            total = 0.0
            for gpu in holders:
                total += gpu.weight
            served = 0.0
            for gpu in holders:
                part = gpu.weight / total
                share = m.exec * part
                gpu.outstanding += share
                gpu.weight = capacity / gpu.outstanding
                shares.append((gpu, share))
                served += part * gpu.weight
            priority = unmet - unmet * served
        if len(holders) == len(self._gpus):
            return None
        if priority > 0 or (self._load_satisfied and (unmet > 0 or m.exec > 0)):
            return priority
        return None
