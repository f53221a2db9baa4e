"""The command that says how far off a policy's predictions were."""

from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from mainspring.document import ScenarioError
from mainspring.runs import load_runs
from results.predictions import TAIL, Errors, prediction_errors
from results.table import plain_table

NO: Final = "-"


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(predictions)


def predictions(
    run: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A finished run of one policy.")],
    rows: Annotated[
        int, typer.Option(min=0, help="Models and batch sizes to show, the worst first.")
    ] = 20,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with all models, and nothing else.")
    ] = False,
) -> None:
    """How far off the predictions of durations and ends were, in the tail, in milliseconds."""
    runs = load_runs(run)
    if len(runs) > 1:
        raise ScenarioError(
            f"{run} holds {len(runs)} runs; expected one of them, such as {runs[0].directory}"
        )
    found = prediction_errors(runs[0].directory)
    if json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    print(as_text(found, rows))


def as_text(found: list[Errors], rows: int) -> str:
    """All actions in their whole tail, then models and batch sizes."""
    total = [errors for errors in found if errors.model is None]
    parts = [errors for errors in found if errors.model is not None]
    if not total:
        return "this run predicted nothing: no batch or load was done, or the policy does not say"
    seen = [name for name in TAIL if any(errors.over_ms[name] is not None for errors in total)]
    head = ["prediction of", "n", "side", *seen, "most"]
    lines = [
        [f"{errors.action}: {errors.what}", f"{errors.n:,}", side, *_cells(ms, seen), f"{most:.3f}"]
        for errors in total
        for side, ms, most in _sides(errors)
    ]
    text = plain_table(head, lines) + "\n\nms; over: it took less, or ended earlier; of all n"
    if rows and parts:
        some = ["p50", "p99"]
        head = ["model", "batch", "prediction of", "n"]
        for side in ("over", "under"):
            head += [*(f"{side} {name}" for name in some), f"{side} most"]
        lines = [
            [
                errors.model or "", str(errors.batch or NO), f"{errors.action}: {errors.what}",
                f"{errors.n:,}",
                *(
                    cell
                    for _, ms, most in _sides(errors)
                    for cell in (*_cells(ms, some), f"{most:.3f}")
                ),
            ]
            for errors in parts[:rows]
        ]  # fmt: skip
        text += f"\n\n{plain_table(head, lines)}"
        if len(parts) > rows:
            text += f"\n\n{len(parts) - rows:,} more with --rows {len(parts)}, or --json"
    return text


def _sides(errors: Errors) -> list[tuple[str, dict[str, float | None], float]]:
    return [
        ("over", errors.over_ms, errors.most_over_ms),
        ("under", errors.under_ms, errors.most_under_ms),
    ]


def _cells(ms: dict[str, float | None], names: list[str]) -> list[str]:
    return [NO if (value := ms[name]) is None else f"{value:.3f}" for name in names]
