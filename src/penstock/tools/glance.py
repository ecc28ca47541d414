"""Arguments that fit a schema at a glance.

Most tools take a few plain values by name. That those are what the schema asks for is seen in a
microsecond; to apply the schema takes fifty. Whoever sees nothing here has to look closer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_SAID: Final = frozenset({"title", "description", "default", "examples", "$schema"})
"""Words of a schema that ask for nothing."""

_OBJECT: Final = _SAID | {"type", "properties", "required", "additionalProperties"}
_VALUE: Final = _SAID | {"type"}

Glance = Callable[[Mapping[str, Any]], bool]
"""Whether arguments fit, for certain."""


def glance(schema: Mapping[str, Any]) -> Glance:
    """For a schema that is valid."""
    properties = schema.get("properties", {})
    plain = {name: kinds for name, one in properties.items() if (kinds := _plain(one))}
    required = frozenset(schema.get("required", ()))
    if schema.get("type") != "object" or not _OBJECT.issuperset(schema):
        return lambda _args: False

    def fits(args: Mapping[str, Any]) -> bool:
        return required <= args.keys() and all(type(one) in plain.get(name, ()) for name, one in args.items())

    return fits


def _plain(schema: Any) -> tuple[type, ...]:
    """What a value must be, where a schema asks for nothing else; nothing when there is more to it."""
    if not isinstance(schema, Mapping) or not _VALUE.issuperset(schema):
        return ()
    kind = schema.get("type")
    return _TYPES.get(kind, ()) if isinstance(kind, str) else ()
