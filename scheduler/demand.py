"""Which model should be loaded next, and where: Clockwork's accounting of unmet demand.

Each request brings demand: the share of a GPU that it needs if it is to be served within its SLO
(`exec`), and within the time in which a load can still help it (`load`). A model's work is spread
over the GPUs that hold it, more of it where there is less to do. A GPU with `outstanding` work
serves of a model's load demand the share capacity / outstanding; what remains is the model's
priority to be loaded. Source: Clockwork, src/clockwork/controller/load_tracker.cpp.

Two things differ for the sake of speed (`benchmarks/`, 4,000 models on 100 GPUs). The original
keeps every model sorted for every GPU; here only the models that are wanted stand in one heap.
And it spreads a model's work anew at every event; here a model with many holders is spread at
most once in SPREAD_NS a holder.
Not here: what fits where, and what makes room (the policy).
"""

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Final

SPREAD_NS: Final = 200_000
"""Short beside a load (milliseconds), long beside the requests of a model on many GPUs."""

_LATEST_NS: Final = 2**52
"""Later than any run ends, and exact as a float."""

IDLE_WORK_NS: Final = 1_000_000.0
"""Work that is always assumed on a GPU (load_tracker.h: "always assume 1ms outstanding work")."""


class _Gpu:
    """The work that models lay on one GPU, in ns."""

    __slots__ = ("outstanding",)

    def __init__(self) -> None:
        self.outstanding = IDLE_WORK_NS


class _Model:
    """The demand for one model, in ns."""

    __slots__ = (
        "added", "ease", "ease_squared", "exec", "expired", "expiring", "holders", "id", "listed",
        "met", "shares", "since_ns", "spread_ns", "turned_away",
    )  # fmt: skip

    def __init__(self, model: int) -> None:
        self.id = model
        self.exec = 0
        """Work of the requests that are not finished."""
        self.since_ns = 0
        """When there last began to be any."""
        self.holders: list[_Gpu] = []
        """GPUs that hold the model or are loading it."""
        self.shares: list[float] = []
        """How much of `exec` was laid on each of them."""
        self.spread_ns = 0
        """Before this time the shares stay as they are; 0 once nothing was left to be shared."""
        self.ease = 0.0
        self.ease_squared = 0.0
        """Sums over the holders of 1 / outstanding and of its square, as of the last spread."""
        self.added = 0
        self.met = 0
        self.expired = 0
        """Load demand: all there was, what was sent to a GPU, and what is too old for a load to
        help. What is left is added less the larger of the other two, for nearly every request's
        demand is met and expires, in this order or that."""
        self.expiring: deque[tuple[int, int]] = deque()
        """(when, size) of what will expire."""
        self.turned_away: deque[tuple[int, int]] = deque()
        """The same, of requests that nobody serves: theirs is met by nothing but time."""
        self.listed: float | None = None
        """The priority at which it stands in the heap; None if it is not wanted."""

    def expire(self, now_ns: int) -> None:
        """Count what has become too old."""
        expiring = self.expiring
        while expiring and expiring[0][0] < now_ns:
            self.expired += expiring.popleft()[1]
        turned_away = self.turned_away
        while turned_away and turned_away[0][0] < now_ns:
            size = turned_away.popleft()[1]
            self.expired += size
            self.met += size

    def unmet(self, now_ns: int) -> int:
        """Load demand that is left."""
        expiring = self.expiring
        if (expiring and expiring[0][0] < now_ns) or self.turned_away:
            self.expire(now_ns)
        return self.added - (self.met if self.met > self.expired else self.expired)


