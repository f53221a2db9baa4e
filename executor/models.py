"""Models that a live worker can run, by name.

    spin                   keeps the engine busy for its profile's time; no code, no torch
    BUILT_IN               a small MLP, and architectures of `transformers` with random weights
    NAME=FILE.py:FUNCTION  the operator's own: a callable that returns (module, example)
    NAME=FILE.pt2          a file of torch.export

An example is one request: a tensor, a tuple of tensors, or a dict of them by the names that
`forward` has, each without the batch dimension. Code comes from the operator's command line only;
messages and scenarios hold names. Weights are read without running any (safetensors, or torch's
weights_only).
Not here: where weights lie (`executor/packing.py`), and running a batch (`executor/devices/`).
"""

import importlib
import importlib.util
import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from executor.packing import Packed

SPIN: Final = "spin"


class ModelError(Exception):
    """A model cannot be had. The message is one line: what, where, the way out."""


class Sources(NamedTuple):
    """What the operator's command line says of models: FILE.py:FUNCTION or FILE.pt2 by name, and
    the file of the weights by name."""

    code: Mapping[str, str] = {}
    weights: Mapping[str, str] = {}


class Built(NamedTuple):
    """A model in the host's memory.

    module: a torch.nn.Module in evaluation mode, on the CPU. example: one request by input, each
    tensor without the batch dimension. positional: `module` takes the inputs by position.
    """

    module: Any
    example: dict[str, Any]
    positional: bool


def known(sources: Sources) -> list[str]:
    """Every name that `build` takes, and `spin`."""
    return [SPIN, *BUILT_IN, *sources.code]


def build(name: str, sources: Sources = Sources()) -> Built:  # noqa: B008, it is immutable
    """Make a model. The built-in ones are the same in every process. Raises ModelError."""
    torch = import_torch(f"the model {name}")
    code = sources.code.get(name)
    if code is None and name not in BUILT_IN:
        raise ModelError(
            f"no model {name}; expected one of {', '.join(known(sources))}, "
            f"or its code on the command line: --model {name}=FILE.py:FUNCTION"
        )
    if code is not None and code.endswith(".pt2"):
        built = _exported(name, Path(code))
    else:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            made = BUILT_IN[name]() if code is None else _called(name, code)
        built = _checked(name, made)
    if file := sources.weights.get(name):
        _read_weights(name, built.module, Path(file))
    built.module.requires_grad_(False)
    return built


class Size(NamedTuple):
    """What a model takes, in bytes: its weights in one piece, and one request's payload."""

    weights: int
    input: int
    output: int


def size_of(name: str, sources: Sources = Sources()) -> Size:  # noqa: B008, it is immutable
    """Build a model, run one request on the CPU, and throw it away. Raises ModelError."""
    if name == SPIN:
        raise ModelError("it takes its profile's time; there is nothing to measure")
    torch = import_torch(f"the model {name}")
    built = build(name, sources)
    one = batch_of(built, 1)
    try:
        with torch.inference_mode():
            out = call(built, built.module, one)
        weights = Packed(built.module).weights.numel()
    except Exception as error:  # whatever a model's code raises
        raise ModelError(f"{name}: {type(error).__name__}: {_one_line(error)}") from None
    return Size(weights, sum(x.nbytes for x in one.values()), sum(x.nbytes for x in out.values()))


def batch_of(built: Built, batch: int) -> dict[str, Any]:
    """The example, `batch` times."""
    return {
        name: tensor.unsqueeze(0).expand(batch, *tensor.shape).contiguous()
        for name, tensor in built.example.items()
    }


