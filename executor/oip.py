"""The Open Inference Protocol v2: bytes in, tensors out, and the way back.

A request is JSON, perhaps followed by raw tensors; the header Inference-Header-Content-Length says
where the JSON ends. Nothing here believes a size that a client states: each is compared with what
is there before anything is allocated.
Not here: HTTP (executor/front.py). Left out: shared memory, sequences and BYTES tensors, which no
model here takes; they are refused by name.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from math import prod
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

DATATYPES: Final = {
    "BOOL": np.dtype("?"),
    **{f"{word}INT{bits}": np.dtype(f"<{word.lower() or 'i'}{bits // 8}")
       for word in ("", "U") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
}  # fmt: skip
"""The protocol's names of the types that a tensor may have."""

VERSION: Final = "1"
"""The only version of every model."""

MAX_JSON_BYTES: Final = 4 * 2**20
"""To read so much stops the controller for up to 0.3 s; raw tensors cost nothing of that kind."""

_TEXT_BYTES: Final = 25
"""A value in an answer in JSON, at most: -1.7976931348623157e+308 and a comma."""

_MAX_DIMS: Final = 8
_MAX_VALUES: Final = 2**40
_NAMES: Final = {dtype: name for name, dtype in DATATYPES.items()}


class Refused(Exception):
    """The client's mistake, or our limit. reason: one word for programs; the text is for people."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class TensorSpec(NamedTuple):
    """A named input or output of a model; shape: of one item, without the batch. -1: any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class ServedModel(NamedTuple):
    """A model as clients see it. max_batch: the largest batch, and the most items of a request."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch: int
    slo_ns: int | None = None


class Asked(NamedTuple):
    """What a client asked for.

    items: the inputs of each item, without the batch dimension. slo_ns: None where the client did
    not say. binary: for each output that is wanted, in order, whether as raw bytes.
    """

    id: str
    items: list[dict[str, np.ndarray]]
    slo_ns: int | None
    binary: dict[str, bool]


_Parameter = str | int | float | bool | None


class _Input(msgspec.Struct):
    """data: the JSON of the values; it is read once its shape is known to be one."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, _Parameter] = {}
    data: msgspec.Raw = msgspec.Raw(b"")


class _Output(msgspec.Struct):
    name: str
    parameters: dict[str, _Parameter] = {}


class _Body(msgspec.Struct):
    inputs: list[_Input]
    id: str = ""
    parameters: dict[str, _Parameter] = {}
    outputs: list[_Output] = []


_decoder = msgspec.json.Decoder(_Body)


def parse(
    model: ServedModel,
    body: bytes | bytearray,
    json_length: str | None = None,
    slo_ms: str | None = None,
) -> Asked:
    """Read the body of an infer request.

    json_length, slo_ms: the headers of that meaning, where given; an SLO in the body goes first.
    Raises Refused with status 400, or 413 where there is more JSON than MAX_JSON_BYTES.
    """
    cut = _json_length(json_length, len(body))
    if cut > MAX_JSON_BYTES:
        raise Refused(
            413,
            "json_too_large",
            f"{cut} bytes of JSON; {MAX_JSON_BYTES} at most, send larger tensors as binary data",
        )
    try:
        asked = _decoder.decode(memoryview(body)[:cut])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise _bad("not_json", f"not an inference request in JSON: {error}") from None
    tensors = _inputs(model, asked.inputs, memoryview(body)[cut:])
    counts = {len(tensor) for tensor in tensors.values()}
    if len(counts) > 1:
        raise _bad("bad_shape", f"inputs have {sorted(counts)} items; expected as many in each")
    count = counts.pop()
    if not 1 <= count <= model.max_batch:
        raise _bad("bad_batch", f"{count} items; {model.name} takes 1 to {model.max_batch}")
    return Asked(
        id=asked.id,
        items=[{name: tensor[i] for name, tensor in tensors.items()} for i in range(count)],
        slo_ns=_slo_ns(asked.parameters, slo_ms),
        binary=_wanted(model, asked),
    )


