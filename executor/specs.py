"""What a served model takes and gives, as its clients are told.

A model that spins takes any bytes and computes nothing, so its answer is an empty tensor. A real
one takes tensors like its example and gives what one run of it, here, has given.
"""

from typing import Any, Final, NamedTuple

from executor.models import SPIN, ModelError, Sources, batch_of, build, call, import_torch
from executor.oip import TensorSpec
from executor.tensors import datatype_of


class Specs(NamedTuple):
    """Of one item, without the batch dimension."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


SPIN_SPECS: Final = Specs(
    (TensorSpec("input", "UINT8", (-1,)),), (TensorSpec("output", "UINT8", (0,)),)
)


def specs_of(name: str, sources: Sources) -> Specs:
    """Build a model, run one request on the CPU, and throw it away. Raises ModelError."""
    if name == SPIN:
        return SPIN_SPECS
    torch = import_torch(f"the model {name}")
    built = build(name, sources)
    one = batch_of(built, 1)
    try:
        with torch.inference_mode():
            out = call(built, built.module, one)
        return Specs(*(tuple(_spec(*pair) for pair in side.items()) for side in (one, out)))
    except Exception as error:  # whatever a model's code raises
        text = " ".join(str(error).split())
        raise ModelError(f"{name}: {type(error).__name__}: {text}") from None


def _spec(name: str, tensor: Any) -> TensorSpec:
    array = tensor.numpy(force=True)
    return TensorSpec(name, datatype_of(array), tuple(array.shape[1:]))
