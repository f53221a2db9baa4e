"""Who asks for what, and when.

Each kind of workload is a record that is read from a table of a scenario file, told apart by
`kind`. Open-loop kinds give their arrivals with `chunks`; `Closed` says who its clients are.

    workload = located(msgspec.convert(table, Workload), base=scenario_file.parent)
    models = workload.select(model_names)
    for times_ns, models in workload.chunks(models, model_names, duration_ns, rng): ...

A caller gives each workload a generator of its own, so that its arrivals depend on nothing else.
"""

from pathlib import Path

import msgspec

from workloads.azure2019 import Azure2019
from workloads.closed import Closed
from workloads.common import Chunk, WorkloadError
from workloads.merge import MergedChunk, merge
from workloads.poisson import Poisson
from workloads.trace import Trace

OpenLoop = Poisson | Azure2019 | Trace
Workload = OpenLoop | Closed

__all__ = [
    "Azure2019",
    "Chunk",
    "Closed",
    "MergedChunk",
    "OpenLoop",
    "Poisson",
    "Trace",
    "Workload",
    "WorkloadError",
    "located",
    "merge",
]


def located(workload: Workload, base: Path) -> Workload:
    """The workload with the path of its file, if it has one, taken from the folder `base`."""
    if isinstance(workload, Azure2019 | Trace):
        return msgspec.structs.replace(workload, path=str(base / workload.path))
    return workload
