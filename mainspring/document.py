"""A table read strictly: every complaint names the place, the value and the way out.

msgspec says which key is wrong; this adds the file and line (or the --set that brought the value)
and what would have been right. Lines are found by a plain scan of the text, good enough to point
at; the TOML itself is read by tomllib.
"""

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")


class _Given(NamedTuple):
    """A value from the command line: what was written there, and what that calls the key."""

    told: str
    name: str


Key = tuple[str | int, ...]
"""Where a value lies: ("workload", 0, "rate_rps")."""


class ScenarioError(Exception):
    """What a user wrote cannot be run. The message is one line."""


class Document:
    """A table with the `--set` overrides laid over it.

    source: what complaints call it. folder: where paths in it start. text: the TOML that it was
    read from, if it was.
    """

    def __init__(
        self,
        data: dict[str, Any],
        overrides: Sequence[str] = (),
        *,
        source: str,
        folder: Path,
        text: str = "",
    ) -> None:
        self.data = data
        self.folder = folder
        self._source = source
        self._lines = key_lines(text)
        self._overrides: dict[Key, _Given] = {}
        for override in overrides:
            self._override(override)

    @classmethod
    def read(cls, path: Path, overrides: Sequence[str] = ()) -> Self:
        """Read a TOML file. Raises ScenarioError where it cannot be read, or is not TOML."""
        try:
            text = path.read_text(encoding="utf-8")
            data = tomllib.loads(text)
        except OSError as error:
            raise ScenarioError(f"{path}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise ScenarioError(f"{path}: not a text file in UTF-8") from None
        except tomllib.TOMLDecodeError as error:
            raise ScenarioError(_syntax_error(path, str(error))) from None
        if not text.strip():
            raise ScenarioError(f"{path} is empty; expected a file of keys, such as seed = 1")
        return cls(data, overrides, source=str(path), folder=path.parent, text=text)

    def leaves(self) -> list[tuple[Key, Any]]:
        """Every key that has a plain value, from the file or an override, and the value."""
        return list(leaves(self.data))

    def set_on_command_line(self, key: Key) -> bool:
        """Whether the value at `key` came from an override."""
        return any(key[:n] in self._overrides for n in range(1, len(key) + 1))

    def get(self, key: Key) -> Any:
        """The value at a key, which must exist."""
        value: Any = self.data
        for part in key:
            value = value[part]
        return value

    def set(self, key: Key, value: Any) -> None:
        """Put another value at a key whose table exists."""
        self.get(key[:-1])[key[-1]] = value

    def give(self, key: Key, value: Any, told: str, name: str) -> None:
        """The same, with a value from the command line.

        told: what the user wrote there, which complaints quote. name: what that calls the key;
        empty where `told` says it already.
        """
        self.set(key, value)
        self._overrides[key] = _Given(told, name)

    def decode(self, type_: type[T], key: Key = (), leave_out: Iterable[str] = ()) -> T:
        """The table at `key` as a Struct. leave_out: keys of it that are read elsewhere."""
        table = self.get(key)
        if not isinstance(table, dict):
            raise self.error(key, f"= {show(table)}; expected a table")
        for deeper, value in leaves(table):
            if isinstance(value, float) and not math.isfinite(value):
                raise self.error(key + deeper, f"= {value}; expected a finite number")
        while True:
            known = {name: value for name, value in table.items() if name not in leave_out}
            try:
                return msgspec.convert(known, type_)
            except msgspec.ValidationError as error:
                problem, below = _split_path(str(error))
                where = key + below
                if problem.startswith("Expected `int`") and _is_whole(value := self.get(where)):
                    self.set(where, int(value))  # 2e2 and 4.0 are whole numbers
                    continue
                raise self._explain(where, problem, type_, below) from None

    def error(self, key: Key, problem: str) -> ScenarioError:
        """A complaint about the value at `key`."""
        prefixes = [key[:n] for n in range(len(key), 0, -1)]
        given = next((self._overrides[p] for p in prefixes if p in self._overrides), None)
        line = next((self._lines[p] for p in prefixes if p in self._lines), None)
        if given is None and line is None and key:  # a table that an override has brought
            below = (told for of, told in self._overrides.items() if of[: len(key)] == key)
            given = next(below, None)
        name = given.name if given is not None and key in self._overrides else dotted(key)
        if given is not None:
            place = given.told
        elif line is not None:
            place = f"{self._source}, line {line}"
        else:
            place = self._source
        about = f"{name} {problem}" if problem.startswith("= ") else f"{name}: {problem}"
        return ScenarioError(f"{place}: {about if name else problem}")

    def error_in(self, key: Key, problem: str) -> ScenarioError:
        """A complaint about the table at `key`; one of its keys if it begins "that_key = "."""
        if match := re.match(r"(\w+) (= .*)", problem):
            return self.error((*key, match[1]), match[2])
        return self.error(key, problem)

    def _override(self, override: str) -> None:
        name, equals, text = override.partition("=")
        name = name.strip()
        if not equals or not all(name.split(".")):
            raise ScenarioError(f"--set {override}: expected key=value, as in seed=2")
        key: Key = ()
        here: Any = self.data
        *parents, last = name.split(".")
        for part in parents:
            step = self._step(here, part, override)
            key += (step,)
            here = here.setdefault(step, {}) if isinstance(here, dict) else here[step]
        step = self._step(here, last, override)
        here[step] = toml_value(text.strip())
        self._overrides[*key, step] = _Given(f"--set {override}", name)

    def _step(self, here: Any, part: str, override: str) -> str | int:
        if isinstance(here, dict):
            return part
        if not isinstance(here, list):
            raise ScenarioError(f"--set {override}: {part} lies inside {show(here)}, not a table")
        if not part.isdecimal() or int(part) >= len(here):
            have = f"0 to {len(here) - 1}" if here else "none"
            raise ScenarioError(f"--set {override}: {part} is not an index (have {have})")
        return int(part)

    def _explain(self, where: Key, problem: str, type_: Any, below: Key) -> ScenarioError:
        """Say what msgspec said in the words of the file."""
        if match := re.fullmatch(r"Object contains unknown field `(.*)`", problem):
            names = list(_field_names(type_, below, self.get(where)))
            kinds = list(_kinds_with(type_, below, match[1]))
            elsewhere = f"it belongs to {' or '.join(kinds)}" if 0 < len(kinds) < 4 else None
            hint = elsewhere or suggest(match[1], names)
            return self.error((*where, match[1]), f"unknown key; {hint}")
        if match := re.fullmatch(r"Object missing required field `(.*)`", problem):
            what = "".join(_described(type_, below, self.get(where), match[1]))
            return self.error(where, f"missing key {match[1]}{what}")
        if match := re.fullmatch(r"Invalid (?:enum )?value '?(.*?)'?", problem):
            names = list(_values(type_, below, self.get(where[:-1])))
            return self.error(where, f"= {show(self.get(where))}; {suggest(match[1], names)}")
        if problem.startswith("Expected `"):
            return self.error(where, f"= {show(self.get(where))}; {_plain_words(problem)}")
        return self.error_in(where, problem)


def suggest(wrong: str, names: Sequence[str]) -> str:
    """The nearest right name, or all of them."""
    near = difflib.get_close_matches(wrong, names, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"expected one of {', '.join(names)}" if names else "expected none"


def dotted(key: Key) -> str:
    return ".".join(str(part) for part in key)


def show(value: Any) -> str:
    """A value as the file would have it, or its kind if that is long."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return json.dumps(value) if isinstance(value, str | bool) else str(value)


def key_lines(text: str) -> dict[Key, int]:
    """The line on which each key and table of a TOML text begins."""
    lines: dict[Key, int] = {}
    entries: dict[Key, int] = {}  # how many entries each array of tables has so far
    table: Key = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if match := re.match(r"\s*\[\[([\w.\"'-]+)\]\]", line):
            *parents, last = _names(match[1])
            array = (*_indexed(parents, entries), last)
            table = (*array, entries.get(array, 0))
            entries[array] = entries.get(array, 0) + 1
            key = table
        elif match := re.match(r"\s*\[([\w.\"'-]+)\]", line):
            key = table = _indexed(_names(match[1]), entries)
        elif match := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            key = (*table, *_names(match[1]))
        else:
            continue
        lines.setdefault(key, number)
    return lines


def _names(text: str) -> list[str]:
    return [a or b for a, b in re.findall(r"[\"']([^\"']*)[\"']|([\w-]+)", text)]


def _indexed(names: Iterable[str], entries: dict[Key, int]) -> Key:
    """A key that passes through an array of tables means its latest entry."""
    key: Key = ()
    for name in names:
        key += (name,)
        if key in entries:
            key += (entries[key] - 1,)
    return key


def toml_value(text: str) -> Any:
    """A TOML value; what is not one is text, so that `--set name=x` needs no quotes."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _syntax_error(path: Path, message: str) -> str:
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", message)
    if match is None:
        return f"{path}: {message}"
    line = f", line {match[2]}" if match[2] else ""
    return f"{path}{line}: {match[1][0].lower()}{match[1][1:]}"


def leaves(value: Any, key: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Every value in a table, at any depth, with its key."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for part, child in items:
            yield from leaves(child, (*key, part))
    else:
        yield key, value


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def _split_path(message: str) -> tuple[str, Key]:
    """msgspec ends a complaint with its path: "... - at `$.workload[0].kind`"."""
    problem, _, path = message.partition(" - at `$")
    key: Key = ()
    for name, index in re.findall(r"\.([^.\[`]+)|\[(\d+|\.\.\.)\]", path):
        if index == "...":  # inside a free table, msgspec does not say where
            break
        key += (name or int(index),)
    return problem, key


def _plain_words(problem: str) -> str:
    words = {
        "`float`": "a number",
        "`int`": "a whole number",
        "`str`": "text",
        "`bool`": "true or false",
        "`array`": "a list",
        "`object`": "a table",
        "`int | float`": "a number",
    }
    problem = re.sub(r"\.0\b", "", problem.partition(", got")[0].replace(" | null", ""))
    for python, plain in words.items():
        problem = problem.replace(python, plain)
    return problem.replace("Expected", "expected")


def _kinds_with(type_: Any, below: Key, name: str) -> Iterator[str]:
    """The kinds of table at `below` that have such a key, as a file would write them."""
    for struct in _all_structs_at(type_, below):
        if struct.tag_field and any(field.encode_name == name for field in struct.fields):
            yield f"{struct.tag_field} = {show(struct.tag)}"


def _all_structs_at(type_: Any, below: Key) -> list[inspect.StructType]:
    """The Structs that could lie at `below`."""
    found: list[Any] = [inspect.type_info(type_)]
    for part in below:
        found = [child for t in _flat(found) for child in _children(t, part)]
    return [t for t in _flat(found) if isinstance(t, inspect.StructType)]


def _structs_at(type_: Any, below: Key, table: Any) -> Iterator[inspect.StructType]:
    """The same, or if there are several the one of the table's tag."""
    structs = _all_structs_at(type_, below)
    tagged = [s for s in structs if s.tag_field and table.get(s.tag_field) == s.tag]
    yield from tagged or structs


def _flat(types: Iterable[Any]) -> Iterator[Any]:
    for t in types:
        if isinstance(t, inspect.Metadata):
            yield from _flat([t.type])
        elif isinstance(t, inspect.UnionType):
            yield from _flat(t.types)
        else:
            yield t


def _children(t: Any, part: str | int) -> Iterator[Any]:
    if isinstance(t, inspect.StructType):
        yield from (field.type for field in t.fields if field.encode_name == part)
    elif isinstance(t, inspect.ListType | inspect.VarTupleType):
        yield t.item_type
    elif isinstance(t, inspect.DictType):
        yield t.value_type


def _field_names(type_: Any, below: Key, table: Any) -> Iterator[str]:
    for struct in _structs_at(type_, below, table):
        if struct.tag_field:
            yield struct.tag_field
        yield from (field.encode_name for field in struct.fields)


def _described(type_: Any, below: Key, table: Any, name: str) -> Iterator[str]:
    """What its type says of a key, for whoever has left it out; nothing of most."""
    for struct in _structs_at(type_, below, table):
        for field in struct.fields:
            if field.encode_name == name and isinstance(field.type, inspect.Metadata):
                said = (field.type.extra_json_schema or {}).get("description")
                yield f" ({said})" if said else ""


def _values(type_: Any, below: Key, table: Any) -> Iterator[str]:
    """The values allowed at a key: the tags of a union, or the members of an Enum or Literal."""
    *parents, last = below
    for struct in _structs_at(type_, tuple(parents), table):
        if struct.tag_field == last:
            yield str(struct.tag)
        for field in struct.fields:
            if field.encode_name == last:
                for t in _flat([field.type]):
                    if isinstance(t, inspect.LiteralType):
                        yield from map(str, t.values)
                    elif isinstance(t, inspect.EnumType):
                        yield from (str(member.value) for member in t.cls)
