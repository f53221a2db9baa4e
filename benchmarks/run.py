"""How fast is the simulation, and how much memory does it need?

Speed is a ratio, for machines differ and are noisy: simulated requests a second, all outcomes
written to disk, over the timeouts a second of a bare SimPy loop (one process,
`yield env.timeout(1)`). Each simulation stands between two bare loops of some seconds; the figure
is the median of the rounds.
Memory is the peak of a process of its own that simulates so many requests.

    make bench        prints the figures and writes benchmarks/results.json
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import simpy

from mainspring import load_scenario
from mainspring.world import build_world, open_writer, quiet_collector

HERE = Path(__file__).parent
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


def simulate(name: str, overrides: list[str]) -> tuple[int, float, float]:
    """Requests, seconds it took, and the share in time."""
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
        return world.arrived, time.perf_counter() - start, summary.share_in_time or 0.0


def speed(name: str, overrides: list[str]) -> float:
    """The ratio for one scenario."""
    ratios = []
    before = bare()
    for _ in range(ROUNDS):
        count, seconds, share = simulate(name, overrides)
        after = bare()
        ratios.append(count / seconds / ((before + after) / 2))
        before = after
    ratio = statistics.median(ratios)
    print(
        f"ratio.clockwork.{name:9} {ratio:.4f}   {SPEED[name]}; {share:.2%} in time; "
        f"the last round {count / seconds:,.0f} req/s over {after:,.0f} timeouts/s",
        flush=True,
    )
    return ratio


def memory(name: str) -> float:
    """Peak memory in MiB of a process that simulates MEMORY[name] requests."""
    command = [sys.executable, __file__, "--memory", name]
    peak = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"rss_mib.{name:18} {peak:.0f}     {MEMORY[name]:,} requests", flush=True)
    return peak


def measure_memory(name: str) -> None:
    simulate("15x1", [f"duration_s={MEMORY[name] / 700}"])
    print(peak_mib())


def peak_mib() -> float:
    """The largest resident size of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count the parent's size before exec as well
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memory", choices=MEMORY, help="simulate, and print the peak in MiB")
    chosen = parser.parse_args().memory
    if chosen:
        measure_memory(chosen)
        return
    results = [
        {"name": f"ratio.clockwork.{name}", "value": speed(name, []), "unit": "1"} for name in SPEED
    ] + [{"name": f"rss_mib.{name}", "value": memory(name), "unit": "MiB"} for name in MEMORY]
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
