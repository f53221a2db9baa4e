"""The worker processes of a live run: started, watched, killed by a fault, started again.

A worker that ends on its own is replaced at once; one that ends again and again before it has
served ends the run.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Self

from scheduler.faults import WorkerKilled

MOST: Final = 256
"""Workers that one machine starts at most: each is a process of some 45 MiB."""

TRIES: Final = 3
LIVES_S: Final = 5.0
"""A worker that ends sooner than this counts as a failed try."""


class Crew:
    """Worker processes, one a GPU; none is left when the `with` block ends.

    gone: is told which worker's process has ended. fail: why there will be no other. Both are
    called from threads.
    """

    def __init__(
        self,
        address: str,
        count: int,
        options: Sequence[str],
        gone: Callable[[int], None],
        fail: Callable[[str], None],
    ) -> None:
        self._command = [sys.executable, "-m", "executor.worker", address]
        self._options = options
        self._gone, self._fail = gone, fail
        self._count = count
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._tries = [0] * count
        self._planned: dict[int, float | None] = {}  # killed on purpose: back after
        self._lock = threading.Lock()
        self._over = threading.Event()

    def __enter__(self) -> Self:
        try:
            for gpu in range(self._count):
                self._start(gpu)
        except BaseException:  # no process is left behind, also after Ctrl-C or where fork fails
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        with self._lock:
            processes = list(self._processes.values())
        until_s = time.monotonic() + 2
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until_s - time.monotonic()))
            process.kill()
            process.wait()

    def pid(self, gpu: int) -> int:
        """Of the process that is, or was last, this GPU's worker."""
        return self._processes[gpu].pid

    def kill(self, fault: WorkerKilled) -> None:
        """As the fault says: SIGKILL, and another one later or never."""
        process = self._processes[fault.gpu]
        if process.poll() is None:
            self._planned[fault.gpu] = fault.back_after_s
            process.kill()

    def _start(self, gpu: int) -> None:
        with self._lock:
            if self._over.is_set():
                return
            # In a group of its own: Ctrl-C in a terminal is for us, who let the workers finish.
            process = subprocess.Popen([*self._command, str(gpu), *self._options], process_group=0)
            self._processes[gpu] = process
        threading.Thread(target=self._watch, args=(gpu, process), daemon=True).start()

    def _watch(self, gpu: int, process: subprocess.Popen[bytes]) -> None:
        """Wait for the process's end, and see to its replacement."""
        young = True
        with suppress(subprocess.TimeoutExpired):
            process.wait(LIVES_S)
        if process.poll() is None:
            young = False
            process.wait()
        if self._over.is_set():
            return
        self._gone(gpu)
        if gpu in self._planned:
            back_after_s = self._planned.pop(gpu)
            if back_after_s is None or self._over.wait(back_after_s):
                return
        else:
            # SIGKILL is somebody's doing, not the worker's.
            failed = young and process.returncode != -9
            self._tries[gpu] = self._tries[gpu] + 1 if failed else 0
            if self._tries[gpu] >= TRIES:
                self._fail(
                    f"worker {gpu} ended {TRIES} times, last with exit code {process.returncode}; "
                    "what it wrote above says why"
                )
                return
        self._start(gpu)
