"""How fast is the simulation, and how much memory does it need?

Speed is a ratio, for machines differ and are noisy: simulated requests a second, all outcomes
written to disk, over the timeouts a second of a bare SimPy loop (one process,
`yield env.timeout(1)`). Each simulation stands between two bare loops of some seconds; the figure
is the median of the rounds.
Where `make fast` has made build/fast, the same is measured with the compiled hot path, and must
come to the same outcomes, bit for bit; `ratio.clockwork.NAME` is then of that, and
`ratio.clockwork.NAME.interpreted` of what a bare Python runs.
Memory is the peak of a process of its own that simulates so many requests.

    make bench        prints the figures and writes benchmarks/results.json
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import simpy

from mainspring import load_scenario
from mainspring.world import build_world, open_writer, quiet_collector

HERE = Path(__file__).resolve().parent
FAST = HERE.parent / "build" / "fast"
SPEED = {
    "15x1": "one GPU, 15 copies of ResNet50, 700 req/s: overload, batches of 3.3",
    "4000x12": "4,032 models on 12 GPUs, skewed like the Azure Functions trace, near saturation",
    "4000x100": "the same on 100 GPUs",
}
MEMORY = {"1m": 1_000_000, "5m": 5_000_000}
ROUNDS = 3
TIMEOUTS = 2_000_000


def bare() -> float:
    """Timeouts a second of a bare SimPy loop."""

    def process(env: simpy.Environment) -> Generator[simpy.Event, Any, None]:
        while True:
            yield env.timeout(1)

    env = simpy.Environment()
    env.process(process(env))
    start = time.perf_counter()
    env.run(until=TIMEOUTS)
    return TIMEOUTS / (time.perf_counter() - start)


class Simulated(NamedTuple):
    """One run: requests, seconds it took, the share in time, and the digest of its outcomes."""

    count: int
    seconds: float
    share: float
    digest: str


def simulate(name: str, overrides: list[str]) -> Simulated:
    scenario = load_scenario(HERE / f"{name}.toml", overrides)
    spec = scenario.spec
    (choice,) = scenario.policies
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with open_writer(scenario, choice, Path(folder)) as writer:
            world = build_world(scenario, choice.build(), writer)
            with quiet_collector():
                world.run(round(spec.duration_s * 1e9), round(spec.drain_s * 1e9))
            summary = writer.close(arrivals=world.arrived)
        seconds = time.perf_counter() - start
    return Simulated(world.arrived, seconds, summary.share_in_time or 0.0, summary.digest)


def measure_speed(name: str) -> None:
    """Print the ratio for one scenario, the digest, and a line about the last round."""
    ratios = []
    before = bare()
    for _ in range(ROUNDS):
        run = simulate(name, [])
        after = bare()
        rate = run.count / run.seconds
        ratios.append(rate / ((before + after) / 2))
        before = after
    about = (
        f"{run.share:.2%} in time; the last round {rate:,.0f} req/s over {after:,.0f} timeouts/s"
    )
    print(json.dumps([statistics.median(ratios), run.digest, about]))


def measure_memory(name: str) -> None:
    """Print the peak in MiB."""
    simulate("15x1", [f"duration_s={MEMORY[name] / 700}"])
    print(json.dumps(peak_mib()))


def apart(what: str, name: str, core: Path | None) -> Any:
    """What a process of its own says of `what`, with the compiled core or the checkout's."""
    env = os.environ | {"PYTHONPATH": str(core or HERE.parent)}
    command = [sys.executable, __file__, what, name]
    return json.loads(subprocess.run(command, check=True, capture_output=True, env=env).stdout)


def told(name: str, value: float, unit: str, digits: int, about: str) -> dict[str, Any]:
    print(f"{name:39} {value:<7.{digits}f} {about}", flush=True)
    return {"name": name, "value": value, "unit": unit}


def speeds(name: str, compiled: Path | None) -> list[dict[str, Any]]:
    """The ratios for one scenario."""
    full = f"ratio.clockwork.{name}"
    ratio, digest, about = apart("--speed", name, None)
    plain = told(f"{full}.interpreted", ratio, "1", 4, f"{SPEED[name]}; {about}")
    if compiled is None:
        return [plain | {"name": full}, plain]
    ratio, compiled_digest, about = apart("--speed", name, compiled)
    if compiled_digest != digest:
        sys.exit(f"{name}: the compiled core has other outcomes than the interpreted one")
    return [told(full, ratio, "1", 4, f"compiled; {about}"), plain]


def peak_mib() -> float:
    """The largest resident size of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count the parent's size before exec as well
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--speed", choices=SPEED, help="measure only this, and print JSON")
    one.add_argument("--memory", choices=MEMORY, help="the same")
    chosen = parser.parse_args()
    if chosen.speed:
        measure_speed(chosen.speed)
        return
    if chosen.memory:
        measure_memory(chosen.memory)
        return
    compiled = FAST if FAST.exists() else None
    if compiled is None:
        print("no build/fast (see `make fast`): only what a bare Python runs is measured")
    results = [figure for name in SPEED for figure in speeds(name, compiled)]
    for name, count in MEMORY.items():
        peak = apart("--memory", name, compiled)
        results.append(told(f"rss_mib.{name}", peak, "MiB", 0, f"{count:,} requests"))
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
