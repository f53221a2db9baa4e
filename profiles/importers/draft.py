"""What a source says of a model, and what has to be added before it is a profile."""

import gzip
import hashlib
import math
import re
import warnings
import zlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

from profiles.curve import interpolated, pooled
from profiles.durations import Constant, Durations, from_ms
from profiles.errors import ProfileError, ProfileWarning
from profiles.schema import Profile

LICENCES: Final = {
    "MIT License": "MIT",
    "Permission is hereby granted, free of charge, to any person obtaining a copy": "MIT",
    "Apache License": "Apache-2.0",
    "Redistribution and use in source and binary forms": "BSD-3-Clause style",
}
"""What a licence text says in its first lines, and what it is called."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What the importer is told, because a source may lack it.

    device, source, licence: as in a profile; a licence text beside the file is recognised.
    weights_mb: 10**6 bytes. load_ms, or pcie_gb_s: 10**9 bytes a second, from which the load time
    follows. input_kb, output_kb: 1,000 bytes a request. batch: what the source was measured with,
    where it does not say. batches: which sizes to keep; all by default. interpolate: fill sizes
    that were not measured, in straight lines ("linear"). pool: give a batch that is faster than a
    smaller one, and that one, their common mean. spread: "mean", or "normal": quantiles of a
    normal distribution, where the source has a standard deviation. models: a pattern.
    mig, processes: which of ParvaGPU's settings.
    """

    device: str | None = None
    source: str | None = None
    licence: str | None = None
    weights_mb: float | None = None
    load_ms: float | None = None
    pcie_gb_s: float | None = None
    input_kb: float | None = None
    output_kb: float | None = None
    batch: int | None = None
    batches: tuple[int, ...] = ()
    interpolate: str = "no"
    pool: bool = False
    spread: str = "mean"
    models: str = "*"
    mig: int = 7
    processes: int = 1

    def __post_init__(self) -> None:
        for key in ("weights_mb", "load_ms", "pcie_gb_s", "input_kb", "output_kb"):
            value = getattr(self, key)
            least = "at least" if key in ("input_kb", "output_kb") else "above"
            if value is None:
                continue
            if not (math.isfinite(value) and (value > 0 or (value == 0 and least == "at least"))):
                raise ProfileError(f"{option(key)} {value}; expected a number {least} 0")
        if self.batch is not None and self.batch < 1:
            raise ProfileError(f"--batch {self.batch}; expected a size of at least 1")
        if min(self.batches, default=1) < 1:
            raise ProfileError(f"--batches {min(self.batches)}; expected sizes of at least 1")
        if self.interpolate not in ("no", "linear"):
            raise ProfileError(f"--interpolate {self.interpolate}; expected linear")
        if self.spread not in ("mean", "normal"):
            raise ProfileError(f"--spread {self.spread}; expected mean or normal")


class Draft(msgspec.Struct, kw_only=True):
    """What a source says of one model. notes: what was derived, and how."""

    name: str
    exec: dict[int, Durations]
    about: str
    device: str | None = None
    weights_bytes: int | None = None
    load: Durations | None = None
    input_bytes: int | None = None
    notes: list[str] = []


def completed(path: Path, drafts: Sequence[Draft], given: Given) -> list[Profile]:
    """The drafts as profiles. Raises ProfileError, naming the option, for what is not known."""
    chosen = [draft for draft in drafts if fnmatchcase(draft.name, given.models)]
    if not chosen:
        names = ", ".join(draft.name for draft in drafts[:4])
        raise ProfileError(f"--models {given.models}: {path.name} has none; it has {names}, ...")
    idle = [draft.name for draft in chosen if not draft.exec]
    chosen = [draft for draft in chosen if draft.exec]
    if not chosen:
        raise ProfileError(f"{path.name}: {idle[0]} did not run; expected a measurement of it")
    if idle:
        warnings.warn(
            f"{path.name}: {len(idle)} models did not run and are left out: {', '.join(idle)}",
            ProfileWarning,
            stacklevel=3,
        )
    licence = given.licence or _licence_beside(path)
    if licence is None:
        raise ProfileError(
            f"{path.name}: on what terms may it be passed on? There is no LICENSE beside it; "
            "give --licence"
        )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    profiles = []
    for draft in chosen:
        source = given.source or f"{draft.about}; {path.name}, sha256 {digest}"
        profiles.append(_profile(path, draft, given, source, licence))
    return profiles


