"""A schema as far as a provider will see to it: what it cannot enforce is told in words.

What comes is checked against the whole schema all the same. A schema that would mean something else
without what has to go (a map with any keys, a structure without end) is not promised at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.models.structured import compact

_KEPT: Final = ("$ref", "type", "description", "title", "enum", "const")
_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)
_PARTS: Final = ("properties", "items", "anyOf", "oneOf", "allOf", "$defs", "definitions")
_CLOSED: Final = ("required", "additionalProperties")


class _CannotBe(Exception):
    """The schema has something in it that a provider would read as something else."""


def promised(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema that a provider enforces in place of this one, or None where there is none."""
    if schema.get("type") != "object":
        return None
    try:
        return _reduced(schema, _referred(schema), ())
    except _CannotBe:
        return None


def _referred(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The definitions that references may lead to."""
    return {
        f"#/{name}/{key}": part
        for name in ("$defs", "definitions")
        for key, part in (schema.get(name) or {}).items()
    }


def _reduced(schema: Any, known: Mapping[str, Any], within: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise _CannotBe
    if (reference := schema.get("$ref")) is not None:
        if reference in within or reference not in known:
            raise _CannotBe
        return _reduced({**known[reference], **_without(schema, "$ref")}, known, (*within, reference))
    options = next((schema[name] for name in ("anyOf", "oneOf") if name in schema), None)
    if isinstance(kinds := schema.get("type"), list):
        options = [{**schema, "type": kind} for kind in kinds]
    if options is not None:
        return {"anyOf": [_reduced(one, known, within) for one in options]}
    if not ({"type", "enum", "const"} & set(schema)) or "allOf" in schema:
        raise _CannotBe
    kept = {name: schema[name] for name in _KEPT if name in schema}
    rest = _without(schema, *_KEPT, *_PARTS, *_CLOSED)
    if schema.get("type") == "object":
        kept |= _object(schema, known, within)
    elif schema.get("type") == "array":
        kept["items"] = _reduced(schema.get("items"), known, within)
    elif rest.get("format") in _FORMATS:
        kept["format"] = rest.pop("format")
    if rest:
        kept["description"] = f"{kept.get('description', '')} {compact(rest)}".strip()
    return kept


def _object(schema: Mapping[str, Any], known: Mapping[str, Any], within: tuple[str, ...]) -> dict[str, Any]:
    properties = schema.get("properties")
    if not properties or schema.get("additionalProperties") not in (None, False):
        raise _CannotBe  # any keys at all
    parts = {name: _reduced(part, known, within) for name, part in properties.items()}
    found: dict[str, Any] = {"properties": parts, "additionalProperties": False}
    return {**found, "required": list(schema["required"])} if schema.get("required") else found


def _without(schema: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in names and name[:1] != "$"}