class Demand:
    """The demand for all models on all GPUs.

    capacity_ns: the time in which a GPU ought to serve what lies on it; the default SLO.
    load_satisfied: whether a model is wanted as long as anybody waits for it, met or not.
    forget: whether demand expires even of a model that is nowhere.
    by_arrival: models that are nowhere are wanted in the order of their requests, others never.
    """

    def __init__(
        self,
        models: int,
        gpus: int,
        capacity_ns: int,
        *,
        load_satisfied: bool,
        forget: bool = True,
        by_arrival: bool = False,
    ) -> None:
        self._models = [_Model(model) for model in range(models)]
        self._gpus = [_Gpu() for _ in range(gpus)]
        self._capacity = capacity_ns
        self._load_satisfied = load_satisfied
        self._forget = forget
        self._by_arrival = by_arrival
        self.wanted: list[tuple[float, int]] = []
        """A heap of (-priority, model); empty if no model is wanted. Some entries are old."""

    def add(self, model: int, exec_size: int, load_size: int, now_ns: int, until_ns: int) -> None:
        """A request came, and speaks for a load of its model until until_ns."""
        m = self._models[model]
        if not m.exec:
            m.since_ns = now_ns
        m.exec += exec_size
        m.added += load_size
        expiring = m.expiring
        if expiring and expiring[0][0] < now_ns:
            m.expire(now_ns)  # here, for a model that is never wanted is looked at nowhere else
        expiring.append((until_ns, load_size))
        holders = m.holders
        if len(holders) == 1:
            gpu = holders[0]
            gpu.outstanding += exec_size
            m.shares[0] += exec_size
            if len(self._gpus) == 1:
                return
            if gpu.outstanding <= self._capacity and not self._load_satisfied:
                m.listed = None  # its GPU has time for it
                return
        elif now_ns < m.spread_ns:
            return
        self._list(m, self._priority(m, now_ns))

    def turn_away(self, model: int, load_size: int, now_ns: int, until_ns: int) -> None:
        """A request came that nobody can serve. It speaks for a load all the same, until until_ns:
        the next one of its model should find it there."""
        m = self._models[model]
        m.added += load_size
        m.turned_away.append((until_ns, load_size))
        self._list(m, self._priority(m, now_ns))

    def meet(self, model: int, load_size: int) -> None:
        """Requests were sent to a GPU, or given up."""
        self._models[model].met += load_size

    def complete(self, model: int, exec_size: int, now_ns: int) -> None:
        """Requests were finished, or given up. That makes no model wanted."""
        m = self._models[model]
        m.exec -= exec_size
        holders = m.holders
        if len(holders) == 1:
            holders[0].outstanding -= exec_size
            m.shares[0] -= exec_size
        elif not m.exec:
            for gpu, share in zip(holders, m.shares, strict=True):
                gpu.outstanding -= share
            m.shares = [0.0] * len(holders)
            m.spread_ns = 0
        elif now_ns >= m.spread_ns:
            self._spread(m, now_ns)

    def hold(self, model: int, gpu: int, now_ns: int) -> None:
        """A GPU begins to load the model."""
        m = self._models[model]
        holder = self._gpus[gpu]
        m.holders.append(holder)
        m.shares.append(0.0)
        m.ease += 1 / holder.outstanding
        m.ease_squared += 1 / holder.outstanding**2
        self._list(m, self._priority(m, now_ns))

    def release(self, model: int, gpu: int, now_ns: int) -> None:
        """A GPU does not hold the model any more."""
        m = self._models[model]
        place = m.holders.index(self._gpus[gpu])
        m.holders.pop(place).outstanding -= m.shares.pop(place)
        if m.exec:
            self._spread(m, now_ns)
        else:  # nothing to lay on those that are left
            m.spread_ns = 0
        self._list(m, self._priority(m, now_ns))

    def pop_most_wanted(self, now_ns: int) -> tuple[float, int] | None:
        """Take the model that some GPU should load before all others, None if there is none.

        (-priority, model). It is listed again when its demand changes, which a load of it does, or
        by `put_back` or `list_again`.
        """
        wanted = self.wanted
        looked_at: set[int] = set()
        while wanted:
            negative, model = heappop(wanted)
            m = self._models[model]
            if m.listed != -negative:
                continue  # an old entry: the model is listed elsewhere, or not at all
            m.listed = None
            priority = self._priority(m, now_ns)  # its demand may have expired while it waited
            if priority is None:
                continue
            # Once is enough: looking at one model shifts the work that another one sees.
            if not wanted or -priority <= wanted[0][0] or model in looked_at:
                return -priority, model
            looked_at.add(model)
            self._list(m, priority)
        return None

    def list_again(self, model: int, now_ns: int) -> None:
        """Put a model back that nobody can load now."""
        m = self._models[model]
        self._list(m, self._priority(m, now_ns))

    def put_back(self, entry: tuple[float, int]) -> None:
        """The same, at the same moment, where nothing has been loaded since: as it was taken."""
        self._models[entry[1]].listed = -entry[0]
        heappush(self.wanted, entry)

    def empty(self, model: int) -> bool:
        """Whether nobody waits for the model."""
        return not self._models[model].exec

    def _priority(self, m: _Model, now_ns: int) -> float | None:
        """The load demand that the model's holders leave unmet; None if that makes no load."""
        unmet = m.unmet(now_ns)
        holders = m.holders
        if self._by_arrival:
            return None if holders or not m.exec else float(_LATEST_NS - m.since_ns)
        if not holders:
            priority = float(unmet if self._forget else m.added - m.met)
        else:
            if unmet <= 0 and not m.exec:
                return None
            if now_ns >= m.spread_ns:
                self._spread(m, now_ns)
            if len(holders) == len(self._gpus):
                return None
            # Each serves its share of the work, 1 / outstanding / ease, by capacity / outstanding.
            alone = len(holders) == 1
            ease = 1 / holders[0].outstanding if alone else m.ease_squared / m.ease
            priority = unmet - unmet * (self._capacity * ease)
        if priority > 0 or (self._load_satisfied and (unmet > 0 or m.exec > 0)):
            return priority
        return None

    def _spread(self, m: _Model, now_ns: int) -> None:
        """Lay the model's work on its holders, each by 1 / outstanding."""
        holders, shares = m.holders, m.shares
        work = m.exec
        total = 0.0
        for gpu in holders:
            total += 1 / gpu.outstanding
        ease = ease_squared = 0.0
        for i, gpu in enumerate(holders):
            share = work / gpu.outstanding / total
            outstanding = gpu.outstanding + share - shares[i]
            gpu.outstanding = outstanding
            shares[i] = share
            ease += 1 / outstanding
            ease_squared += 1 / outstanding / outstanding
        m.ease = ease
        m.ease_squared = ease_squared
        m.spread_ns = now_ns + SPREAD_NS * (len(holders) - 1)

    def _list(self, m: _Model, priority: float | None) -> None:
        """Put the model where its priority belongs; None: it is not wanted."""
        if priority == m.listed:
            return
        m.listed = priority
        if priority is None:
            return
        wanted = self.wanted
        heappush(wanted, (-priority, m.id))
        if len(wanted) > 4 * len(self._models) + 64:  # mostly old entries
            wanted[:] = [(-m.listed, m.id) for m in self._models if m.listed is not None]
            heapify(wanted)
