"""Tell which of the known traces a file is, by its ending and its first line."""

import re
from pathlib import Path
from typing import Any

import msgspec

from workloads.clients import decode
from workloads.common import WorkloadError
from workloads.tables import column_names, is_parquet

BY_COLUMNS = {
    "azure2021": {"app", "func", "end_timestamp", "duration"},
    "azure_llm": {"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
    "mooncake": {"timestamp", "input_length", "output_length"},
    "servegen": {"client", "start_s", "rate_rps", "iat_cv"},
    "steps": {"start_s", "rate_rps"},
}


def kind_of(path: Path) -> dict[str, Any]:
    """The table of a workload that plays the file: its kind, and what else has to be said.

    Where names of the file would have to be those of models, the models take their places.
    Raises WorkloadError if it is none of the known ones.
    """
    names = path.name.removesuffix(".gz")
    if names.endswith(".json"):
        keys = set(decode(path, dict[str, msgspec.Raw]))
        kind = "reef" if "rt" in keys else "disb" if "tasks" in keys else None
        if kind:
            return {"kind": kind, "path": str(path), "mapping": "round_robin"}
    elif is_parquet(path) or names.endswith((".csv", ".jsonl", ".ndjson")):
        columns = column_names(path)
        if any(re.fullmatch(r"\d+(_minute)?", column) for column in columns):
            return {"kind": "azure2019", "path": str(path), "placement": "uniform"}
        for kind, needed in BY_COLUMNS.items():
            if needed <= set(columns):
                return {"kind": kind, "path": str(path)}
    raise WorkloadError(
        f"{path.name} is none of the known traces; say how to read it, as --set kind=trace "
        "--set time_column=t --set time_unit=ms"
    )
