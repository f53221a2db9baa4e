"""Build the simulated cluster that a scenario describes, with one policy in it.

One seed a run, split by purpose, so that changing the policy changes no arrival and adding a GPU
changes no other GPU's durations.
"""

import gc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from mainspring.scenario import DelaysUs, Model, PolicyChoice, Scenario
from profiles import Profile
from profiles.durations import Constant, Durations, Samples
from results import RunWriter
from scheduler.journal import Record
from scheduler.memory import Contiguous
from scheduler.records import FOREVER, GpuInfo, ModelInfo
from scheduler.worker import ENGINES
from sim.answers import Answers
from sim.cluster import Cluster, Delays, GpuKind, OpenLoop, Truth
from sim.drawn import Drawn
from sim.faults import FaultyCluster
from sim.gpu import ModelCost, SimGpu
from sim.link import LinkParams, Uplink
from sim.shared import SharedGpu
from sim.varying import NOISES, VaryingGpu
from workloads import Client, Closed, Workload, WorkloadWarning, merge
from workloads.closed import RETRY_AFTER_MS

PLANNED_QUANTILE = 0.99
"""What a policy is told that a model takes: the profile's 99th percentile."""


FROZEN_MODULES = 10_000
"""Whoever has frozen more objects than that has frozen modules: ours make some 100,000. Python 3.12
freezes a few hundred of its own at its start."""

STORM = 0.1
"""Of the requests of a run: with so many that are given up at once it is about them."""


class Purpose(IntEnum):
    """What randomness is for. The numbers are part of every result: never change one."""

    ARRIVALS = 0
    DURATIONS = 1
    POLICY = 3
    INPUTS = 4
    ANSWERS = 5
    NOISE = 6
    DELAYS = 7


def generator(seed: int, purpose: Purpose, *index: int) -> np.random.Generator:
    """The random numbers for one purpose; for arrivals and durations, of one workload or GPU."""
    sequence = np.random.SeedSequence(seed, spawn_key=(purpose, *index))
    return np.random.Generator(np.random.PCG64(sequence))


def build_world(
    scenario: Scenario, policy: Any, sink: Any, record: Callable[[Record], None] | None = None
) -> Cluster:
    """A cluster that is ready to run, with nothing loaded and nothing asked.

    record: is given what a journal keeps (mainspring/journal.py).
    """
    spec = scenario.spec
    seed, cluster, delays = spec.seed, spec.cluster, spec.cluster.delays_us
    gpus, models = cluster_info(scenario)
    kind = partial(FaultyCluster, faults=spec.faults) if spec.faults else Cluster
    return kind(
        policy=policy,
        gpus=gpus,
        models=models,
        costs=[
            _cost(info.pages, model.profile, delays.each()["overrun"], cluster.stretch)
            for info, model in zip(models, scenario.models, strict=True)
        ],
        delays=_constant(delays),
        arrivals=arrivals(scenario),
        clients=closed_clients(scenario),
        uplinks=_uplinks(scenario),
        sink=sink,
        rngs=[generator(seed, Purpose.DURATIONS, gpu) for gpu in range(cluster.gpus)],
        policy_rng=generator(seed, Purpose.POLICY),
        record=record,
        keys=_inputs(scenario),
        truth=_truth(scenario),
        drawn=_drawn(delays, generator(seed, Purpose.DELAYS)),
        gpu_kind=_gpu_kinds(scenario),
        link=None
        if cluster.link is None
        else LinkParams(
            bits_per_s=cluster.link.gbit_per_s * 1e9,
            sends=cluster.link.sends,
            margin_ns=round(cluster.link.send_by_ms * 1e6),
            input_bytes=tuple(model.input_bytes for model in models),
        ),
    )


def _constant(delays: DelaysUs) -> Delays:
    """Those that are always the same; a duration's overrun is none of the cluster's."""
    us = {name: each[0] for name, each in delays.each().items() if len(each) == 1}
    us.pop("overrun", None)
    if isinstance(delays.load_to_controller, list):
        us["load_to_controller"] = 0.0
    return Delays(**{f"{name}_ns": round(one * 1e3) for name, one in us.items()})


def _drawn(delays: DelaysUs, rng: np.random.Generator) -> Drawn | None:
    """The others; None where there are none."""
    us = {name: each for name, each in delays.each().items() if len(each) > 1}
    us.pop("overrun", None)
    if not us:
        return None
    durations: dict[str, Durations | None] = {name: _samples(each) for name, each in us.items()}
    if delays.load_to_controller is not None:
        durations.setdefault("load_to_controller", None)
    return Drawn(durations, rng)


