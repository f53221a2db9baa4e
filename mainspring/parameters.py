"""What a policy is and what can be set in it, read from its code.

A policy says what it is at the top of its file (or in its own docstring), and what each parameter
means in `Params`: type and default as in any Struct, and with msgspec's `Meta` bounds, a
description, and in `extra` the unit and the source of the default. Nothing of it is compulsory.
"""

import inspect
import sys
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from mainspring.document import show
from mainspring.policies import find_policy

_TYPES: Final = {
    types.BoolType: "true or false",
    types.IntType: "whole number",
    types.FloatType: "number",
    types.StrType: "text",
    types.NoneType: "nothing",
    types.DictType: "table",
    types.StructType: "table",
}


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter. What its policy does not say is None.

    required: whether a value must be given, since there is no default.
    above, at_least, below, at_most: its bounds. choices: its values, where they are few.
    source: where the default comes from.
    """

    name: str
    type: str
    required: bool
    default: Any
    unit: str | None
    above: float | None
    at_least: float | None
    below: float | None
    at_most: float | None
    choices: list[Any] | None
    description: str | None
    source: str | None


class About(msgspec.Struct, frozen=True, kw_only=True):
    """One policy. about: the first sentence that it says about itself; more: the rest."""

    name: str
    about: str
    more: str
    parameters: list[Parameter]


def describe(ref: str) -> About:
    """Describe a policy, named as `find_policy` takes it. Raises ScenarioError if there is none."""
    policy = find_policy(ref)
    module = sys.modules[policy.__module__]
    text = inspect.cleandoc(module.__doc__ or policy.__doc__ or "")
    about, _, more = text.partition("\n\n")
    struct = types.type_info(policy.Params)
    assert isinstance(struct, types.StructType), f"{ref}: Params is not a Struct"
    return About(
        name=ref,
        about=" ".join(about.split()),
        more=more,
        parameters=[_parameter(field) for field in struct.fields],
    )


def as_list(abouts: Sequence[About]) -> str:
    """One line a policy."""
    width = max(len(about.name) for about in abouts)
    return "".join(f"{about.name:{width}}  {about.about}\n" for about in abouts)


def as_page(about: About) -> str:
    """All that there is to know."""
    blocks = ["\n".join(wrap(f"{about.name}: {about.about}", 80))]
    if about.more:
        blocks.append(about.more)
    if about.parameters:
        _, colon, label = about.name.rpartition(":")
        named = f' with name = "{about.name}"' if colon else ""
        blocks.append(f"Parameters, to be set in a table [policy.{label}]{named}:")
        blocks += ["\n".join(_lines(parameter)) for parameter in about.parameters]
    else:
        blocks.append("It has no parameters.")
    return "\n\n".join(blocks) + "\n"


def _parameter(field: types.Field) -> Parameter:
    description, extra = None, {}
    kind = field.type
    if isinstance(kind, types.Metadata):
        description = (kind.extra_json_schema or {}).get("description")
        extra = kind.extra or {}
        kind = kind.type
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()

    def bound(name: str) -> float | None:
        found: float | None = getattr(kind, name, None)
        return found

    return Parameter(
        name=field.encode_name,
        type=_type_in_words(kind),
        required=field.required,
        default=None if default is msgspec.NODEFAULT else msgspec.to_builtins(default),
        unit=extra.get("unit"),
        above=bound("gt"),
        at_least=bound("ge"),
        below=bound("lt"),
        at_most=bound("le"),
        choices=list(kind.values) if isinstance(kind, types.LiteralType) else None,
        description=description,
        source=extra.get("source"),
    )


def _type_in_words(kind: types.Type) -> str:
    if isinstance(kind, types.Metadata):
        return _type_in_words(kind.type)
    if isinstance(kind, types.UnionType):
        return " or ".join(_type_in_words(part) for part in kind.types)
    if isinstance(kind, types.LiteralType):
        return "one of " + ", ".join(show(value) for value in kind.values)
    if isinstance(kind, types.ListType | types.VarTupleType):
        return f"list of {_type_in_words(kind.item_type)}"
    return _TYPES.get(type(kind), "value")


def _lines(p: Parameter) -> Iterator[str]:
    given = "must be given" if p.required else "none" if p.default is None else show(p.default)
    about = [p.unit, p.type, *_bounds(p)]
    yield f"  {p.name} = {given}  ({', '.join(part for part in about if part)})"
    for text in (p.description, f"Source: {p.source}" if p.source else None):
        yield from wrap(text or "", 80, initial_indent="      ", subsequent_indent="      ")


def _bounds(p: Parameter) -> Iterator[str]:
    ends = (
        (p.above, "above"),
        (p.at_least, "at least"),
        (p.below, "below"),
        (p.at_most, "at most"),
    )
    for value, word in ends:
        if value is not None:
            yield f"{word} {value:,.12g}"
