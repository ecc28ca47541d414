"""JSON values: what may stand in a definition that comes from Python.

The result is a copy made of plain dicts, lists and scalars, so that nothing a caller
changes later reaches a definition. Knows nothing of workflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.errors import DefinitionError, Problem

MAX_DEPTH: Final = 64
"""Levels of maps and lists in a definition, in a file and in Python alike."""

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
"""Whole numbers are those that every part of the system can carry: 64 bits."""

_HINTS: Final = {
    "set": "use a list, e.g. sorted(...)",
    "frozenset": "use a list, e.g. sorted(...)",
    "bytes": "decode it to text",
    "PosixPath": "use str(path)",
    "WindowsPath": "use str(path)",
    "datetime": "use .isoformat()",
    "date": "use .isoformat()",
    "timedelta": "use .total_seconds()",
    "Decimal": "use float(...) or str(...)",
    "function": "a function is given as `uses`; arguments are JSON values",
    "generator": "use list(...)",
    "coroutine": "await it, or make it a step of its own",
}
_JSON: Final = "use text, numbers, true/false, None, lists and dicts with text keys"

Convert = Callable[[Any], Any]
"""Turns something of the caller's own into a JSON value, or returns it as it is."""

_Trail = tuple[Any, str | int]
_Job = tuple[Any, str | int, Any, "_Trail | None", int]


def plain(value: Any, where: str = "", convert: Convert | None = None) -> Any:
    """A fresh JSON copy of `value`; raises DefinitionError naming the first part that is not JSON."""
    if type(value) is str:
        return value
    box: list[Any] = [None]
    jobs: list[_Job] = [(box, 0, value, None, 1)]
    while jobs:
        into, key, item, trail, depth = jobs.pop()
        if convert is not None:
            item = convert(item)
        if isinstance(item, Mapping):
            into[key] = fresh = _keys(item, where, trail)
            jobs.extend((fresh, name, part, (trail, name), depth + 1) for name, part in item.items())
        elif isinstance(item, list | tuple):
            into[key] = rows = [None] * len(item)
            jobs.extend((rows, n, part, (trail, n), depth + 1) for n, part in enumerate(item))
        else:
            into[key] = _scalar(item, where, trail)
            continue
        if depth > MAX_DEPTH:
            raise _error(
                where, None, f"nested more than {MAX_DEPTH} levels deep", "is the value part of itself?"
            )
    return box[0]


def _keys(item: Mapping[Any, Any], where: str, trail: _Trail | None) -> dict[str, Any]:
    for key in item:
        if not isinstance(key, str):
            raise _error(where, trail, f"the key {key!r} is not text", f"use {str(key)!r}")
    return dict.fromkeys(item)


def _scalar(item: Any, where: str, trail: _Trail | None) -> Any:
    if item is None or type(item) in (str, bool):
        return item
    if isinstance(item, str):
        return str.__str__(item)
    if isinstance(item, int):
        if INT_MIN <= item <= INT_MAX:
            return int(item)
        raise _error(where, trail, "the whole number does not fit into 64 bits", "give it as text")
    if isinstance(item, float):
        if math.isfinite(item):
            return float(item)
        raise _error(where, trail, f"{item} is not a JSON number", "use None or text")
    kind = type(item).__name__
    raise _error(where, trail, f"a value of type {kind} is not JSON", _HINTS.get(kind, _JSON))


def _error(where: str, trail: _Trail | None, message: str, hint: str) -> DefinitionError:
    parts: list[str] = []
    while trail is not None:
        trail, key = trail
        parts.append(f"[{key}]" if isinstance(key, int) else f".{key}")
    return DefinitionError([Problem(message, hint, where=(where + "".join(reversed(parts))).lstrip("."))])