def _cost(pages: int, profile: Profile, overrun_us: Sequence[float], stretch: float) -> ModelCost:
    """What a model costs: its profile, and the overrun where that has one number; where it has
    more, batches are stretched."""

    def over(durations: Durations, stretch: float = 1.0) -> Durations:
        if durations.constant_ns is None:
            return durations if stretch == 1 else _stretched(durations, stretch)
        if not any(overrun_us):
            return durations
        return _samples([durations.constant_ns / 1e3 + us for us in overrun_us])

    exec = {batch: over(durations, stretch) for batch, durations in profile.exec.items()}
    return ModelCost(pages, over(profile.load), exec)


def _stretched(durations: Durations, stretch: float) -> Durations:
    assert not isinstance(durations, Constant)
    return msgspec.structs.replace(
        durations, ns=tuple(max(1, round(ns * stretch)) for ns in durations.ns)
    )


def _samples(us: Sequence[float]) -> Samples:
    """Microseconds to draw from. Samples have no 0: what takes no time takes a nanosecond."""
    return Samples(tuple(max(1, round(one * 1e3)) for one in us))


def _gpu_kinds(scenario: Scenario) -> GpuKind | list[GpuKind]:
    """What makes the GPUs."""
    cluster, seed = scenario.spec.cluster, scenario.spec.seed
    memory = Contiguous if cluster.memory == "contiguous" else None
    turns = cluster.engines == 1
    if cluster.lanes > 1:
        return partial(SharedGpu, memory=memory)
    if cluster.noise == "none" and not cluster.clocks:
        return partial(SimGpu, memory=memory, turns=turns)
    return [
        partial(
            VaryingGpu,
            memory=memory,
            turns=turns,
            noise=NOISES.get(cluster.noise),
            noise_rngs=[generator(seed, Purpose.NOISE, gpu, engine) for engine in ENGINES],
            clocks=[
                (round(clock.from_s * 1e9), clock.mhz)
                # One that names the GPU counts where both change at once.
                for clock in sorted(cluster.clocks, key=lambda c: (c.from_s, c.gpu is not None))
                if clock.gpu in (None, gpu)
            ],
        )
        for gpu in range(cluster.gpus)
    ]


def cluster_info(scenario: Scenario) -> tuple[tuple[GpuInfo, ...], tuple[ModelInfo, ...]]:
    """The GPUs and the models, as a policy may know them."""
    cluster = scenario.spec.cluster
    page_bytes = cluster.page_mib * 2**20
    models = tuple(
        ModelInfo(
            id=i,
            name=model.name,
            pages=model.profile.pages(page_bytes),
            load_ns=model.profile.load.estimate_ns(PLANNED_QUANTILE),
            batch_sizes=model.profile.batch_sizes,
            exec_ns=tuple(
                durations.estimate_ns(PLANNED_QUANTILE) for durations in model.profile.exec.values()
            ),
            input_bytes=model.profile.input_bytes,
            output_bytes=model.profile.output_bytes,
        )
        for i, model in enumerate(scenario.models)
    )
    return (
        tuple(
            GpuInfo(
                id=i,
                lanes=tuple(range(i * cluster.lanes, (i + 1) * cluster.lanes)),
                pages=cluster.usable_pages,
            )
            for i in range(cluster.gpus)
        ),
        models,
    )


