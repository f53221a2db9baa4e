"""What a service leaves so that `mainspring run DIR` plays its requests again, in simulation.

    OUT/arrivals.parquet     when each request came, and for which model
    OUT/arrivals-SLO.parquet those that brought an SLO of their own, in ms
    OUT/scenario.toml        what was served, with these as its workload

The scenario's own workload was not served. Until the service has ended its scenario names an
arrivals.parquet that is not there yet, so that nothing else is taken for what it served.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mainspring.directory import cannot_write
from mainspring.scenario import SERVED, PolicyChoice, Scenario
from results import read_outcomes
from scheduler.records import FOREVER
from workloads import Trace

MOST_SLOS: Final = 1_000
"""Each SLO of their own makes a workload of its own."""


def with_served(scenario: Scenario, slos_ms: Sequence[float | None] = (None,)) -> Scenario:
    """The scenario with what is served as its workload. slos_ms: None is the model's."""
    workloads = [
        Trace(
            path=_name(slo_ms),
            time_column="arrival_ns",
            time_unit="ns",
            model_column="model",
            slo_ms=slo_ms,
        )
        for slo_ms in slos_ms
    ]
    given = {key for key in scenario.written if key[0] not in ("workload", "warmup_s")}
    for i, slo_ms in enumerate(slos_ms):
        fields = ["kind", "path", "time_column", "time_unit", "model_column"]
        given |= {("workload", i, field) for field in fields + ["slo_ms"] * (slo_ms is not None)}
    spec = msgspec.structs.replace(scenario.spec, workload=workloads, warmup_s=0.0)
    return msgspec.structs.replace(scenario, spec=spec, written=frozenset(given))


def write_served(
    scenario: Scenario, policies: Sequence[PolicyChoice], directory: Path, end_ns: int
) -> None:
    """Write the requests of the finished run in `directory`, and the scenario that has them.

    end_ns: when it was over. Of requests that bring more than MOST_SLOS different SLOs nothing is
    written, and a warning is given. Raises ScenarioError where that cannot be written.
    """
    rows = read_outcomes(directory, ["id", "model", "arrival_ns", "deadline_ns"]).sort_by("id")
    arrival_ns, deadline_ns = (rows[name].to_numpy() for name in ("arrival_ns", "deadline_ns"))
    slo_ns = np.where(deadline_ns == FOREVER, FOREVER, deadline_ns - arrival_ns)
    usual = {model.name: FOREVER if model.slo_ns is None else model.slo_ns
             for model in scenario.models}  # fmt: skip
    usual_ns = np.array([usual[name] for name in rows["model"].to_pylist()], np.int64)
    own_ns = np.where(slo_ns == usual_ns, -1, slo_ns)
    slos = np.unique(own_ns).tolist()
    if len(slos) > MOST_SLOS:
        warnings.warn(
            f"the requests brought {len(slos):,} different SLOs, of which {MOST_SLOS:,} can be run "
            f"again; {directory} cannot",
            stacklevel=2,
        )
        return
    slos_ms = [None if ns < 0 else ns / 1e6 for ns in slos] or [None]
    again = with_served(scenario, slos_ms)
    # Beyond the end nothing arrived, and no fault happened.
    faults = [fault for fault in scenario.spec.faults if fault.at_ns < end_ns]
    spec = msgspec.structs.replace(again.spec, duration_s=max(end_ns, 1) / 1e9, faults=faults)
    again = msgspec.structs.replace(again, spec=spec, written=again.written | {("duration_s",)})
    try:
        for ns, slo_ms in zip(slos, slos_ms, strict=False):
            chosen = pa.array(own_ns == ns)
            pq.write_table(
                rows.select(["arrival_ns", "model"]).filter(chosen), directory / _name(slo_ms)
            )
        text = again.to_toml(policies)
        (directory / "scenario.toml").write_text(text, encoding="utf-8")
    except OSError as error:
        raise cannot_write(directory, error) from None


def _name(slo_ms: float | None) -> str:
    return SERVED if slo_ms is None else f"arrivals-{slo_ms}.parquet"
