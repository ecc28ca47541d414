"""Arguments that come from outside while a run goes: a command's, an answer's, a fork's.

They are some arguments of a call, and the others stay. So each is held against its own part of
the tool's schema; what a call needs as a whole was looked at before, or is the tool's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.policy.schemas import BadSchema, compiled, size_of
from penstock.workflow.findings import did_you_mean
from penstock.workflow.interpolate import computed

ANYTHING: Final[Mapping[str, Any]] = {"type": "object"}

LARGEST: Final = 32 * 1024
"""Bytes of a schema that a question carries along."""

_OF_ARGUMENTS: Final = (
    "$schema", "$defs", "definitions", "properties", "patternProperties", "additionalProperties",
)  # fmt: skip
"""What a schema says of arguments one by one."""

_OF_NAMES: Final = frozenset(
    {
        "required", "dependentRequired", "additionalProperties", "minProperties", "maxProperties",
        "minItems", "maxItems",
    }
)  # fmt: skip
"""What can be told of a value although something in it is computed later."""


def changes(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of changes to a call that has to fit this one: any arguments, none of them needed."""
    if size_of(schema) > LARGEST:
        return ANYTHING
    return {**ANYTHING, **{key: schema[key] for key in _OF_ARGUMENTS if key in schema}}


def complaint(schema: Mapping[str, Any], given: Mapping[str, Any], *, expressions: bool = False) -> str:
    """What is wrong with arguments; empty when nothing is. With `expressions`, `${ … }` is not a text."""
    known = schema.get("properties", {})
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        for name in given:
            if name not in known:
                hint = did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}"
                return f"the call has no argument {name!r}; {hint}"
    try:
        said = compiled(schema, overlook=_open if expressions else None)(given)
    except BadSchema:
        return ""  # the tool itself has the last word anyway
    return f"argument {said}" if said else ""


def _open(keyword: str, value: Any) -> bool:
    """Whether this complaint is about something that nobody knows yet."""
    if keyword in _OF_NAMES or (keyword == "type" and not isinstance(value, str)):
        return False
    return computed(value)
