"""Tensors on the wire: the way there and back, and what is none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from executor.oip import DATATYPES
from executor.tensors import packed, unpacked
from executor.wire import Do, Tensor, decode_to_worker, encode

ARRAYS = st.sampled_from(list(DATATYPES.values())).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
)


@given(array=ARRAYS)
def test_what_is_packed_comes_back_bit_by_bit(array):
    message = decode_to_worker(encode(Do(0, [], [packed({"x": array})])))
    (inputs,) = message.inputs
    back = unpacked(inputs)["x"]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()


def test_any_layout_is_packed_as_its_values():
    array = np.arange(6, dtype=">i4").reshape(2, 3).T
    assert unpacked(packed({"x": array}))["x"].tolist() == array.tolist()


@settings(max_examples=2_000, deadline=None)
@given(
    datatype=st.sampled_from([*DATATYPES, "BYTES", "", "object"]),
    shape=st.lists(st.integers(-2, 2**62), max_size=4),
    data=st.binary(max_size=40),
)
def test_a_wrong_size_is_an_error_before_anything_is_allocated(datatype, shape, data):
    try:
        array = unpacked({"x": Tensor(datatype, shape, data)})["x"]
    except ValueError:
        return
    assert array.nbytes == len(data)


def test_a_type_without_a_name_is_refused():
    with pytest.raises(ValueError, match="complex"):
        packed({"x": np.zeros(2, np.complex64)})
