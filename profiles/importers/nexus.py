"""Nexus' profiles (Shen et al., SOSP 2019): mean and standard deviation at every batch size.

    caffe:vgg16:1
    TITAN_X_(Pascal)
    Forward latency
    batch,latency(us),std(us),memory(B)
    1,6277.4,22.3517,949944320
    ...
    Preprocess latency
    ...

The forward latency is imported; what happens on the CPU before and after it is not.
"""

from pathlib import Path
from statistics import NormalDist

from profiles.durations import Constant, Durations, Quantiles
from profiles.errors import ProfileError
from profiles.importers.draft import Draft, Given, cells_of, micros, text_of, whole

COLUMNS = ("batch", "latency(us)", "std(us)", "memory(B)")
SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


def is_one(path: Path) -> bool:
    """Whether the file looks like one."""
    return text_of(path).splitlines()[2:4] == ["Forward latency", ",".join(COLUMNS)]


def read(path: Path, given: Given) -> list[Draft]:
    """The model of the file."""
    lines = text_of(path).splitlines()
    if lines[2:4] != ["Forward latency", ",".join(COLUMNS)]:
        raise ProfileError(
            f"{path.name}, line 3: expected Forward latency, and below it {','.join(COLUMNS)}"
        )
    exec_: dict[int, Durations] = {}
    for number, line in enumerate(lines[4:], start=5):
        if line.startswith("Preprocess"):
            break
        where = f"{path.name}, line {number}"
        cells = cells_of(where, line, COLUMNS)
        batch = whole(where, cells["batch"])
        if batch in exec_:
            raise ProfileError(f"{where}: batch {batch} is there twice; remove one of the lines")
        exec_[batch] = _durations(where, cells, given.spread)
    else:
        raise ProfileError(
            f"{path.name} ends after line {len(lines)}; expected Preprocess latency below the "
            "batches: is the file whole?"
        )
    note = "exec_ms are means"
    if given.spread == "normal":
        note = "exec_ms are quantiles of a normal distribution with the measured mean and deviation"
    return [
        Draft(
            name=lines[0].strip(),
            exec=exec_,
            about="Nexus' profiles, github uwsampl/nexus, tests/data/model_db/profiles",
            device=lines[1].strip().replace("_", " "),
            notes=[note],
        )
    ]


def _durations(where: str, cells: dict[str, str], spread: str) -> Durations:
    mean_ns = micros(where, cells["latency(us)"])
    if spread == "mean":
        return Constant(mean_ns)
    std_ns = micros(where, cells["std(us)"])
    normal = NormalDist(mean_ns, std_ns)
    return Quantiles(SHARES, tuple(max(1, round(normal.inv_cdf(q))) for q in SHARES))
