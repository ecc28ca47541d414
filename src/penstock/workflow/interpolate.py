"""`${ … }` inside JSON values: finding it, and filling it in.

Knows where expressions stand in a value, not what they mean; `expr` does. Only strings are
looked into, never the keys of an object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from penstock.errors import ExpressionError
from penstock.workflow import expr, syntax
from penstock.workflow.crossing import DEEPEST
from penstock.workflow.expr import Expression, Failure, Lookup, Path, Scope

Part = str | Expression
Keys = tuple[str | int, ...]

_OPENING: Final = r"\$(\$?)\{"
_INSIDE: Final = rf"{syntax.STRING}|{syntax.COMMENT}|[{{}}]"


class _Hole(Struct, frozen=True):
    """A place in a value that expressions fill."""

    keys: Keys
    parts: tuple[Part, ...]
    whole: bool
    """The string is one expression and nothing else, so the value keeps its type."""


class Template(Struct, frozen=True, eq=False):
    """A JSON value with holes. Each rendering is fresh: it shares nothing mutable with any other value."""

    reads: tuple[Path, ...]
    _frame: Any
    """The value with its holes empty."""
    _holes: tuple[_Hole, ...]

    @property
    def constant(self) -> bool:
        return not self._holes

    def render(self, lookup: Lookup) -> Any:
        """The value with every hole filled, or the first `Failure`."""
        whole = [msgspec.to_builtins(self._frame)]
        for hole in self._holes:
            value = _fill(hole, lookup)
            if isinstance(value, Failure):
                return value
            place: Any = whole
            for key in hole.keys[:-1]:
                place = place[key]
            place[hole.keys[-1]] = value
        return whole[0]


def compile_value(value: Any, scope: Scope) -> Template:
    """Compile every `${ … }` in a JSON value. An `ExpressionError` says where in the value it is."""
    whole = [value]
    holes: list[_Hole] = []
    todo: list[tuple[Any, Any, Any, Keys]] = [(whole, 0, value, (0,))]
    while todo:
        place, key, one, keys = todo.pop()
        if len(keys) > DEEPEST:
            message = f"the value is nested more than {DEEPEST} levels deep"
            raise ExpressionError(message, where=_where(keys[:5]))
        if isinstance(one, str):
            parts = _compile_text(one, scope, keys)
            if len(parts) == 1 and isinstance(parts[0], str):
                place[key] = parts[0]
            else:
                place[key] = None
                holes.append(_Hole(keys, parts, whole=len(parts) == 1))
        elif isinstance(one, Mapping):
            place[key] = inner = dict(one)
            todo.extend((inner, name, inner[name], (*keys, name)) for name in reversed(inner))
        elif isinstance(one, list | tuple):
            place[key] = row = list(one)
            todo.extend((row, n, row[n], (*keys, n)) for n in reversed(range(len(row))))
    expressions = (part for hole in holes for part in hole.parts if isinstance(part, Expression))
    reads = dict.fromkeys(path for expression in expressions for path in expression.reads)
    return Template(tuple(reads), whole[0], tuple(holes))


def computed(value: Any) -> bool:
    """Whether a JSON value holds an expression."""
    if isinstance(value, str):
        return any(not found[1] for found in re.compile(_OPENING).finditer(value))
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(map(computed, inner))


def expression_text(text: str) -> str:
    """The expression in a text that may or may not have `${ … }` around it."""
    bare = text.strip()
    if bare.startswith("${") and _closing(bare, 2) == len(bare) - 1:
        return bare[2:-1].strip()
    return text


def _compile_text(text: str, scope: Scope, keys: Keys) -> tuple[Part, ...]:
    """The literal and computed parts of a string; a string without expressions is one part."""
    parts: list[Part] = []
    literal: list[str] = []
    at = 0
    while opening := re.compile(_OPENING).search(text, at):
        literal.append(text[at : opening.start()])
        if opening[1]:
            literal.append("${")
            at = opening.end()
            continue
        at = _closing(text, opening.end()) + 1
        if not at:
            hint = "close it with }, or write $${ for a literal ${"
            message = "${ is never closed"
            raise ExpressionError(message, hint, column=opening.start() + 1, where=_where(keys))
        if any(literal):
            parts.append("".join(literal))
        literal = []
        parts.append(_compile_part(text[opening.end() : at - 1], scope, keys, opening.end()))
    literal.append(text[at:])
    if any(literal) or not parts:
        parts.append("".join(literal))
    return tuple(parts)


def _compile_part(source: str, scope: Scope, keys: Keys, start: int) -> Expression:
    try:
        return expr.compile(source.strip(), scope)
    except ExpressionError as error:
        start += len(source) - len(source.lstrip())
        column = error.column + start if error.column else 0
        raise ExpressionError(error.message, error.hint, column=column, where=_where(keys)) from None


def _closing(text: str, at: int) -> int:
    """The offset of the brace that closes an expression, or -1. Braces in literals do not count."""
    depth = 0
    for found in re.compile(_INSIDE).finditer(text, at):
        if found[0] == "{":
            depth += 1
        elif found[0] == "}":
            if depth == 0:
                return found.start()
            depth -= 1
    return -1


def _where(keys: Keys) -> str:
    """`notes[0].text`, for people."""
    names = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys[1:])
    return "".join(names).removeprefix(".")


def _fill(hole: _Hole, lookup: Lookup) -> Any:
    texts: list[str] = []
    for part in hole.parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        value = part.evaluate(lookup)
        if isinstance(value, Failure):
            return value
        try:
            if hole.whole:
                return value if part.path is None else msgspec.to_builtins(value)
            texts.append(_spell(value))
        except (TypeError, ValueError, RecursionError) as error:
            return Failure(f"the value is not JSON: {error}", part.source)
    return "".join(texts)


def _spell(value: Any) -> str:
    """A value inside a longer text: a text as it is, null as nothing, everything else as compact JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()