def call(built: Built, module: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run a batch, and name its outputs; tensors that do not begin with the batch are left out."""
    out = module(*inputs.values()) if built.positional else module(**inputs)
    if hasattr(out, "items"):
        named = list(out.items())
    elif isinstance(out, Sequence):
        named = [(f"output_{i}", tensor) for i, tensor in enumerate(out)]
    else:
        named = [("output", out)]
    return {name: tensor for name, tensor in named if hasattr(tensor, "dtype") and tensor.dim()}


def import_torch(what: str) -> Any:
    """Torch, or ModelError with the way to it."""
    try:
        import torch
    except ImportError:
        raise ModelError(
            f"{what} needs torch, which is not installed; pip install 'mainspring[executor]'"
        ) from None
    return torch


# ---- ours


def _mlp(width: int, layers: int) -> tuple[Any, Any]:
    from torch import nn, zeros

    parts: list[Any] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts), zeros(width)


def _architecture(kind: str, shape: Sequence[int], **config: Any) -> tuple[Any, Any]:
    """A model of `transformers`, made from its config: nothing is downloaded.

    shape: of the pixels of one image, or (tokens,).
    """
    import torch

    try:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        import transformers
    except ImportError:
        raise ModelError(
            f"a built-in {kind} needs transformers, which is not installed; "
            "pip install 'mainspring[executor]'"
        ) from None
    made_of = getattr(transformers, f"{kind}Config")(**config)
    images = len(shape) > 1
    name = f"{kind}ForImageClassification" if images else f"{kind}ForSequenceClassification"
    module = getattr(transformers, name)(made_of)
    if images:
        return module, {"pixel_values": torch.rand(*shape)}
    return module, {"input_ids": torch.arange(1, shape[0] + 1)}


_IMAGE: Final = (3, 224, 224)

BUILT_IN: Final[dict[str, Callable[[], tuple[Any, Any]]]] = {
    "mlp": lambda: _mlp(512, 8),
    "mlp-tiny": lambda: _mlp(64, 2),
    "bert-base": lambda: _architecture("Bert", (128,)),
    "bert-small": lambda: _architecture(
        "Bert", (64,), vocab_size=1000, hidden_size=256, num_hidden_layers=4,
        num_attention_heads=4, intermediate_size=1024,
    ),
    "bert-tiny": lambda: _architecture(
        "Bert", (32,), vocab_size=1000, hidden_size=128, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=512,
    ),
    "vit-base": lambda: _architecture("ViT", _IMAGE),
    "vit-tiny": lambda: _architecture(
        "ViT", (3, 64, 64), image_size=64, hidden_size=64, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=128,
    ),
    "resnet50": lambda: _architecture("ResNet", _IMAGE),
    "resnet-small": lambda: _architecture(
        "ResNet", (3, 112, 112), embedding_size=32, hidden_sizes=[32, 64, 128, 256],
        depths=[2, 2, 2, 2], layer_type="basic",
    ),
    "resnet-tiny": lambda: _architecture(
        "ResNet", (3, 64, 64), embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1],
        layer_type="basic",
    ),
    "mobilenet-v2": lambda: _architecture("MobileNetV2", _IMAGE),
    "mobilenet-tiny": lambda: _architecture(
        "MobileNetV2", (3, 64, 64), image_size=64, depth_multiplier=0.25,
    ),
}  # fmt: skip
"""By name: what makes the module, and an example. `small` is for CPUs, `tiny` for tests."""


# ---- the operator's


def _called(name: str, code: str) -> Any:
    file, colon, function = code.rpartition(":")
    where = f"--model {name}={code}"
    if not colon:
        raise ModelError(f"{where}: expected FILE.py:FUNCTION or FILE.pt2")
    try:
        made = getattr(_imported(file), function)()
    except Exception as error:
        raise ModelError(f"{where}: {type(error).__name__}: {error}") from error
    return made


def _imported(file: str) -> Any:
    if not file.endswith(".py"):
        return importlib.import_module(file)
    spec = importlib.util.spec_from_file_location(f"_mainspring_model_{Path(file).stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _checked(name: str, made: Any) -> Built:
    import torch

    try:
        module, example = made
    except (TypeError, ValueError):
        module, example = made, None
    if not isinstance(module, torch.nn.Module) or example is None:
        raise ModelError(
            f"--model {name}: the function returned {type(made).__name__}; expected "
            "(torch.nn.Module, example), the example being one request without a batch dimension"
        )
    return Built(module.eval(), *_example(name, example))


def _example(name: str, example: Any) -> tuple[dict[str, Any], bool]:
    import torch

    if isinstance(example, torch.Tensor):
        example = (example,)
    by_name = isinstance(example, Mapping)
    pairs = (
        list(example.items())
        if isinstance(example, Mapping)
        else [(f"input_{i}" if len(example) > 1 else "input", x) for i, x in enumerate(example)]
    )
    if not pairs or not all(isinstance(tensor, torch.Tensor) for _, tensor in pairs):
        raise ModelError(f"--model {name}: the example holds something that is no tensor")
    return dict(pairs), not by_name


def _exported(name: str, file: Path) -> Built:
    """A file of torch.export. It may hold pickles, which could run anything: refused."""
    import torch

    where = f"--model {name}={file}"
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
        objects = [part for part in names if "custom_obj" in part or "opaque_obj" in part]
        if objects:
            raise ModelError(f"{where}: it holds pickled objects ({objects[0]}); export without")
        with _weights_only():
            program = torch.export.load(file)
        args, kwargs = program.example_inputs or ((), {})
    except ModelError:
        raise
    except Exception as error:  # what a broken file raises is in no contract
        raise ModelError(f"{where}: {_one_line(error)}") from None
    if kwargs:
        raise ModelError(f"{where}: exported with arguments by name; export with positional ones")
    if not args or not all(isinstance(arg, torch.Tensor) and arg.dim() for arg in args):
        raise ModelError(f"{where}: expected tensors with a batch dimension as example inputs")
    return Built(program.module(), *_example(name, tuple(arg[0].clone() for arg in args)))


@contextmanager
def _weights_only() -> Iterator[None]:
    """Nothing that torch.load reads may run code, whatever its callers ask for."""
    key = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(key)
    os.environ[key] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[key]
        else:
            os.environ[key] = before


def _read_weights(name: str, module: Any, file: Path) -> None:
    where = f"--weights {name}={file}"
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(file)
        else:
            import torch

            state = torch.load(file, map_location="cpu", weights_only=True)
        module.load_state_dict(state)
    except ImportError:
        raise ModelError(f"{where}: needs safetensors; pip install safetensors") from None
    except Exception as error:  # what a broken file raises is in no contract
        raise ModelError(f"{where}: {_one_line(error)}") from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
