"""Options of the commands that run models for real."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from executor.models import Sources
from mainspring.document import ScenarioError
from mainspring.live import Box
from mainspring.remote import remote_of

Device = Annotated[Literal["cpu", "cuda"], typer.Option(help="What the models run on.")]
Model = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=FILE.py:FUNCTION|FILE.pt2",
        help="A model of your own, for models.N.model; repeatable.",
    ),
]
Weights = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=FILE", help="Its weights: .safetensors, or .pt; repeatable."),
]


Listen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Where workers find the controller that `mainspring worker` starts, on other machines "
        "perhaps; without it they are started here.",
    ),
]
Keys = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="What `mainspring keys` has made, or its part `controller`: who else may come in.",
    ),
]
Wait = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="For such workers at most; for ever by default."),
]


def box_of(
    device: Literal["cpu", "cuda"],
    models: list[str] | None,
    weights: list[str] | None,
    listen: str | None = None,
    keys: Path | None = None,
    wait_s: float | None = None,
) -> Box:
    """What the options say. Raises ScenarioError."""
    sources = sources_of(models or [], weights or [])
    return Box(device, sources, remote_of(listen, keys, wait_s))


def sources_of(models: Sequence[str], weights: Sequence[str]) -> Sources:
    """What `--model NAME=CODE` and `--weights NAME=FILE` say. Raises ScenarioError."""
    code = dict(_pair("--model", text) for text in models)
    files = dict(_pair("--weights", text) for text in weights)
    for name, path in (*code.items(), *files.items()):
        file = path.rpartition(":")[0] or path
        is_file = path in files.values() or file.endswith((".py", ".pt2"))
        if is_file and not Path(file).is_file():
            raise ScenarioError(f"{name}={path}: there is no file {file}")
    return Sources(code, files)


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ScenarioError(f"{option} {text}: expected NAME=FILE, as in net=net.py:make_model")
    return name, value
