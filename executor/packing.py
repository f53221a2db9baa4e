"""A module's weights in one piece, and the module's tensors as views on wherever that piece lies.

The piece is the source of truth: it stays on the host, a load copies it to the device, and the
module's parameters and buffers are made to point there. Whole storages are packed, not tensors, so
that tied weights, views and strides survive.
Not here: where the piece goes (`executor/devices/`).
"""

from typing import Any, Final, NamedTuple

ALIGNMENT: Final = 256
"""Of each storage in the piece, in bytes: what cudaMalloc guarantees, and any CPU needs."""


class _Slot(NamedTuple):
    """Where one tensor lies in the piece: its storage's first byte and length, and its shape in
    that storage, in elements."""

    first: int
    length: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class Packed:
    """A module's weights. module: on the CPU; its own memory is freed.

    weights: one uint8 tensor on the CPU, shape (bytes,). Raises ValueError where the module has
    weights that are not there (torch's meta device).
    """

    def __init__(self, module: Any) -> None:
        import torch

        self._slots: list[_Slot] = []
        firsts: dict[int, int] = {}
        storages = []
        end = 0
        for tensor in _tensors(module):
            if tensor.device.type != "cpu":
                raise ValueError(f"weights on the device {tensor.device}; expected them on the cpu")
            storage = tensor.untyped_storage()
            first = firsts.get(storage.data_ptr())
            if first is None:
                first = firsts[storage.data_ptr()] = -(-end // ALIGNMENT) * ALIGNMENT
                end = first + storage.nbytes()
                storages.append((first, storage))
            self._slots.append(
                _Slot(
                    first, storage.nbytes(),
                    tuple(tensor.shape), tensor.stride(), tensor.storage_offset(),
                )
            )  # fmt: skip
        self.weights = torch.zeros(max(end, 1), dtype=torch.uint8)
        for first, storage in storages:
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)
            self.weights[first : first + storage.nbytes()].copy_(whole)
        self._empty(module)
        self._module = module

    def another(self) -> Any:
        """The module once more: the same code, tensors of its own, no memory until it is bound."""
        from copy import deepcopy

        self._empty(self._module)
        return deepcopy(self._module)

    def bind(self, module: Any, piece: Any) -> None:
        """Make the module's tensors views on `piece`, uint8, shape (bytes,) or longer.

        module: the one that was packed, or `another`.
        """
        for tensor, slot in zip(_tensors(module), self._slots, strict=True):
            storage = piece[slot.first : slot.first + slot.length].view(tensor.dtype)
            offset = storage.storage_offset() + slot.offset
            tensor.data = storage.as_strided(slot.size, slot.stride, offset)

    def _empty(self, module: Any) -> None:
        for tensor in _tensors(module):
            tensor.data = tensor.data.new_empty(0)


def _tensors(module: Any) -> list[Any]:
    """Every parameter and buffer once, in an order that a deep copy keeps."""
    found: dict[int, Any] = {}
    for part in module.modules():
        for tensor in (*part._parameters.values(), *part._buffers.values()):
            if tensor is not None:
                found.setdefault(id(tensor), tensor)
    return list(found.values())