def reply(
    model: ServedModel,
    asked: Asked,
    outputs: Sequence[Mapping[str, np.ndarray]],
    parameters: Mapping[str, Any],
) -> tuple[bytes, int | None]:
    """The body of an answer and the length of its JSON; None where nothing follows it.

    outputs: of each item, in the order of `asked.items`.
    """
    shown: list[dict[str, Any]] = []
    raw: list[bytes] = []
    for name, binary in asked.binary.items():
        tensor = np.stack([item[name] for item in outputs])
        datatype = _NAMES[tensor.dtype.newbyteorder("<")]
        entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(tensor.shape)}
        if binary:
            data = np.ascontiguousarray(tensor, DATATYPES[datatype]).tobytes()
            entry["parameters"] = {"binary_data_size": len(data)}
            raw.append(data)
        else:
            entry["data"] = tensor.ravel().tolist()
        shown.append(entry)
    head = {"model_name": model.name, "model_version": VERSION, "parameters": dict(parameters)}
    if asked.id:
        head["id"] = asked.id
    text = msgspec.json.encode(head | {"outputs": shown})
    return b"".join([text, *raw]), len(text) if raw else None


def answer_bytes(model: ServedModel, asked: Asked) -> int:
    """How large an answer may get, but for its few words."""
    values = {spec.name: (DATATYPES[spec.datatype].itemsize, prod(spec.shape))
              for spec in model.outputs}  # fmt: skip
    return len(asked.items) * sum(
        (values[name][0] if binary else _TEXT_BYTES) * values[name][1]
        for name, binary in asked.binary.items()
    )


def _json_length(header: str | None, body: int) -> int:
    if header is None:
        return body
    if not (header.isascii() and header.isdigit() and len(header) < 20 and int(header) <= body):
        raise _bad(
            "bad_header",
            f"Inference-Header-Content-Length: {header[:40]}; expected a length up to the body's, "
            f"{body}",
        )
    return int(header)


def _inputs(
    model: ServedModel, inputs: Sequence[_Input], tail: memoryview
) -> dict[str, np.ndarray]:
    known = {spec.name: spec for spec in model.inputs}
    tensors: dict[str, np.ndarray] = {}
    at = 0
    for one in inputs:
        spec = known.get(one.name)
        if spec is None or one.name in tensors:
            text = f"input {one.name[:80]!r} is given twice"
            if spec is None:
                text = f"there is no input {one.name[:80]!r}; expected {', '.join(known)}"
            raise _bad("bad_input", text)
        _check_shape(one, spec)
        size: Any = one.parameters.get("binary_data_size")
        if size is None:
            tensors[one.name] = _from_json(one)
            continue
        tensors[one.name] = _from_bytes(one, size, tail[at:])
        at += size
    if missing := known.keys() - tensors.keys():
        raise _bad("bad_input", f"no input {', '.join(sorted(missing))}; {model.name} needs it")
    if at != len(tail):
        raise _bad("bad_size", f"{len(tail) - at} bytes after the last tensor; expected none")
    return tensors


def _check_shape(one: _Input, spec: TensorSpec) -> None:
    if one.datatype != spec.datatype:
        raise _bad(
            "bad_datatype", f"input {one.name} is {one.datatype[:20]}; expected {spec.datatype}"
        )
    fits = len(one.shape) == len(spec.shape) + 1 <= _MAX_DIMS and all(
        size >= 0 and wanted in (-1, size)
        for size, wanted in zip(one.shape[1:], spec.shape, strict=True)
    )
    too_large = prod(max(size, 1) for size in one.shape[:_MAX_DIMS]) > _MAX_VALUES
    if not fits or one.shape[0] < 0 or too_large:
        shape = [-1, *spec.shape]
        raise _bad(
            "bad_shape", f"input {one.name} is of shape {str(one.shape[:9])[:80]}; expected {shape}"
        )
    if any(key.startswith("shared_memory") for key in one.parameters):
        raise _bad("unsupported", f"input {one.name} lies in shared memory; send it in the body")


def _from_bytes(one: _Input, size: Any, tail: memoryview) -> np.ndarray:
    dtype = DATATYPES[one.datatype]
    expected = prod(one.shape) * dtype.itemsize
    if one.data:
        raise _bad("bad_input", f"input {one.name} has both data and binary_data_size")
    if type(size) is not int or size != expected:
        raise _bad(
            "bad_size",
            f"input {one.name}: binary_data_size {str(size)[:40]}; its shape and datatype make "
            f"{expected}",
        )
    if size > len(tail):
        raise _bad("bad_size", f"input {one.name} needs {size} bytes; {len(tail)} are left")
    if not size:
        return np.zeros(one.shape, dtype)
    if dtype == np.bool_ and np.frombuffer(tail[:size], np.uint8).max() > 1:
        raise _bad("bad_data", f"input {one.name}: a BOOL is a byte 0 or 1")
    return np.frombuffer(tail[:size], dtype).reshape(one.shape)


