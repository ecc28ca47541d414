"""How state keys take in updates.

All or nothing: `split` checks a whole update before the event exists, `apply` then cannot
fail. The built-in reducers change the value they own, so an `append` costs the same at
the ten-thousandth item as at the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import msgspec

from penstock.run.state import Run

CONTEXT = "context"
MESSAGES = "messages"
BUILT_IN = ("last", "append", "merge", "sum", "max", "min")


def complaint(name: str, old: Any, new: Any) -> str | None:
    """Why this reducer cannot take `new` in, or None when it can."""
    if name == "merge" and not isinstance(new, Mapping):
        return f"merge takes an object, not {_kind(new)}"
    if name == "sum" and not _number(new):
        return f"sum takes a number, not {_kind(new)}"
    if name in ("max", "min") and not _comparable(old, new):
        return f"{name} cannot compare {_kind(old)} with {_kind(new)}"
    return None


def apply(name: str, old: Any, new: Any) -> Any:
    """The key's next value. Takes ownership of `old`."""
    match name:
        case "append":
            values = [] if old is None else old
            if isinstance(new, list):
                values.extend(new)
            else:
                values.append(new)
            return values
        case "merge":
            merged = {} if old is None else old
            merged.update(new)
            return merged
        case "sum":
            return new if old is None else old + new
        case "max":
            return new if old is None else max(old, new)
        case "min":
            return new if old is None else min(old, new)
        case _:
            return new


def split(run: Run, delta: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part an update into what `apply` will reduce and the results of Python functions.

    Functions are called here, once; the event carries what they said. Raises `ValueError`
    with the reason when any part of the update cannot be taken in.
    """
    named = run.graph.workflow.reducers
    plain: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for key, update in delta.items():
        if key in run.reducers:
            # Copies both ways: what a function keeps or changes must not reach the journal.
            values[key] = _copy(run.reducers[key](_copy(run.keys.get(key)), _copy(update)))
            continue
        name = "merge" if key == CONTEXT else "append" if key == MESSAGES else named.get(key, "last")
        wrong = complaint(name, run.keys.get(key), update)
        if wrong:
            msg = f"state key {key!r}: {wrong}"
            raise ValueError(msg)
        plain[key] = update
    return plain, values


def fold(run: Run, delta: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Take a checked update in."""
    named = run.graph.workflow.reducers
    for key, update in delta.items():
        if key == CONTEXT:
            run.context.update(update)
        elif key == MESSAGES:
            run.messages.extend(update)
        else:
            run.keys[key] = apply(named.get(key, "last"), run.keys.get(key), update)
    run.keys.update(values)


def _copy(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _comparable(old: Any, new: Any) -> bool:
    if old is None:
        return _number(new) or isinstance(new, str)
    return (_number(old) and _number(new)) or (isinstance(old, str) and isinstance(new, str))


def _kind(value: Any) -> str:
    names = {bool: "a boolean", str: "a string", list: "a list", dict: "an object", type(None): "null"}
    return names.get(type(value), "a number")