def _profile(path: Path, draft: Draft, given: Given, source: str, licence: str) -> Profile:
    where = f"{path.name}: {draft.name}"
    notes = list(draft.notes)

    def need(value: float | None, key: str, what: str) -> float:
        if value is None:
            raise ProfileError(f"{where}: the file does not tell {what}; give {option(key)}")
        return value

    weights_bytes = draft.weights_bytes
    if given.weights_mb is not None:
        weights_bytes = round(given.weights_mb * 1e6)
        notes = [note for note in notes if not note.startswith("weights_bytes")]
        notes.append("weights_bytes was given to the importer")
    elif weights_bytes is None:
        need(None, "weights_mb", "the size of its weights")
        raise AssertionError("need raises")
    load = draft.load
    if given.load_ms is not None:
        load = Constant(from_ms(given.load_ms))
        notes.append("load_ms was given to the importer")
    elif given.pcie_gb_s is not None:
        load = Constant(max(1, round(weights_bytes / given.pcie_gb_s)))
        notes.append(f"load_ms is weights_bytes at {given.pcie_gb_s:g} GB/s")
    elif load is None:
        raise ProfileError(
            f"{where}: the file does not tell how long it loads; give --load-ms, or --pcie-gb-s "
            "(such as 12.27, the V100 of the Clockwork paper) to compute it from its weights"
        )
    if given.input_kb is not None:
        input_bytes = round(given.input_kb * 1e3)
    elif draft.input_bytes is not None:
        input_bytes = draft.input_bytes
    else:
        input_bytes = round(1e3 * need(None, "input_kb", "the size of a request's input"))
    output_kb = need(given.output_kb, "output_kb", "the size of a request's output")
    device = given.device or draft.device
    if device is None:
        raise ProfileError(f"{where}: the file does not tell the device; give --device")
    if given.device and draft.device and given.device != draft.device:
        raise ProfileError(f"{where}: no profile for {given.device}; have {draft.device}")
    notes.append("the sizes of input and output were given to the importer")
    if draft.input_bytes is not None and given.input_kb is None:
        notes[-1] = "output_bytes was given to the importer"
    profile = Profile(
        name=draft.name,
        device=device,
        weights_bytes=weights_bytes,
        input_bytes=input_bytes,
        output_bytes=round(output_kb * 1e3),
        load=load,
        exec=_chosen(where, draft.exec, given),
        source=source,
        licence=licence,
        note="; ".join(notes),
    )
    if given.pool:
        profile = pooled(profile)
    if given.batches and given.interpolate == "linear":
        profile = interpolated(profile, given.batches)
    return profile


def _chosen(where: str, exec_: dict[int, Durations], given: Given) -> dict[int, Durations]:
    """The batch sizes that are asked for; with interpolation, all that were measured."""
    if not given.batches or given.interpolate == "linear":
        return dict(sorted(exec_.items()))
    for batch in given.batches:
        if batch not in exec_:
            have = ", ".join(map(str, sorted(exec_)))
            raise ProfileError(
                f"{where}: no measurement at batch {batch} (have {_shortened(have)}); "
                "leave it out of --batches, or add --interpolate linear"
            )
    return {batch: exec_[batch] for batch in sorted(set(given.batches))}


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:50].rpartition(',')[0]}, ..."


def option(key: str) -> str:
    """How a field of Given is called on the command line."""
    return f"--{key.replace('_', '-')}"


def _licence_beside(path: Path) -> str | None:
    """The name of the licence whose text lies beside the file, or in the folder above."""
    for folder in (path.absolute().parent, path.absolute().parent.parent):
        for text in sorted(folder.glob("LICENSE*")):
            head = text.read_text(encoding="utf-8", errors="replace")[:2000]
            for sign, name in LICENCES.items():
                if sign in head:
                    holder = re.search(r"Copyright \(c\) .*", head)
                    return f"{name} ({text.name} beside the source)" + (
                        f", {holder[0].partition(' All rights')[0].strip(' .')}" if holder else ""
                    )
    return None


def text_of(path: Path) -> str:
    """The text of a file, perhaps gzipped. Raises ProfileError if it cannot be read."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read().decode("utf-8-sig")
    except (gzip.BadGzipFile, zlib.error, EOFError):
        raise ProfileError(
            f"{path.name}: the gzip data is torn or damaged; fetch or write the file again"
        ) from None
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}; expected a profile to import") from None
    except UnicodeDecodeError:
        raise ProfileError(f"{path.name} is not UTF-8 text; expected a profile") from None


def head_of(path: Path) -> str:
    """The first line of a file, to tell its format."""
    return text_of(path).partition("\n")[0].strip()


def micros(where: str, cell: str) -> int:
    """Microseconds as nanoseconds. Raises ProfileError if it is no duration."""
    return _duration(where, cell, 1e-3)


def millis(where: str, cell: str) -> int:
    """Milliseconds as nanoseconds. Raises ProfileError if it is no duration."""
    return _duration(where, cell, 1.0)


def seconds(where: str, cell: str) -> int:
    """Seconds as nanoseconds. Raises ProfileError if it is no duration."""
    return _duration(where, cell, 1e3)


def _duration(where: str, cell: str, ms: float) -> int:
    try:
        return from_ms(float(cell) * ms)
    except (ValueError, ProfileError):
        raise ProfileError(
            f"{where}: {cell or 'an empty cell'} is not a duration; expected a number above 0"
        ) from None


def whole(where: str, cell: str) -> int:
    """A whole number above 0, perhaps written as 1024.0."""
    try:
        value = float(cell)
    except ValueError:
        value = 0.0
    if not (value >= 1 and value.is_integer()):
        raise ProfileError(
            f"{where}: {cell or 'an empty cell'} is not a batch size; expected a whole number "
            "above 0"
        )
    return int(value)


def cells_of(where: str, line: str, names: Sequence[str]) -> dict[str, str]:
    """The cells of a line of a plain CSV file by the names of their columns."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(names):
        raise ProfileError(
            f"{where}: {len(cells)} of {len(names)} cells; expected one for each column"
        )
    return dict(zip(names, cells, strict=True))