def _from_json(one: _Input) -> np.ndarray:
    dtype = DATATYPES[one.datatype]
    if not one.data:
        raise _bad("bad_input", f"input {one.name} has neither data nor binary_data_size")
    values = _values(one, dtype.kind)
    if dtype.kind in "iu" and values:
        range_ = np.iinfo(dtype)
        fits = range_.min <= min(values) and max(values) <= range_.max
        tensor = np.array(values if fits else [], dtype)
    else:
        with np.errstate(over="ignore"):
            tensor = np.array(values, np.float64 if dtype.kind == "f" else dtype).astype(dtype)
        fits = bool(np.isfinite(tensor).all())
    if not fits:
        raise _bad("bad_data", f"input {one.name}: a value does not fit into {one.datatype}")
    return tensor.reshape(one.shape)


def _values(one: _Input, kind: str) -> list[Any]:
    """In order. The data's last dimensions may be flattened, and all of them."""
    data = bytes(one.data)
    start = data[:100].translate(None, b" \t\r\n")
    depth = len(start) - len(start.lstrip(b"["))
    # Lists are dear to make, so they are counted before.
    lists = 1 + sum(prod(one.shape[:i]) for i in range(1, depth))
    if not 1 <= depth <= len(one.shape) or data.count(b"[") != lists:
        raise _bad("bad_data", f"input {one.name}: lists that do not make a shape of {one.shape}")
    try:
        rows = _reader(kind, depth).decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise _bad("bad_data", f"input {one.name}, values of {one.datatype}: {error}") from None
    sizes = [*one.shape[: depth - 1], prod(one.shape[depth - 1 :])]
    for size in sizes[1:]:
        if any(len(row) != size for row in rows):
            raise _bad("bad_data", f"input {one.name}: rows that do not fit {one.shape}")
        rows = list(chain.from_iterable(rows))
    if len(rows) != prod(sizes):
        raise _bad(
            "bad_size", f"input {one.name}: {len(rows)} values for a shape of {prod(one.shape)}"
        )
    return rows


@cache
def _reader(kind: str, depth: int) -> msgspec.json.Decoder[list[Any]]:
    """Of lists of lists of numbers. kind: as in numpy's dtypes; depth: up to _MAX_DIMS."""
    values: Any = {"b": bool, "i": int, "u": int, "f": float}[kind]
    for _ in range(depth):
        values = list[values]
    return msgspec.json.Decoder(values)


def _wanted(model: ServedModel, asked: _Body) -> dict[str, bool]:
    by_default = _flag(asked.parameters, "binary_data_output", False)
    if not asked.outputs:
        return {spec.name: by_default for spec in model.outputs}
    known = [spec.name for spec in model.outputs]
    wanted: dict[str, bool] = {}
    for one in asked.outputs:
        if one.name not in known or one.name in wanted:
            text = f"output {one.name[:80]!r} is asked for twice"
            if one.name not in known:
                text = f"there is no output {one.name[:80]!r}; there is {', '.join(known)}"
            raise _bad("bad_output", text)
        if one.parameters.get("classification") or "shared_memory_region" in one.parameters:
            raise _bad("unsupported", f"output {one.name}: neither classes nor shared memory here")
        wanted[one.name] = _flag(one.parameters, "binary_data", by_default)
    return wanted


def _flag(parameters: Mapping[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if type(value) is not bool:
        raise _bad("bad_parameter", f"{name}: expected true or false")
    return value


def _slo_ns(parameters: Mapping[str, Any], header: str | None) -> int | None:
    """From slo_ms, the header, or `timeout`, which Triton's clients send in microseconds."""
    if parameters.get("sequence_id"):
        raise _bad("unsupported", "sequence_id: no model here keeps state between requests")
    value: Any = parameters.get("slo_ms")
    unit_ns, name = 1e6, "slo_ms"
    if value is None and header is not None:
        try:
            value = float(header)
        except ValueError:
            value = header
    elif value is None and "timeout" in parameters:
        value, unit_ns, name = parameters["timeout"], 1e3, "timeout"
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and 0 < value <= 1e15 / unit_ns):
        raise _bad("bad_slo", f"{name}: {str(value)[:40]}; expected a positive time, up to 10 days")
    return round(float(value) * unit_ns)


def _bad(reason: str, message: str) -> Refused:
    return Refused(400, reason, message)
