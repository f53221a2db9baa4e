"""The command of the other machine: worker."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from executor.address import AddressError, endpoint, known
from mainspring.document import ScenarioError
from mainspring.live_options import Model, Weights, sources_of


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(worker)


def worker(
    address: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="Where the controller listens.")
    ],
    gpu: Annotated[int, typer.Argument(min=0, help="Which GPU of the scenario's cluster to be.")],
    keys: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The part worker-N of what `mainspring keys` has made."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="cpu|cuda|cuda:N",
            help="What models may run on here; by default what the controller says, card 0.",
        ),
    ] = None,
    model: Model = None,
    weights: Weights = None,
) -> None:
    """Be one GPU of a live run whose controller is elsewhere (live, serve, validate --listen).

    Serves one run after the other, and waits for the next, until Ctrl-C.
    """
    sources = sources_of(model or [], weights or [])
    try:
        from executor.device import DeviceError
        from executor.devices.cuda_driver import cuda_torch
        from executor.keys import KeysError
        from executor.models import ModelError
        from executor.worker import Operator, WorkerError, serve
    except ImportError as error:
        raise ScenarioError(
            f"a worker needs {error.name}; install it with pip install 'mainspring[executor]'"
        ) from None
    operator = Operator(*_device(device), _say)
    try:
        where = endpoint(address)
        known(where)
        if operator.device == "cuda":  # a run that comes tomorrow would be the first to find out
            cuda_torch(operator.card)
        while True:
            _say(f"GPU {gpu} waits for a controller at {where}; Ctrl-C ends it")
            _say(serve(where, gpu, sources, keys, operator).value)
    except AddressError as error:
        raise ScenarioError(str(error)) from None
    except (KeysError, WorkerError) as error:
        raise ScenarioError(str(error)) from None
    except (DeviceError, ModelError) as error:
        raise ScenarioError(f"--device {device}: {error}") from None
    except KeyboardInterrupt:
        _say("ended")


def _device(text: str | None) -> tuple[str | None, int]:
    """The device and which one. Raises ScenarioError."""
    if text is None:
        return None, 0
    kind, colon, card = text.partition(":")
    if kind not in ("cpu", "cuda") or (colon and not (kind == "cuda" and card.isdecimal())):
        raise ScenarioError(f"--device {text}; expected cpu, cuda, or cuda:N for card N")
    return kind, int(card or 0)


def _say(text: str) -> None:
    print(f"worker: {text}", file=sys.stderr, flush=True)
