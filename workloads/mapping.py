"""Which model stands for what a trace calls it.

A trace names functions, clients or models of its own. Either a name is that of a model, perhaps
after it was renamed, or the rule of a mapping decides.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from workloads.common import WorkloadError, close_to, shortened

MAPPINGS: Final = ("by_volume", "round_robin")

Models = npt.NDArray[np.int32]


def mapped(mapping: str, volume: npt.NDArray[Any], models: Sequence[int]) -> Models:
    """The model of each of F names; volume: how often each is asked for, in the trace's order.

    "by_volume": the busiest first, and name i is model floor(i * M / F); the original Clockwork's
    rule. "round_robin": in the order of the trace, and name i is model i % M.
    """
    ids = np.array(models, dtype=np.int32)
    place = np.arange(len(volume))
    if mapping == "round_robin":
        return ids[place % len(ids)]
    model_of = np.empty(len(place), dtype=np.int32)
    model_of[np.argsort(-volume, kind="stable")] = ids[place * len(ids) // len(place)]
    return model_of


class Names:
    """The model of that name, else, if numbers are places, the one at that place from 0."""

    def __init__(
        self,
        models: Sequence[int],
        model_names: Sequence[str],
        rename: Mapping[str, str],
        *,
        places: bool = True,
    ) -> None:
        self.names = [model_names[model] for model in models]
        self._places = places
        self._model: dict[str, int] = {}
        if places:
            self._model = {str(place): model for place, model in enumerate(models)}
        self._model.update(zip(self.names, models, strict=True))
        for name, model_name in rename.items():
            model = self._model.get(model_name)
            if model is None:
                raise WorkloadError(
                    f"rename: {name} = {model_name} is not a model of this workload"
                    f"{close_to(model_name, self.names)}; expected {shortened(self.names)}"
                )
            self._model[name] = model

    def get(self, name: str) -> int | None:
        """The model that a name means, if any."""
        return self._model.get(name)

    def of(self, column: Any) -> Models | None:
        """The models of a dictionary-encoded column; None if one is not known."""
        meant = [self._model.get(cell) for cell in column.dictionary.to_pylist()]
        if None in meant:
            return None
        return np.asarray(np.array(meant, dtype=np.int32)[column.indices.to_numpy()])

    def unknown(self, place: str, name: str) -> WorkloadError:
        """The error about a name that means no model."""
        number = f", or a number from 0 to {len(self.names) - 1}" if self._places else ""
        return WorkloadError(
            f"{place}: {name or 'an empty cell'} is not a model of this workload"
            f"{close_to(name, self.names)}; expected {shortened(self.names)}{number}"
            f"{'' if self._places else _way_out(name)}"
        )


def _way_out(name: str) -> str:
    return f'; rename it, as rename = {{ "{name}" = "..." }}, or set mapping = "round_robin"'


class Order:
    """Numbers for names in the order in which they first come, which a file gives in blocks."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def of(self, column: Any) -> npt.NDArray[np.int64]:
        """The numbers of a dictionary-encoded column."""
        first = np.unique(column.indices.to_numpy(), return_index=True)
        names = column.dictionary.to_pylist()
        for i in first[0][np.argsort(first[1])]:
            self.index.setdefault(names[i], len(self.index))
        number = np.array([self.index.get(name, -1) for name in names], dtype=np.int64)
        return np.asarray(number[column.indices.to_numpy()])
