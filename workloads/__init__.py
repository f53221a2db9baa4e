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

from workloads.activation import Activation
from workloads.azure2019 import Azure2019
from workloads.azure2019_derived import Azure2019Derived
from workloads.azure2021 import Azure2021
from workloads.bursts import Bursts
from workloads.clockwork_client import ClockworkClient
from workloads.closed import Client, Closed
from workloads.common import Chunk, WorkloadError, WorkloadWarning
from workloads.constant import Constant
from workloads.disb import Disb
from workloads.gamma import Gamma
from workloads.merge import MergedChunk, merge
from workloads.mmpp import Mmpp
from workloads.periodic import Periodic
from workloads.poisson import Poisson
from workloads.ramp import Ramp
from workloads.reef import Reef
from workloads.servegen import ServeGen
from workloads.steps import Steps
from workloads.tokens import AzureLlm, Mooncake
from workloads.trace import Trace

Made = (
    Activation
    | ClockworkClient
    | Constant
    | Poisson
    | Gamma
    | Mmpp
    | Bursts
    | Ramp
    | Periodic
    | Steps
)
Replayed = (
    Trace | Azure2019 | Azure2019Derived | Azure2021 | AzureLlm | Mooncake | ServeGen | Reef | Disb
)
OpenLoop = Made | Replayed
Workload = OpenLoop | Closed

__all__ = [
    "Activation",
    "Azure2019",
    "Azure2019Derived",
    "Azure2021",
    "AzureLlm",
    "Bursts",
    "Chunk",
    "Client",
    "ClockworkClient",
    "Closed",
    "Constant",
    "Disb",
    "Gamma",
    "MergedChunk",
    "Mmpp",
    "Mooncake",
    "OpenLoop",
    "Periodic",
    "Poisson",
    "Ramp",
    "Reef",
    "ServeGen",
    "Steps",
    "Trace",
    "Workload",
    "WorkloadError",
    "WorkloadWarning",
    "located",
    "merge",
]


def located(workload: Workload, base: Path) -> Workload:
    """The workload with the path of its file, if it has one, taken from the folder `base`."""
    path = getattr(workload, "path", None)
    if path is None:
        return workload
    return msgspec.structs.replace(workload, path=str(base / path))
