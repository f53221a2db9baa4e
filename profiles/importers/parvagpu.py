"""ParvaGPU's profiles (SC 2024): latency by batch size, MIG slice and number of processes.

    Mig instance,Batch size,Workload Number,Throughput,Latency
    7,1,1,74.408,0.013

The latency is in seconds, rounded to the millisecond. A throughput and latency of 0 did not run:
those batch sizes are left out.
"""

from pathlib import Path

from profiles.durations import Constant, Durations
from profiles.errors import ProfileError
from profiles.importers.draft import Draft, Given, cells_of, head_of, seconds, text_of, whole

COLUMNS = ("Mig instance", "Batch size", "Workload Number", "Throughput", "Latency")


def is_one(path: Path) -> bool:
    """Whether the file looks like one."""
    return head_of(path) == ",".join(COLUMNS)


def read(path: Path, given: Given) -> list[Draft]:
    """The model of the file, on the MIG slice and with the processes that are asked for."""
    lines = text_of(path).splitlines()
    if not lines or lines[0].strip() != ",".join(COLUMNS):
        raise ProfileError(f"{path.name}, line 1: expected the columns {','.join(COLUMNS)}")
    exec_: dict[int, Durations] = {}
    failed = []
    settings = set()
    for number, line in enumerate(lines[1:], start=2):
        where = f"{path.name}, line {number}"
        cells = cells_of(where, line, COLUMNS)
        setting = (whole(where, cells[COLUMNS[0]]), whole(where, cells[COLUMNS[2]]))
        settings.add(setting)
        if setting != (given.mig, given.processes):
            continue
        batch = whole(where, cells["Batch size"])
        if batch in exec_ or batch in failed:
            raise ProfileError(f"{where}: batch {batch} is there twice; remove one of the lines")
        if cells["Latency"] == cells["Throughput"] == "0":
            failed.append(batch)
        else:
            exec_[batch] = Constant(seconds(where, cells["Latency"]))
    if not exec_ and not failed:
        have = ", ".join(f"{mig} with {n}" for mig, n in sorted(settings))
        raise ProfileError(
            f"{path.name} has no --mig {given.mig} with --processes {given.processes}; has {have}"
        )
    notes = [
        f"MIG slice {given.mig} of 7, {given.processes} process{'es' * (given.processes > 1)}",
        "exec_ms are rounded to 1 ms by the source",
    ]
    if failed:
        notes.append(f"batch {', '.join(map(str, failed))} did not run")
    return [
        Draft(
            name=path.stem,
            exec=exec_,
            about="ParvaGPU (SC 2024), github MunQ-Lee/ParvaGPU_SC24, prof_data",
            notes=notes,
        )
    ]
