"""JSON Schemas that others wrote: checked before they are trusted, and never at any price.

A schema may be wrong, enormous, or made so that looking at it takes for ever. What it costs is
counted while it is applied; what it refers to must stand in itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

LARGEST: Final = 256 * 1024
"""Bytes of a schema."""

DEEPEST: Final = 64
"""How deep values and schemas may be nested."""

STEPS: Final = 20_000
"""References followed within one check; nothing honest needs a tenth of it."""

TRIES: Final = 1_000_000
"""Ways in which a pattern may fit a text, at most; what may take longer is left to the tool itself."""

_REPEATED: Final = re.compile(r"\)[*+{?]")
"""A group repeated: the sort of pattern that can take for ever."""

_UNBOUNDED: Final = re.compile(r"[*+]|,\}")

Check = Callable[[Any], str]
"""Takes a value, returns the complaint, or nothing when it is as it should be."""


class BadSchema(ValueError):
    """This schema cannot be used."""


class _TooCostly(Exception):
    pass


Overlook = Callable[[str, Any], bool]
"""Whether a keyword's complaint about a value does not count."""


def compiled(schema: Mapping[str, Any], *, overlook: Overlook | None = None) -> Check:
    """A check of values against a schema, or `BadSchema` in words."""
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import SchemaError, best_match
    from jsonschema.validators import extend, validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    _inspect(schema)
    try:
        kind: Any = validator_for(schema, default=Draft202012Validator)
        kind.check_schema(schema, format_checker=FormatChecker(formats=()))  # patterns may be JavaScript's
    except SchemaError as error:
        raise BadSchema(f"the schema is not valid: {error.message[:200]}") from None
    except (RecursionError, Unresolvable) as error:
        raise BadSchema(f"the schema cannot be checked: {type(error).__name__}") from None
    left = [0]

    def counted(follow: Any) -> Any:
        def keyword(validator: Any, value: Any, instance: Any, around: Any) -> Iterator[Any]:
            left[0] -= 1
            if left[0] < 0:
                raise _TooCostly
            yield from follow(validator, value, instance, around) or ()

        return keyword

    changed = {name: counted(kind.VALIDATORS[name]) for name in _FOLLOWING if name in kind.VALIDATORS}
    changed["pattern"] = _pattern
    changed["patternProperties"] = _nothing if _suspicious(schema) else kind.VALIDATORS["patternProperties"]
    extended: Any = extend(kind, changed)  # type: ignore[no-untyped-call]
    validator = extended(schema, registry=Registry())

    def check(value: Any) -> str:
        left[0] = STEPS
        if _depth(value) > DEEPEST:
            return f"is nested more than {DEEPEST} deep"
        try:
            errors = validator.iter_errors(value)
            if overlook is not None:
                errors = (one for one in errors if _counts(one, overlook))
            error = best_match(errors)
        except (_TooCostly, RecursionError):
            return "cannot be checked: the schema refers to itself without end"
        except Unresolvable as missing:
            return f"cannot be checked: the schema refers to {missing.ref!r}, which it does not hold"
        if error is None:
            return ""
        place = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in error.absolute_path)
        said = error.message if len(error.message) <= 300 else f"{error.message[:300]}…"
        return f"{place.lstrip('.')}: {said}" if place else said

    said = check({})  # one that can never be applied is refused now, not at its first call
    if said.startswith("cannot be checked"):
        raise BadSchema(said.removeprefix("cannot be checked: "))
    return check


def _counts(error: Any, overlook: Overlook) -> bool:
    """Whether a complaint counts. One about alternatives does when there is something wrong with each."""
    if not error.context:
        return not overlook(error.validator, error.instance)
    ways: dict[Any, list[Any]] = {}
    for one in error.context:
        ways.setdefault(one.relative_schema_path[0], []).append(one)
    return all(any(_counts(one, overlook) for one in way) for way in ways.values())


_FOLLOWING: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def size_of(schema: Mapping[str, Any] | None) -> int:
    """Bytes of a schema as JSON; more than are allowed when it is none."""
    try:
        return len(msgspec.json.encode(schema))
    except (TypeError, ValueError, RecursionError):
        return LARGEST + 1


def _inspect(schema: Mapping[str, Any]) -> None:
    """Size, depth, and where references lead: what can be seen without applying it."""
    if _depth(schema) > DEEPEST:
        raise BadSchema(f"the schema is nested more than {DEEPEST} deep")
    size = size_of(schema)
    if size > LARGEST:
        raise BadSchema(f"the schema has {size:,} bytes; {LARGEST:,} are allowed")
    for part in _parts(schema):
        for key in _FOLLOWING:
            target = part.get(key)
            if isinstance(target, str) and not target.startswith("#"):
                raise BadSchema(f"the schema refers to {target[:100]!r}, which it does not hold")


def _parts(value: Any) -> Iterator[Mapping[str, Any]]:
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, Mapping):
            yield one
            todo.extend(one.values())
        elif isinstance(one, list):
            todo.extend(one)


def _depth(value: Any) -> int:
    """How deep a value is nested, counted no further than it matters."""
    depth, level = 0, [value]
    while level and depth <= DEEPEST:
        depth += 1
        level = [
            inner
            for one in level
            if isinstance(one, Mapping | list)
            for inner in (one.values() if isinstance(one, Mapping) else one)
            if isinstance(inner, Mapping | list)
        ]
    return depth


def _suspicious(schema: Mapping[str, Any]) -> bool:
    return any(
        _REPEATED.search(pattern)
        for part in _parts(schema)
        if isinstance(patterns := part.get("patternProperties"), Mapping)
        for pattern in patterns
    )


def _nothing(*_: Any) -> Iterator[Any]:
    return iter(())


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if not isinstance(instance, str) or _REPEATED.search(pattern):
        return
    if len(instance) ** len(_UNBOUNDED.findall(pattern)) > TRIES:
        return
    try:
        found = re.search(pattern, instance)
    except re.error:
        return  # another language's pattern
    if not found:
        yield ValidationError(f"{instance!r} does not match {pattern!r}")
