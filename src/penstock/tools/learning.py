"""Schemas of results, learned from results: most servers declare none.

Pure. What is learned serves to plan and to suggest; no result is ever refused because of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SEEN: Final = "x-penstock-seen"
"""How many results a schema was learned from; a schema without it was declared."""

_DEEPEST: Final = 8
_KEYS: Final = 64
_ITEMS: Final = 20
_NODES: Final = 2_000
"""Values of one result that are looked at: what is larger is told by its outline."""


def learned(schema: Mapping[str, Any] | None, output: Any) -> dict[str, Any]:
    """The schema that fits everything seen so far, and this output too."""
    fresh = _describe(output, _DEEPEST, [_NODES])
    if not schema:
        return {**fresh, SEEN: 1}
    seen = int(schema.get(SEEN, 0))
    known = {key: value for key, value in schema.items() if key != SEEN}
    return {**_both(known, fresh), SEEN: seen + 1}


def _describe(value: Any, depth: int, left: list[int]) -> dict[str, Any]:
    left[0] -= 1
    depth = depth if left[0] > 0 else 0
    if value is None:
        return {"type": "null"}
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int):
        return {"type": "integer"}
    if isinstance(value, float):
        return {"type": "number"}
    if isinstance(value, str):
        return {"type": "string"}
    if isinstance(value, Mapping):
        if not depth or len(value) > _KEYS:  # so many keys are data, not a shape
            return {"type": "object"}
        properties = {str(key): _describe(one, depth - 1, left) for key, one in value.items()}
        return {"type": "object", "properties": properties, "required": sorted(properties)}
    if isinstance(value, list | tuple):
        items: dict[str, Any] = {}
        for one in value[:_ITEMS] if depth else ():
            found = _describe(one, depth - 1, left)
            items = _both(items, found) if items else found
        return {"type": "array", **({"items": items} if items else {})}
    return {}


def _both(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """The smallest schema of ours that fits what either fits."""
    kinds = _kinds(a) | _kinds(b)
    if not _kinds(a) or not _kinds(b):
        return {}
    if "number" in kinds:
        kinds.discard("integer")
    found: dict[str, Any] = {"type": sorted(kinds) if len(kinds) > 1 else next(iter(kinds))}
    if "object" in kinds:
        _merge_objects(found, a, b)
    if "array" in kinds:
        items = [one["items"] for one in (a, b) if "items" in one]
        if items:
            found["items"] = _both(items[0], items[-1])
    return found


def _merge_objects(found: dict[str, Any], a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    objects = [one for one in (a, b) if "object" in _kinds(one)]
    if any("properties" not in one for one in objects):
        return
    first, last = objects[0]["properties"], objects[-1]["properties"]
    names = dict.fromkeys([*first, *last])
    if len(names) > _KEYS:
        return
    found["properties"] = {
        name: _both(first.get(name, last.get(name)), last.get(name, first.get(name))) for name in names
    }
    found["required"] = sorted(set(objects[0].get("required", ())) & set(objects[-1].get("required", ())))


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    kinds = schema.get("type", ())
    return {kinds} if isinstance(kinds, str) else set(kinds)
