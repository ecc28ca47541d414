"""An output schema, filled with what a text says and nothing else. Pure, and never at a loss.

A number is one that stands in a sentence about its field; a choice is one whose words stand there.
What is not found is null where the schema allows it, left out where it does not, and named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.models.providers.passages import WORD, Passages, words

DEEPEST: Final = 8
"""Objects in objects. A schema may refer to itself."""

WIDEST: Final = 200
"""Values in all: one that refers to itself twice has no end that anyone would wait for."""

ITEMS: Final = 5
GENERIC: Final = frozenset(
    words("summary answer text result content output response explanation reasoning quote message")
)
"""Fields that are about the question itself."""

_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?![\w]|\.\d)")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|[_\-]+")

_ABSENT: Final = object()


def fill(schema: Mapping[str, Any], passages: Passages) -> tuple[Any, tuple[str, ...]]:
    """A value for the schema, and the places for which nothing was found."""
    missing: list[str] = []
    value = _Filling(schema, passages, missing).value(schema, "", passages.question, DEEPEST)
    return (None if value is _ABSENT else value), tuple(missing)


class _Filling:
    def __init__(self, root: Mapping[str, Any], passages: Passages, missing: list[str]) -> None:
        self._root = root
        self._passages = passages
        self._missing = missing
        self._left = WIDEST

    def value(self, schema: Any, place: str, about: str, depth: int) -> Any:
        schema = self._resolved(schema)
        kinds = _kinds(schema)
        about = f"{about} {schema.get('description', '')}".strip()
        found: Any = _ABSENT
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            found = self._choice(schema["enum"], about)
        elif "object" in kinds and depth and self._left > 0:
            return self._object(schema, place, depth)
        elif "array" in kinds:
            found = self._list(schema, about)
        elif "integer" in kinds or "number" in kinds:
            found = self._number(about, whole="number" not in kinds)
        elif "string" in kinds or not kinds:
            found = self._text(schema, about)
        if found is not _ABSENT:
            return found
        self._missing.append(place or "the answer")
        return None if "null" in kinds else _ABSENT

    def _object(self, schema: Mapping[str, Any], place: str, depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        found = {}
        for name, part in (properties if isinstance(properties, Mapping) else {}).items():
            inner = f"{place}.{name}" if place else str(name)
            self._left -= 1
            value = self.value(part, inner, _CAMEL.sub(" ", str(name)), depth - 1)
            if value is not _ABSENT:
                found[name] = value
        return found

    def _list(self, schema: Mapping[str, Any], about: str) -> Any:
        """Lists of texts are the sentences on the subject; of anything else there is no telling."""
        items = self._resolved(schema.get("items", {}))
        most = schema.get("maxItems", ITEMS)
        texts = not _kinds(items) or "string" in _kinds(items)
        if "enum" in items or not texts or not isinstance(most, int):
            return _ABSENT
        chosen = self._on(about, max(0, min(most, ITEMS)))
        least = schema.get("minItems", 0)
        return chosen if chosen and isinstance(least, int) and len(chosen) >= least else _ABSENT

    def _number(self, about: str, *, whole: bool) -> Any:
        """The figure closest to a word of the field's name; where two are as close, there is no telling."""
        wanted = set(words(about))
        for sentence in self._passages.best(3, about):
            near = [m.span() for m in WORD.finditer(sentence) if wanted.intersection(words(m[0]))]
            gaps: dict[float, int] = {}
            for match in _NUMBER.finditer(sentence):
                value = float(match[0].replace(",", ""))
                if near and (value.is_integer() or not whole):
                    gap = min(max(start - match.end(), match.start() - end) for start, end in near)
                    gaps[value] = min(gap, gaps.get(value, gap))
            closest = [value for value, gap in gaps.items() if gap == min(gaps.values())]
            if len(closest) == 1:
                return int(closest[0]) if closest[0].is_integer() else closest[0]
        return _ABSENT

    def _choice(self, choices: Any, about: str) -> Any:
        """The one choice whose words stand in the sentences on the subject; of two, neither."""
        chosen = self._passages.best(2, about) or self._passages.best(2)
        there = set(words(" ".join(chosen)))
        fitting = [
            choice
            for choice in (choices if isinstance(choices, list) else [])
            if isinstance(choice, str) and (own := set(words(_CAMEL.sub(" ", choice)))) and own <= there
        ]
        return fitting[0] if len(fitting) == 1 else _ABSENT

    def _text(self, schema: Mapping[str, Any], about: str) -> Any:
        chosen = self._on(about, 1)
        if not chosen or schema.get("pattern") or schema.get("format"):
            return _ABSENT
        most = schema.get("maxLength")
        if isinstance(most, int) and len(chosen[0]) > most:
            return _ABSENT
        return chosen[0]

    def _on(self, about: str, count: int) -> list[str]:
        """Sentences on a subject; on the question where the subject is nothing else."""
        found = self._passages.best(count, about)
        return self._passages.best(count) if not found and GENERIC.issuperset(words(about)) else found

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        """The schema itself, its reference within the document, or the first of its alternatives."""
        for _ in range(DEEPEST):
            if not isinstance(schema, Mapping):
                return {}
            if isinstance(reference := schema.get("$ref"), str):
                schema = self._referred(reference)
            elif "type" not in schema and "enum" not in schema and _options(schema):
                options = _options(schema)
                schema = next((o for o in options if isinstance(o, Mapping) and o.get("type") != "null"), {})
                if any(isinstance(o, Mapping) and o.get("type") == "null" for o in options):
                    schema = {**schema, "type": [*_kinds(schema), "null"]}
            else:
                return schema
        return {}

    def _referred(self, reference: str) -> Any:
        found: Any = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            found = (
                found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
            )
        return found


def _options(schema: Mapping[str, Any]) -> list[Any]:
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(options := schema.get(name), list) and options:
            return options
    return []


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    if kind is None and "properties" in schema:
        return ["object"]
    kinds = kind if isinstance(kind, list) else [kind]
    return [each for each in kinds if isinstance(each, str)]
