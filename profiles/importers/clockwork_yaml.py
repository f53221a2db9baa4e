"""Clockwork's ResNet-50 as another simulator has it: loading and execution times in a YAML file.

From github erdos-project/erdos-scheduling-simulator. The part of YAML that such files use is
small (nested maps and lists, plain values, comments), so it is read here.
"""

from pathlib import Path
from typing import Any

from profiles.durations import Constant, Durations
from profiles.errors import ProfileError
from profiles.importers.draft import Draft, Given, micros, text_of, whole


def is_one(path: Path) -> bool:
    """Whether the file looks like one."""
    text = text_of(path)
    return "execution_strategies:" in text and "profiles:" in text


def read(path: Path, given: Given) -> list[Draft]:
    """All profiles of the file."""
    content = parse(path.name, text_of(path))
    profiles = content.get("profiles") if isinstance(content, dict) else None
    if not isinstance(profiles, list) or not profiles:
        raise ProfileError(f"{path.name}: no profiles; expected a list of them")
    return [_draft(path, profile) for profile in profiles]


def _draft(path: Path, profile: dict[str, Any]) -> Draft:
    name = str(profile.get("name", "?"))
    where = f"{path.name}: {name}"
    exec_: dict[int, Durations] = {}
    try:
        for strategy in profile["execution_strategies"]:
            batch = whole(where, strategy["batch_size"])
            if batch in exec_:
                raise ProfileError(f"{where}: batch {batch} is there twice; remove one of them")
            exec_[batch] = Constant(micros(f"{where}, batch {batch}", strategy["runtime"]))
        loading = profile["loading_strategies"][0]
        load = Constant(micros(f"{where}, loading", loading["runtime"]))
        ram = loading["resource_requirements"]["RAM:any"]
        weights_bytes = round(float(ram) * 1e6)
    except ProfileError:
        raise
    except (ValueError, OverflowError):
        raise ProfileError(f"{where}: RAM:any is {ram}; expected MB") from None
    except (KeyError, IndexError, TypeError) as error:
        raise ProfileError(f"{where}: {error} is missing; is the file whole?") from None
    return Draft(
        name=name,
        exec=exec_,
        about=(
            "figures of the Clockwork paper (OSDI 2020) as in github "
            "erdos-project/erdos-scheduling-simulator, profiles/workload"
        ),
        weights_bytes=weights_bytes,
        load=load,
        notes=[f"weights_bytes is the memory that its loading strategy asks for, {ram} MB"],
    )


def parse(name: str, text: str) -> Any:
    """Nested maps, lists and plain values. Values stay text. Raises ProfileError with the line."""
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.split(" #")[0].rstrip() if not line.lstrip().startswith("#") else ""
        if bare.strip():
            lines.append((number, len(bare) - len(bare.lstrip()), bare.strip()))
    if not lines:
        raise ProfileError(f"{name} is empty; expected YAML")
    value, rest = _block(name, lines, lines[0][1])
    if rest:
        raise ProfileError(f"{name}, line {rest[0][0]}: not indented as the lines above it")
    return value


Lines = list[tuple[int, int, str]]


def _block(name: str, lines: Lines, indent: int) -> tuple[Any, Lines]:
    """The map or list that begins here, and the lines after it."""
    if lines[0][2].startswith("- "):
        items = []
        while lines and lines[0][1] == indent and lines[0][2].startswith("- "):
            number, _, text = lines[0]
            # What follows the dash is a block of its own, two columns further in.
            lines = [(number, indent + 2, text[2:].strip()), *lines[1:]]
            item, lines = _block(name, lines, indent + 2)
            items.append(item)
        return items, lines
    table: dict[str, Any] = {}
    while lines and lines[0][1] == indent and not lines[0][2].startswith("- "):
        number, _, text = lines[0]
        # A key may have a colon inside, as RAM:any: a colon ends it only before a blank.
        key, colon, value = text.partition(": ") if ": " in text else (text[:-1], text[-1], "")
        if colon.strip() != ":":
            raise ProfileError(f"{name}, line {number}: {text}; expected key: value")
        lines = lines[1:]
        if value.strip():
            table[key] = value.strip()
        elif lines and (lines[0][1] > indent or lines[0][2].startswith("- ")):
            table[key], lines = _block(name, lines, lines[0][1])
        else:
            table[key] = ""
    return table, lines
