"""Whatever comes in, the answer is tensors or a refusal with a reason."""

import asyncio
import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from executor.oip import Refused, parse
from tests.executor.fronts import DOUBLE, Front

EXAMPLES = int(os.environ.get("MAINSPRING_EXAMPLES", 1_000))

sizes = st.one_of(st.integers(-2, 9), st.integers(2**30, 2**70))
leaves = st.one_of(st.none(), st.booleans(), sizes, st.floats(allow_nan=False), st.text(max_size=5))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
parameters = st.dictionaries(
    st.sampled_from(
        ["binary_data_size", "binary_data", "binary_data_output", "slo_ms", "timeout",
         "sequence_id", "shared_memory_region", "classification"]
    ),
    st.one_of(sizes, values),
    max_size=3,
)  # fmt: skip


def one(names: str) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"name": st.sampled_from([names, "", "z"]), "datatype": st.sampled_from(
            ["FP32", "FP32", "FP32", "INT8", "BYTES", "?"]),
         "shape": st.one_of(st.just([1, 2]), st.lists(sizes, max_size=9))},
        optional={"data": values, "parameters": parameters},
    )  # fmt: skip


bodies = st.one_of(
    values,
    st.fixed_dictionaries(
        {"inputs": st.lists(one("x"), max_size=2)},
        optional={"outputs": st.lists(one("y"), max_size=2), "parameters": parameters,
                  "id": leaves},
    ),
)  # fmt: skip
headers = st.one_of(
    st.none(), st.integers(-3, 400).map(str), st.text(st.characters(codec="latin-1"), max_size=25)
)
frames = st.one_of(
    st.binary(max_size=64),
    st.builds(lambda tree, tail: json.dumps(tree).encode() + tail, bodies, st.binary(max_size=16)),
    bodies.map(lambda tree: json.dumps(tree).encode()),
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(frames, headers, st.booleans(), headers)
def test_a_body_is_read_or_refused(
    frame: bytes, length: str | None, fits: bool, slo_ms: str | None
) -> None:
    if fits:  # where the JSON ends, so that the tail is read as tensors
        length = str(max(frame.rfind(b"}") + 1, 0))
    refused, items = outcome_of(frame, length, slo_ms)
    if refused is None:
        assert 1 <= items <= DOUBLE.max_batch
    else:
        assert refused.status == 400
        assert refused.reason
        assert len(str(refused)) < 1_000


def outcome_of(frame: bytes, length: str | None, slo_ms: str | None) -> tuple[Refused | None, int]:
    try:
        return None, len(parse(DOUBLE, frame, length, slo_ms).items)
    except Refused as refused:
        return refused, 0


@settings(max_examples=EXAMPLES // 10, deadline=None, suppress_health_check=list(HealthCheck))
@given(frames, headers)
def test_the_server_answers_every_body(frame: bytes, length: str | None) -> None:
    given = {} if length is None else {"Inference_Header_Content_Length": length}
    reply = LOOP.run_until_complete(FRONT.send("POST", "/v2/models/double/infer", frame, **given))
    assert reply.status == 200 or (400 <= reply.status < 500 and reply.json["reason"])
    assert _metric("mainspring_waiting_requests") in (0.0, None)


FRONT = Front()
LOOP = asyncio.new_event_loop()


def _metric(name: str) -> float | None:
    return FRONT.counts._registry.get_sample_value(name)


@pytest.mark.parametrize("depth", [100, 100_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    frame = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":' + b"[" * depth
    for tail in (b"", b"]" * depth + b"}]}"):
        with pytest.raises(Refused):
            parse(DOUBLE, frame + tail)
