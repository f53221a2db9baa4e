"""How much faster is a sweep on two processes than on one? 3 policies x 8 rates x 5 seeds.

    python benchmarks/sweep.py

Both are measured in turn, from scratch, with the start of the processes in it. The machine ought
to have two processors to itself. What this process does itself cannot be shared out; its processor
time stands beside.
"""

import tempfile
import time
from pathlib import Path

import mainspring

STUDY = Path(__file__).parents[1] / "scenarios" / "sweep.toml"


def seconds(jobs: int, home: Path) -> tuple[float, float, str]:
    """How long the sweep takes, how long this process works for it, and what it gives."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    done = mainspring.sweep(STUDY, home, jobs=jobs)
    assert done.table.num_rows == 3 * 8 * 5
    return time.perf_counter() - began_s, time.process_time() - began_cpu_s, done.digest


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        one_s, _, one = seconds(1, Path(folder, "one"))
        two_s, here_s, two = seconds(2, Path(folder, "two"))
    assert one == two, "the same points, whoever runs them"
    print(f"one process   {one_s:6.1f} s")
    print(f"two processes {two_s:6.1f} s, {one_s / two_s:.2f} times as fast (asked: 1.6)")
    print(f"of that, in the process that shares out the work: {here_s:.1f} s of processor time")