def open_writer(
    scenario: Scenario,
    choice: PolicyChoice,
    directory: Path,
    span_ns: tuple[int, int] | None = None,
) -> RunWriter:
    """The sink that writes a run of one policy into a directory.

    span_ns: what the summary is about, from and to; by default what the scenario says.
    """
    spec = scenario.spec
    warmup_ns, end_ns = span_ns or (round(spec.warmup_s * 1e9), round(spec.duration_s * 1e9))
    page_bytes = spec.cluster.page_mib * 2**20
    return RunWriter(
        directory,
        models=[model.name for model in scenario.models],
        pages_of_model=[model.profile.pages(page_bytes) for model in scenario.models],
        pages_of_gpu=[spec.cluster.usable_pages] * spec.cluster.gpus,
        exclusive=spec.cluster.lanes == 1,
        warmup_ns=warmup_ns,
        end_ns=end_ns,
        name=choice.label,
        about={"scenario": spec.name, "policy": choice.name, "seed": str(spec.seed)},
    )


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep Python's garbage collector from walking through the world again and again.

    What a run makes per request is freed by its counter; there are no cycles in it to look for.
    A process that has frozen what it holds, as one that makes run after run does, keeps that so:
    going through all modules for each short run would take as long as the run.
    """
    thresholds = gc.get_threshold()
    frozen = gc.get_freeze_count() > FROZEN_MODULES
    gc.collect()
    if not frozen:
        gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if not frozen:
            gc.unfreeze()


def arrivals(scenario: Scenario) -> OpenLoop:
    """The requests of the open-loop workloads, the same for every policy and in every world."""
    spec = scenario.spec
    names = [model.name for model in scenario.models]
    streams = []
    slo_ns = []
    for i, workload in enumerate(spec.workload):
        if isinstance(workload, Closed):
            continue
        rng = generator(spec.seed, Purpose.ARRIVALS, i)
        asked = workload.select(names)
        streams.append(workload.chunks(asked, names, round(spec.duration_s * 1e9), rng))
        slo_ns.append([_slo_ns(workload, model) for model in scenario.models])
    return OpenLoop(merge(streams), slo_ns)


def _inputs(scenario: Scenario) -> Iterator[int] | None:
    asks = scenario.spec.asks
    if asks is None:
        return None
    rng = generator(scenario.spec.seed, Purpose.INPUTS)
    shares = np.cumsum(1.0 / np.arange(1, asks.different + 1) ** asks.zipf)
    shares /= shares[-1]
    blocks = iter(lambda: np.searchsorted(shares, rng.random(4096), side="right").tolist(), None)
    return chain.from_iterable(blocks)


def _truth(scenario: Scenario) -> Truth | None:
    answers = scenario.spec.answers
    if answers is None:
        return None
    models = len(scenario.models)
    errors = answers.errors if len(answers.errors) == models else answers.errors * models
    seed = [scenario.spec.seed, Purpose.ANSWERS]
    drawn = Answers(errors, answers.labels, answers.alike, answers.confused, seed)
    wait_ms = answers.feedback_ms
    return Truth(drawn, FOREVER if wait_ms is None else round(wait_ms * 1e6))


def closed_clients(scenario: Scenario) -> list[Client]:
    """The clients of the closed-loop workloads, in every world."""
    return [client for client, _ in _clients(scenario)]


def warn_of_storms(scenario: Scenario, turned_away: Mapping[int, int], arrived: int) -> list[str]:
    """Warn where a good part of a run is clients who ask again and again, for they are given up
    sooner than their model can answer, and how long they wait then is the default. Returns the
    warnings' texts.

    turned_away: how often, by client. arrived: requests in the whole run.
    """
    n, clients = Counter[int](), Counter[int]()
    for client, i in _clients(scenario):
        if times := turned_away.get(client.id):
            n[i] += times
            clients[i] += 1
    texts = []
    for i, times in n.items():
        workload = scenario.spec.workload[i]
        assert isinstance(workload, Closed)
        told = workload.retry_after_ms != RETRY_AFTER_MS or workload.think_ms > RETRY_AFTER_MS
        if told or times < STORM * arrived:
            continue
        texts.append(
            f"workload.{i}: {times:,} of the run's {arrived:,} requests were given up sooner than "
            f"a model can answer, and each of {clients[i]:,} clients asked again "
            f"{RETRY_AFTER_MS:g} ms later; set workload.{i}.retry_after_ms to what they wait"
        )
        warnings.warn(texts[-1], WorkloadWarning, stacklevel=2)
    return texts


def _uplinks(scenario: Scenario) -> dict[int, tuple[Uplink, int]]:
    links: dict[int, Uplink] = {}  # by workload
    found = {}
    for client, i in _clients(scenario):
        workload = scenario.spec.workload[i]
        assert isinstance(workload, Closed)
        if workload.link_gbit_per_s:
            input_bits = 8 * scenario.models[client.model].profile.input_bytes
            input_ns = round(input_bits / workload.link_gbit_per_s)
            found[client.id] = links.setdefault(i, Uplink()), input_ns
    return found


def _clients(scenario: Scenario) -> Iterator[tuple[Client, int]]:
    """Each client, and the index of its workload."""
    spec = scenario.spec
    names = [model.name for model in scenario.models]
    ids = count(len(spec.workload))  # below are the open-loop streams, each a client to the records
    for i, workload in enumerate(spec.workload):
        if isinstance(workload, Closed):
            for _, model in workload.clients(workload.select(names)):
                yield (
                    Client(
                        id=next(ids),
                        model=model,
                        slo_ns=_slo_ns(workload, scenario.models[model]),
                        think_ns=workload.think_ns,
                        retry_after_ns=workload.retry_after_ns,
                        start_ns=workload.start_ns,
                        until_ns=round(spec.duration_s * 1e9),
                    ),
                    i,
                )


def _slo_ns(workload: Workload, model: Model) -> int:
    """A workload's SLO goes before its model's, which goes before the scenario's."""
    if workload.slo_factor is not None:
        first = next(iter(model.profile.exec.values()))
        return round(workload.slo_factor * first.estimate_ns(PLANNED_QUANTILE))
    return next((ns for ns in (workload.slo_ns, model.slo_ns) if ns is not None), FOREVER)
