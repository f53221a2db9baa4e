"""What a worker says that it has computed is not believed, either."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("zmq", reason="live runs need pyzmq: pip install 'mainspring[executor]'")

from executor.oip import Refused, ServedModel, TensorSpec
from executor.service import Service
from executor.wire import Tensor

MODEL = ServedModel("m", (), (TensorSpec("y", "FP32", (2,)),), max_batch=1)


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [({}, "no_output"), ({"z": Tensor("FP32", [2], bytes(8))}, "bad_output"),
     ({"y": Tensor("FP32", [2], bytes(7))}, "bad_output"),
     ({"y": Tensor("FP32", [2], b"")}, "bad_output"),
     ({"y": Tensor("FP32", [2], bytes(12))}, "bad_output"),
     ({"y": Tensor("FP64", [2], bytes(16))}, "bad_output")],
)  # fmt: skip
def test_other_outputs_than_promised_are_refused(outputs: Any, reason: str) -> None:
    service: Any = SimpleNamespace(_served=[MODEL])
    with pytest.raises(Refused) as refusal:
        Service._checked(service, 0, outputs)
    assert (refusal.value.status, refusal.value.reason) == (500, reason)
