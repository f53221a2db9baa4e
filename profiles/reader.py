"""Read profiles from a TOML file.

    schema = 1
    device = "NVIDIA V100"
    source = "who measured it, how, when"
    licence = "on what terms it may be passed on"

    [models.resnet50]                 # a name with a dot needs quotes: [models."mobilenet1.0"]
    weights_bytes = 102_160_300
    input_bytes = 602_112
    output_bytes = 4_000
    load_ms = 8.31
    exec_ms = { 1 = 2.73, 2 = { quantiles = { "0.5" = 4.05, "0.99" = 4.11 } } }

A duration is a number of milliseconds, `{ quantiles = { "0.5" = 2.73 } }` or
`{ samples = [2.73, 2.74] }`. A model may have its own `device`, `source` and `note`.
Every mistake is one line that names the file, the key, the value and the way out. The durations
are checked by hand because the path that msgspec reports leaves out the keys of a table.
"""

from pathlib import Path
from typing import Any

import msgspec

from profiles.durations import Constant, Durations, Quantiles, Samples, from_ms
from profiles.errors import ProfileError
from profiles.schema import Profile

SCHEMA = 1


class _File(msgspec.Struct, forbid_unknown_fields=True):
    schema: int
    device: str
    source: str
    licence: str
    models: dict[str, dict[str, Any]]


class _Model(msgspec.Struct, forbid_unknown_fields=True):
    weights_bytes: int
    input_bytes: int
    output_bytes: int
    load_ms: Any
    exec_ms: dict[str, Any]
    device: str | None = None
    source: str | None = None
    note: str = ""


def read(path: Path) -> list[Profile]:
    """Read all profiles of a file, in its order.

    Raises ProfileError if the file cannot be read or anything in it is wrong.
    """
    content = _parse(path)
    try:
        file = msgspec.convert(content, _File)
    except msgspec.ValidationError as error:
        raise ProfileError(f"{path.name}: {_told(error, content)}") from None
    if file.schema != SCHEMA:
        raise ProfileError(
            f"{path.name}: schema = {file.schema}; this version reads schema = {SCHEMA}"
        )
    if not file.models:
        raise ProfileError(f"{path.name}: no models; expected at least one table [models.NAME]")
    return [_profile(path.name, file, name, table) for name, table in file.models.items()]


def _parse(path: Path) -> Any:
    try:
        return msgspec.toml.decode(path.read_bytes())
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}; expected a profile file") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path.name}: not valid TOML: {error}") from None


def _profile(file_name: str, file: _File, name: str, table: dict[str, Any]) -> Profile:
    where = f"{file_name}: models.{name}"
    try:
        model = msgspec.convert(table, _Model)
    except msgspec.ValidationError as error:
        raise ProfileError(f"{where}: {_told(error, table)}") from None
    load = _durations(f"{where}.load_ms", model.load_ms)
    exec_ = {
        _batch(f"{where}.exec_ms", key): _durations(f"{where}.exec_ms.{key}", value)
        for key, value in model.exec_ms.items()
    }
    try:
        return Profile(
            name=name,
            device=file.device if model.device is None else model.device,
            weights_bytes=model.weights_bytes,
            input_bytes=model.input_bytes,
            output_bytes=model.output_bytes,
            load=load,
            exec=dict(sorted(exec_.items())),
            source=file.source if model.source is None else model.source,
            licence=file.licence,
            note=model.note,
        )
    except ProfileError as error:
        raise ProfileError(f"{where}: {error}") from None


def _batch(where: str, key: str) -> int:
    if not key.isdecimal() or str(int(key)) != key or int(key) < 1:
        raise ProfileError(f"{where}: {key} is not a batch size; expected a whole number above 0")
    return int(key)


def _durations(where: str, value: Any) -> Durations:
    try:
        match value:
            case {"quantiles": dict(table)} if len(value) == 1:
                points = sorted((_share(q), _ms(ms)) for q, ms in table.items())
                return Quantiles(tuple(q for q, _ in points), tuple(ns for _, ns in points))
            case {"samples": list(samples)} if len(value) == 1:
                return Samples(tuple(_ms(ms) for ms in samples))
            case _:
                return Constant(_ms(value))
    except ProfileError as error:
        raise ProfileError(f"{where}: {error}") from None


def _ms(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProfileError(
            f"{value!r} is not a duration; expected milliseconds, "
            '{ quantiles = { "0.5" = ms } } or { samples = [ms] }'
        )
    return from_ms(value)


def _share(key: str) -> float:
    try:
        return float(key)
    except ValueError:
        raise ProfileError(
            f'{key} is not a quantile; expected a share in quotes, such as "0.99"'
        ) from None


def _told(error: msgspec.ValidationError, content: Any) -> str:
    """Say what is wrong with the value in front, which msgspec leaves out."""
    what, _, path = str(error).partition(" - at `$")
    keys = path.strip("`.").split(".") if path else []
    for key in keys:
        if not isinstance(content, dict) or key not in content:
            return f"{'.'.join(keys)}: {what}"
        content = content[key]
    return f"{'.'.join(keys)} = {content!r}: {what}" if keys else what
