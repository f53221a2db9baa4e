"""How far something is, on a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from mainspring.run import Progress as Report


@contextmanager
def bars(quiet: bool) -> Iterator[Report | None]:
    """A bar for each thing, such as a policy, with the time that is left."""
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
