"""The names an expression may use: which there are, where, and what may be asked of each.

Knows a workflow's inputs and step ids by name only. How expressions are written is
`syntax`'s business, what a path holds at run time a lookup's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Final

from msgspec import Struct, field

from penstock.errors import ExpressionError
from penstock.workflow.spec import InputType
from penstock.workflow.syntax import Path, path_text

_SCALARS: Final[Mapping[str, InputType]] = {
    "status": "string",
    "iteration": "integer",
    "max_iterations": "integer",
}
_OPEN: Final = ("context", "output", "item", "attempts", "route", "detour")
"""Roots that may hold anything."""

_PARTS: Final[Mapping[str, Mapping[str, InputType]]] = {
    "steps": {"output": "any", "status": "string", "error": "any"},
    "previous": {"output": "any", "status": "string"},
    "run": {"id": "string", "workflow": "string"},
}

ROOTS: Final = frozenset(("inputs", *_PARTS, *_SCALARS, *_OPEN))

_FLAT: Final[frozenset[InputType]] = frozenset(("string", "integer", "number", "boolean", "array"))
"""Kinds that have no fields."""

_MANY: Final = 2000
"""Names compared when looking for a near miss; comparing 100,000 would take seconds."""


class Scope(Struct, frozen=True, eq=False):
    """What an expression at one place may name."""

    names: frozenset[str]
    """The roots allowed here, of `ROOTS`."""
    inputs: Mapping[str, InputType] = field(default_factory=dict)
    steps: Collection[str] | None = None
    """Known step ids; None means that they are not checked."""


def kind_of(path: Path, scope: Scope, *, column: int = 0) -> InputType:
    """What the path is known to hold. Raises when the scope has no such path."""
    root = path[0]
    if root not in scope.names:
        raise unknown(root, scope, column)
    if root == "inputs":
        return _input(path, scope, column)
    if root in ("steps", "previous"):
        return _step(path, scope, column)
    if root == "run":
        return _part(path, 1, _PARTS["run"], column)
    return _below(path, 1, _SCALARS.get(root, "any"), column)


def unknown(name: str, scope: Scope, column: int = 0) -> ExpressionError:
    """The error for a name that means nothing here."""
    message = f"{name} is not available here" if name in ROOTS else f"unknown name {name}"
    return ExpressionError(message, _place_of(name, scope), column=column)


def nearest(name: str, candidates: Iterable[str]) -> str:
    """A candidate that was probably meant, or nothing."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, candidates, 1, 0.6)), "")


def did_you_mean(name: str, candidates: Iterable[str], prefix: str = "") -> str:
    found = nearest(name, candidates)
    return f"did you mean {path_text((prefix, found)) if prefix else found}?" if found else ""


def _place_of(name: str, scope: Scope) -> str:
    if name in scope.inputs and "inputs" in scope.names:
        return f"did you mean inputs.{name}?"
    if scope.steps is not None and "steps" in scope.names and name in scope.steps:
        return f"did you mean steps.{name}.output?"
    near = "" if name in ROOTS else nearest(name, sorted(scope.names))
    return f"did you mean {near}?" if near else "names here: " + ", ".join(sorted(scope.names))


def _input(path: Path, scope: Scope, column: int) -> InputType:
    if len(path) == 1:
        return "object"
    name = path[1]
    if name in scope.inputs:
        return _below(path, 2, scope.inputs[name], column)
    declared = ", ".join(sorted(scope.inputs)) or "none"
    hint = did_you_mean(name, scope.inputs, "inputs") or f"declared inputs: {declared}"
    message = f"no input {name!r}"
    raise ExpressionError(message, hint, column=column)


def _step(path: Path, scope: Scope, column: int) -> InputType:
    root = path[0]
    if len(path) == 1:
        hint = f"write {root}.NAME.output; a computed name is not possible"
        message = f"{root} must name a step"
        raise ExpressionError(message, hint, column=column)
    name = path[1]
    if scope.steps is not None and name not in scope.steps:
        hint = did_you_mean(name, _likely(name, scope.steps), root)
        message = f"no step {name!r}"
        raise ExpressionError(message, hint, column=column)
    return _part(path, 2, _PARTS[root], column)


def _part(path: Path, at: int, parts: Mapping[str, InputType], column: int) -> InputType:
    """The fixed part named at a position, and what lies below it."""
    if len(path) > at and path[at] in parts:
        return _below(path, at + 1, parts[path[at]], column)
    whole = path_text(path[:at])
    if len(path) == at:
        hint = f"write {' or '.join(f'{whole}.{part}' for part in parts)}"
        if path[0] != "run":
            hint += "; a step that did not run has the output null"
        message = f"{whole} is not a value by itself"
        raise ExpressionError(message, hint, column=column)
    hint = did_you_mean(path[at], parts, whole)
    if not hint and "output" in parts:
        hint = f"did you mean {path_text((*path[:at], 'output', *path[at:]))}?"
    message = f"{whole} has no {path[at]!r}"
    raise ExpressionError(message, hint or f"it has {', '.join(parts)}", column=column)


def _below(path: Path, at: int, kind: InputType, column: int) -> InputType:
    """The kind of a path whose first `at` parts hold `kind`."""
    if len(path) == at:
        return kind
    if kind in _FLAT:
        message = f"{path_text(path[:at])} is {_article(kind)} {kind} and has no field {path[at]!r}"
        raise ExpressionError(message, column=column)
    return "any"


def _article(kind: str) -> str:
    return "an" if kind[0] in "aio" else "a"


def _likely(name: str, ids: Collection[str]) -> Iterable[str]:
    if len(ids) <= _MANY:
        return ids
    near = (one for one in ids if abs(len(one) - len(name)) <= 2)
    return islice((one for one in near if one[:2] == name[:2] or one[-2:] == name[-2:]), _MANY)
