"""Values on their way into CEL and out of it again.

Guards what the library is careless about, and turns CEL's own types into JSON. It works on
the objects it is given and loads nothing.
"""

from __future__ import annotations

import math
from binascii import b2a_base64
from datetime import datetime, timedelta
from typing import Any, Final

DEEPEST: Final = 500
"""Levels of nesting a value may have; CEL converts by recursion and would overflow the stack."""

NEEDS_A_LOOK: Final = frozenset((str, dict, list))
JSON_SCALARS: Final = frozenset((bool, int, str, type(None)))


def flaw(value: Any) -> str:
    """Why CEL must not be given this value; empty when all is well.

    It would cut a text at a NUL and end the process on a value nested too deeply. It reports
    what else it cannot take.
    """
    level = [value]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for one in level:
            kind = type(one)
            if kind is str:
                if "\0" in one:
                    return "holds a NUL character, which expressions cannot carry"
            elif kind is dict:
                below += one
                below += one.values()
            elif kind is list:
                below += one
        if not below:
            return ""
        level = below
    return f"is nested more than {DEEPEST} levels deep"


def plain(result: Any) -> Any:
    """A result as Python values.

    The library gives out None without owning it, which ends a process of Python 3.11 after
    some thousand nulls. So a result with nulls is taken apart, and those are never asked for.
    """
    text = repr(result)
    if "null" not in text:
        return result.plain_value()
    if text == "null":
        return None
    whole: list[Any] = [result]
    todo: list[tuple[Any, Any]] = [(whole, 0)]
    while todo:
        place, key = todo.pop()
        one = place[key]
        place[key] = value = None if one.type().name() == "NULL" else one.value()
        if type(value) is list:
            todo.extend((value, i) for i in range(len(value)))
        elif type(value) is dict:
            todo.extend((value, name) for name in value)
    return whole[0]


def to_json(value: Any) -> Any:
    """CEL's types in JSON terms, in place; raises ValueError for a number that JSON does not have.

    CEL shuffles the keys of an object. They come out sorted, so that equal runs stay equal.
    """
    whole = [value]
    todo: list[Any] = [whole]
    while todo:
        place = todo.pop()
        if type(place) is dict:
            _sort(place)
        for key, one in list(place.items()) if type(place) is dict else enumerate(place):
            kind = type(one)
            if kind is list or kind is dict:
                todo.append(one)
            elif kind not in JSON_SCALARS:
                place[key] = _scalar(one)
    return whole[0]


def _sort(mapping: dict[Any, Any]) -> None:
    named = {_key(key): one for key, one in mapping.items()}
    mapping.clear()
    mapping.update(sorted(named.items(), key=lambda item: item[0]))


def _key(key: Any) -> str:
    if type(key) is str:
        return key
    return str(key).lower() if type(key) is bool else str(key)


def _scalar(value: Any) -> Any:
    match value:
        case float():
            if not math.isfinite(value):
                message = f"the result holds {value}, which is no JSON number"
                raise ValueError(message)
            return value
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case timedelta():
            return f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"
        case bytes() | bytearray():
            return b2a_base64(value, newline=False).decode()
        case _:
            return str(value).lower()
