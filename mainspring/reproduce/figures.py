"""The figures of a paper, one module each, and how one of them is made.

A module says which points it has (`points`), measures one (`measure`, in a process of its own),
gives verdicts (`rows`) and a picture (`draw`), and says what its shortened form costs (`cost`).
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from mainspring.document import ScenarioError
from mainspring.reproduce.experiment import gather
from mainspring.reproduce.rows import Row
from results.plots import Picture

PACKAGE = "mainspring.reproduce"

FIGURES = ("fig2", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10", "fig11", "ablation")
"""Of the Clockwork paper, in its order; what is read of one is imported when it is made."""


class Made(NamedTuple):
    """One figure that was made. picture: None where no point was measured; pictures: its files.
    complete: False after Ctrl-C. took_s: by the wall clock."""

    name: str
    rows: list[Row]
    picture: Picture | None
    pictures: list[Path]
    cost: str
    causes: tuple[str, ...]
    took_s: float
    complete: bool


def chosen(
    figure: str, figures: Sequence[str] = FIGURES, others: Sequence[str] = ("original",)
) -> Sequence[str]:
    """The figures that a name means. Raises ScenarioError if it means none.

    others: what the command knows besides, for the message.
    """
    if figure == "all":
        return figures
    if figure not in figures:
        raise ScenarioError(
            f"figure {figure}: there is no such figure; expected "
            f"{', '.join([*others, *figures])} or all"
        )
    return [figure]


def make(names: Sequence[str], out: Path, *, full: bool, package: str = PACKAGE) -> Iterator[Made]:
    """Make figures one after the other, each with its pictures and rows.json in `out`/NAME.

    After Ctrl-C the one under way is drawn from the points that were finished, and is the last.
    """
    for name in names:
        module: Any = import_module(f"{package}.{name}")
        start_s = time.monotonic()
        measure = cast(Callable[[Any], Any], module.measure)
        gathered = gather(measure, module.points(full=full), name)
        rows: list[Row] = module.rows(gathered.results)
        folder = out / name
        picture, pictures = None, []
        if gathered.results:
            picture = module.draw(gathered.results, full=full)
            pictures = picture.save(folder / name)
            (folder / "rows.json").write_bytes(msgspec.json.encode({"rows": rows}))
        took_s = time.monotonic() - start_s
        print(f"{name}: {took_s:.0f} s", file=sys.stderr)
        causes = getattr(module, "CAUSES", ())
        cost = module.cost(full=full)
        yield Made(name, rows, picture, pictures, cost, causes, took_s, gathered.complete)
        if not gathered.complete:
            return
