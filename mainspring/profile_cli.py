"""The command that measures: profile."""

import math
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from mainspring.live_options import Device, Model, Weights, box_of
from profiles import ProfileError

DEFAULTS = {
    "cpu": ["mlp", "bert-tiny", "resnet-tiny"],
    "cuda": ["resnet50", "bert-base", "vit-base"],
}


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(profile)


def profile(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL...]", help="Which; some of ours by default."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to.")] = Path("profile.toml"),
    device: Device = "cpu",
    batches: Annotated[str, typer.Option(metavar="1,2,4,8", help="Batch sizes.")] = "1,2,4,8",
    quantile: Annotated[
        float,
        typer.Option(min=0.5, max=0.9999, help="That each batch size gets runs enough for."),
    ] = 0.99,
    loads: Annotated[int, typer.Option(min=1, max=100_000, help="Of each model.")] = 200,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="At most so long a model, and then fewer runs.")
    ] = None,
    rest_ms: Annotated[
        float,
        typer.Option(
            min=0, max=10_000, help="Mean pause before each batch: an idle device starts slower."
        ),
    ] = 0.0,
    model: Model = None,
    weights: Weights = None,
    add: Annotated[
        bool, typer.Option("--add", help="Keep what is in the file; measure what it lacks.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Measure what models cost on this device, and how predictable it is."""
    from mainspring.bars import bars
    from mainspring.profiling import complaint, draw, print_steadiness, runs_for, steadiness
    from mainspring.profiling import profile as profile_models

    box = box_of(device, model, weights)
    names = models or [*box.sources.code] or DEFAULTS[device]
    sizes = _sizes(batches)
    with bars(json) as progress:
        done = profile_models(
            names, sizes, out,
            box=box, quantile=quantile, loads=loads, add=add, progress=progress,
            seconds=seconds or math.inf,
            rest_s=rest_ms / 1e3,
        )  # fmt: skip
    found = steadiness(done)
    if json:
        rows = [msgspec.to_builtins(one) | {"predictable": one.predictable} for one in found]
        print(
            msgspec.json.format(msgspec.json.encode({"profile": str(out), "rows": rows})).decode()
        )
    else:
        print_steadiness(found)
        print(f'\nprofile:  {out}  (profile = "{out}/{done[0].name}" in a scenario)')
        for picture in draw(done, out.with_suffix(".png")):
            print(f"picture:  {picture}")
    for one in done:
        if said := complaint(one):
            print(f"mainspring: warning: {one.name}: {said}; measure again", file=sys.stderr)
    left = [name for name in names if name not in {one.name for one in done}]
    short = any(one.n < runs_for(quantile) for one in found if one.model in names)
    if left or (short and seconds is None):
        print(
            f"mainspring: interrupted: {out} holds {len(done)} models"
            f"{', the last with fewer runs' if short else ''}; --add measures those that it lacks",
            file=sys.stderr,
        )
        raise typer.Exit(130)


def _sizes(batches: str) -> list[int]:
    try:
        sizes = sorted({int(part) for part in batches.split(",")})
        if sizes[0] < 1:
            raise ValueError
    except ValueError:
        raise ProfileError(
            f"--batches {batches}; expected whole numbers above 0, such as 1,2,4,8"
        ) from None
    return sizes
