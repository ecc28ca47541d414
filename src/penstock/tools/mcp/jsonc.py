"""JSON as editors write it: with comments, and with a comma after the last of a list.

What is not JSON is blanked out where it stands, so that a complaint about the rest still says the
right line and column.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, Final

_TEXT: Final = r'"(?:[^"\\\n]|\\.)*+"?'
"""What stands in a text is left alone. One that does not end is not closed here: that is for JSON to say."""

_COMMENT: Final = re.compile(rf"{_TEXT}|(//[^\n]*|/\*.*?(?:\*/|\Z))", re.DOTALL)
_COMMA: Final = re.compile(rf"{_TEXT}|[\[{{,:]\s*,|(,)(?=\s*[\]}}])")
"""A comma that nothing stands before is not one after the last."""

_SEEN: Final = re.compile(r"[^\r\n]")


class Object(dict[str, Any]):
    """An object, and what it gives twice: the last one counts, as everywhere."""

    twice: tuple[str, ...] = ()


def loads(text: str) -> Any:
    """`ValueError` when it is not even that."""
    plain = _COMMA.sub(_blank, _COMMENT.sub(_blank, text))
    return json.loads(plain, object_pairs_hook=_object)


def _blank(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else _SEEN.sub(" ", match[0])


def _object(pairs: list[tuple[str, Any]]) -> Object:
    found = Object(pairs)
    if len(found) < len(pairs):
        given = Counter(name for name, _ in pairs)
        found.twice = tuple(name for name in found if given[name] > 1)
    return found
