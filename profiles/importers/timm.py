"""timm's benchmark tables: many models at one batch size each.

The file's name tells precision, layout, versions and device, as in
benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv.gz; infer_step_time is in ms for a whole batch.
A model has one batch size (mostly 1024): that is a throughput, not a curve. One that was measured
at several image sizes is called model@size.
"""

import csv
import re
from collections import Counter
from pathlib import Path
from typing import Final

from profiles.durations import Constant, Durations
from profiles.errors import ProfileError
from profiles.importers.draft import Draft, Given, head_of, millis, text_of, whole

NEEDED: Final = (
    "model",
    "infer_step_time",
    "infer_batch_size",
    "infer_img_size",
    "param_count",
)

DEVICES: Final = {
    "rtx3090": "NVIDIA RTX 3090",
    "rtx4090": "NVIDIA RTX 4090",
    "4090": "NVIDIA RTX 4090",
    "5090": "NVIDIA RTX 5090",
    "pro6000maxq": "NVIDIA RTX PRO 6000 Max-Q",
    "i9_10940x": "Intel Core i9-10940X",
    "i7_12700h": "Intel Core i7-12700H",
}

WEIGHT_BYTES: Final = {"amp": 4, "amp_bf16": 4, "fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes a parameter: with automatic mixed precision the weights stay in float32."""


def is_one(path: Path) -> bool:
    """Whether the file looks like one."""
    return set(NEEDED) <= set(head_of(path).split(","))


def read(path: Path, given: Given) -> list[Draft]:
    """All models of the file."""
    reader = csv.DictReader(text_of(path).splitlines())
    missing = [column for column in NEEDED if column not in (reader.fieldnames or [])]
    if missing:
        raise ProfileError(f"{path.name}, line 1: no column {missing[0]}; expected {NEEDED}")
    match = re.match(
        r"benchmark-infer-(\w+?)-(\w+)-(pt\d+)-(cu\d+|cpu)-(\w+)(-dynamo)?\.", path.name
    )
    precision, device = (match[1], DEVICES.get(match[5])) if match else ("fp32", None)
    how = f"{precision}, {match[2]}, {match[3]} {match[4]}{match[6] or ''}" if match else "as named"
    if precision not in WEIGHT_BYTES:
        raise ProfileError(
            f"{path.name}: the precision {precision} is not known; "
            f"expected one of {', '.join(WEIGHT_BYTES)}"
        )
    each = WEIGHT_BYTES[precision]
    rows = list(reader)
    sizes = Counter(cells["model"] for cells in rows)
    drafts = []
    for number, cells in enumerate(rows, start=2):
        where = f"{path.name}, line {number}"
        if None in cells or None in cells.values():
            raise ProfileError(f"{where}: not as many cells as columns; is the file whole?")
        side = whole(where, cells["infer_img_size"])
        name = cells["model"]
        drafts.append(
            Draft(
                name=name if sizes[name] == 1 else f"{name}@{side}",
                exec=_exec(where, cells),
                about="timm's benchmarks, github huggingface/pytorch-image-models, results",
                device=device,
                weights_bytes=_weights(where, cells["param_count"], each),
                input_bytes=3 * side * side * 4,
                notes=[
                    how,
                    f"weights_bytes is {cells['param_count']} million parameters of {each} bytes",
                    f"input_bytes is 3 x {side} x {side} numbers of 4 bytes",
                ],
            )
        )
    if not drafts:
        raise ProfileError(f"{path.name} has no rows; expected at least one below its header")
    return drafts


def _exec(where: str, cells: dict[str, str]) -> dict[int, Durations]:
    """The one measurement of a row; none where the model did not run."""
    batch, step_ms = cells["infer_batch_size"], cells["infer_step_time"]
    if not (batch or step_ms):
        return {}
    return {whole(where, batch): Constant(millis(where, step_ms))}


def _weights(where: str, cell: str, each: int) -> int:
    try:
        return max(1, round(float(cell) * 1e6 * each))
    except ValueError:
        raise ProfileError(
            f"{where}: {cell or 'an empty cell'} is not a number of parameters; expected millions"
        ) from None
