"""Tensors in JSON: what is read, and what is refused before it costs anything."""

import json
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from executor.oip import (
    DATATYPES,
    MAX_JSON_BYTES,
    Asked,
    Refused,
    ServedModel,
    TensorSpec,
    answer_bytes,
    parse,
    reply,
)

NAMES = {dtype: name for name, dtype in DATATYPES.items()}
ARRAYS = st.sampled_from(list(NAMES)).flatmap(
    lambda dtype: hnp.arrays(
        dtype,
        hnp.array_shapes(max_dims=4, max_side=4),
        elements={"allow_nan": False, "allow_infinity": False} if dtype.kind == "f" else None,
    )
)


def model(shape: tuple[int, ...], datatype: str = "UINT8") -> ServedModel:
    spec = TensorSpec("x", datatype, shape)
    return ServedModel("m", (spec,), (spec._replace(name="y"),), max_batch=4)


def asked_for(shape: list[int], data: Any, datatype: str = "UINT8") -> Asked:
    one = {"name": "x", "datatype": datatype, "shape": shape, "data": data}
    of = model((-1,) * (len(shape) - 1), datatype)
    return parse(of, json.dumps({"inputs": [one]}).encode())


def refused(shape: list[int], data: Any, datatype: str = "UINT8") -> str:
    with pytest.raises(Refused) as refusal:
        asked_for(shape, data, datatype)
    return refusal.value.reason


@given(array=ARRAYS, depth=st.integers(1, 4))
def test_values_come_as_they_were_sent_however_deep_in_lists(array: np.ndarray, depth: int) -> None:
    depth = min(depth, array.ndim)
    data = array.reshape(*array.shape[: depth - 1], -1).tolist()
    asked = asked_for(list(array.shape), data, NAMES[array.dtype])
    got = np.stack([item["x"] for item in asked.items])
    assert (got.dtype, got.tobytes()) == (array.dtype, array.tobytes())


@pytest.mark.parametrize(
    ("shape", "data"),
    [([2, 2], [[1, 2, 3], [4]]), ([2, 2], [[1, 2], 3, 4]), ([2, 2], [[[1, 2]], [[3, 4]]]),
     ([1, 5], [[1]] * 5), ([1, 3], [[], [], []]), ([1, 2], ["[", "]"]), ([1, 1], "[1]"),
     ([1, 1], {"a": 1}), ([1, 1], 1), ([1, 2], None)],
)  # fmt: skip
def test_lists_that_are_no_such_tensor_are_refused(shape: list[int], data: Any) -> None:
    assert refused(shape, data) == "bad_data"


@pytest.mark.parametrize(
    ("datatype", "value"),
    [("UINT8", 256), ("UINT8", -1), ("INT64", 2**63), ("UINT64", 2**64), ("INT8", 1.0),
     ("FP16", 1e6), ("FP32", 1e39), ("BOOL", 1), ("INT32", True), ("FP32", "1"), ("FP32", None)],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(datatype: str, value: Any) -> None:
    assert refused([1, 1], [value], datatype) == "bad_data"


def test_a_long_text_among_numbers_is_not_made_an_array() -> None:
    """Numpy would make each element as wide: 13 GiB of a body of 180 kB."""
    assert refused([1, 60_001], ["a" * 60_000, *[1] * 60_000]) == "bad_data"


def test_more_json_than_can_be_read_in_passing_is_refused() -> None:
    body = b'{"inputs":[]}' + b" " * MAX_JSON_BYTES
    with pytest.raises(Refused) as refusal:
        parse(model((-1,)), body)
    assert (refusal.value.status, refusal.value.reason) == (413, "json_too_large")
    with pytest.raises(Refused) as refusal:  # but raw tensors may be as long
        parse(model((-1,)), body, json_length="13")
    assert refusal.value.reason == "bad_input"


@given(array=ARRAYS, binary=st.booleans())
def test_an_answer_is_no_larger_than_foretold(array: np.ndarray, binary: bool) -> None:
    of = model(array.shape, NAMES[array.dtype])
    asked = Asked("", [{"x": array}] * 3, None, {"y": binary})
    content, _ = reply(of, asked, [{"y": array}] * 3, {})
    few_words, _ = reply(of, asked._replace(binary={}), [{}] * 3, {})
    entry = 200 + 25 * len(array.shape)  # its name, type, and shape
    assert len(content) <= answer_bytes(of, asked) + len(few_words) + entry
    assert answer_bytes(of, asked) >= 3 * prod(array.shape)
