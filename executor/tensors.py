"""Tensors on the wire between controller and workers: a type, a shape and plain bytes.

Not here: what clients send (executor/oip.py), whose names of the types are used.
"""

from collections.abc import Mapping

import numpy as np

from executor.oip import DATATYPES
from executor.wire import Tensor

_NAMES = {dtype: name for name, dtype in DATATYPES.items()}


def datatype_of(array: np.ndarray) -> str:
    """The protocol's name of an array's type. Raises ValueError where it has none."""
    name = _NAMES.get(array.dtype.newbyteorder("<"))
    if name is None:
        raise ValueError(f"tensors of {array.dtype} can't be served")
    return name


def packed(tensors: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Named arrays as they go into a message."""
    return {name: _packed(array) for name, array in tensors.items()}


def unpacked(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """The way back; nothing is copied. Raises ValueError where bytes, type and shape disagree."""
    arrays = {}
    for name, tensor in tensors.items():
        dtype = DATATYPES.get(tensor.datatype)
        if dtype is None or any(size < 0 for size in tensor.shape):
            raise ValueError(f"{name}: no such tensor: {tensor.datatype[:20]} {tensor.shape[:9]}")
        if not tensor.data:
            if 0 not in tensor.shape:
                raise ValueError(f"{name}: no bytes for a shape of {tensor.shape[:9]}")
            arrays[name] = np.zeros(tensor.shape, dtype)
            continue
        arrays[name] = np.frombuffer(tensor.data, dtype).reshape(tensor.shape)
    return arrays


def _packed(array: np.ndarray) -> Tensor:
    datatype = datatype_of(array)
    data = np.asarray(array, DATATYPES[datatype]).tobytes()
    return Tensor(datatype, list(array.shape), data)
