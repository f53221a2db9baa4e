"""How far something is, on a terminal: shares of a whole, or so many of so many."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

EVERY_S: Final = 15.0
"""How often there is a line where there is no terminal."""


@contextmanager
def bars(quiet: bool) -> Iterator[Callable[[str, float], None] | None]:
    """A bar for each thing, such as a policy, with the time that is left; for (label, share)."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as shown:
        tasks: dict[str, Any] = {}

        def report(label: str, share: float) -> None:
            if label not in tasks:
                tasks[label] = shown.add_task(label, total=1.0)
            shown.update(tasks[label], completed=share)

        yield report


@contextmanager
def counts(quiet: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """One bar with the time that is left, for (label, done, total); without a terminal, a line now
    and then."""
    console = Console(stderr=True)
    if quiet:
        yield None
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeRemainingColumn(), console=console) as shown:
            task = shown.add_task("", total=None)

            def draw(label: str, done: int, total: int) -> None:
                shown.update(task, completed=done, total=total, description=label)

            yield draw
    else:
        start_s = last_s = time.monotonic()
        first: int | None = None

        def say(label: str, done: int, total: int) -> None:
            nonlocal last_s, first
            first = done if first is None else first
            now_s = time.monotonic()
            if now_s - last_s < EVERY_S or done == first:
                return
            last_s = now_s
            left_s = (now_s - start_s) / (done - first) * (total - done)
            print(f"{label}: {done} of {total}, about {left_s:.0f} s left", file=sys.stderr)

        yield say
