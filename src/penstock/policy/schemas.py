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
    """A check of values against a schema, or `BadSchema` in words.

    A schema of the usual words is seen to be valid without being checked, which takes milliseconds;
    what it takes to apply it is made when the first value comes. Catalogs have thousands of them.
    """
    _inspect(schema)
    if not is_plain(schema):
        _check_schema(schema)
        check = _applied(schema, overlook)
        said = check({})  # one that can never be applied is refused now, not at its first call
        if said.startswith("cannot be checked"):
            raise BadSchema(said.removeprefix("cannot be checked: "))
        return check
    made: list[Check] = []

    def later(value: Any) -> str:
        if not made:
            made.append(_applied(schema, overlook))
        return made[0](value)

    return later


def _check_schema(schema: Mapping[str, Any]) -> None:
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing.exceptions import Unresolvable

    try:
        kind: Any = validator_for(schema, default=Draft202012Validator)
        kind.check_schema(schema, format_checker=FormatChecker(formats=()))  # patterns may be JavaScript's
    except SchemaError as error:
        raise BadSchema(f"the schema is not valid: {error.message[:200]}") from None
    except (RecursionError, Unresolvable) as error:
        raise BadSchema(f"the schema cannot be checked: {type(error).__name__}") from None


def _applied(schema: Mapping[str, Any], overlook: Overlook | None) -> Check:
    """The check of a schema that is valid."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match
    from jsonschema.validators import extend, validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    kind: Any = validator_for(schema, default=Draft202012Validator)
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


_DRAFTS: Final = (
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
)
_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")


def is_plain(schema: Any) -> bool:
    """Whether a schema is valid for certain: only the usual words, each with what belongs to it."""
    if not isinstance(schema, Mapping):
        return False
    draft = schema.get("$schema", _DRAFTS[0])
    rest = {key: value for key, value in schema.items() if key != "$schema"}
    return isinstance(draft, str) and draft.removesuffix("#") in _DRAFTS and _plain(rest)


def _plain(schema: Any) -> bool:
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, Mapping):
        return False
    return all((fits := _PLAIN.get(word)) is not None and fits(value) for word, value in schema.items())


def _anything(_value: Any) -> bool:
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_type(value: Any) -> bool:
    if isinstance(value, str):
        return value in _TYPES
    return _are_names(value) and bool(value) and all(one in _TYPES for one in value)


def _are_names(value: Any) -> bool:
    texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
    return texts and len(set(value)) == len(value)


def _are_plain(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_plain, value))


def _are_properties(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_plain, value.values()))


_PLAIN: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("default", "const"), _anything),
    **dict.fromkeys(("description", "title", "$comment", "format", "pattern"), _is_text),
    **dict.fromkeys(("uniqueItems", "readOnly", "writeOnly"), _is_flag),
    **dict.fromkeys(("enum", "examples"), _is_list),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count
    ),
    **dict.fromkeys(("additionalProperties", "items"), _plain),
    **dict.fromkeys(("anyOf", "oneOf", "allOf"), _are_plain),
    "type": _is_type,
    "required": _are_names,
    "properties": _are_properties,
}


def size_of(schema: Mapping[str, Any] | None) -> int:
    """Bytes of a schema as JSON; more than are allowed when it is none."""
    return len(_written(schema))


def _written(schema: Mapping[str, Any] | None) -> bytes:
    """A schema as JSON; something too large when it is none."""
    try:
        return msgspec.json.encode(schema)
    except (TypeError, ValueError, RecursionError):
        return b"{" * (LARGEST + 1)


def _inspect(schema: Mapping[str, Any]) -> None:
    """Size, depth, and where references lead: what can be seen without applying it."""
    written = _written(schema)
    # Most are seen by their letters to be shallow and to refer to nothing: catalogs have thousands.
    if written.count(b"{") + written.count(b"[") > DEEPEST and _depth(schema) > DEEPEST:
        raise BadSchema(f"the schema is nested more than {DEEPEST} deep")
    if len(written) > LARGEST:
        raise BadSchema(f"the schema has {len(written):,} bytes; {LARGEST:,} are allowed")
    if any(word.encode() in written for word in _FOLLOWING):
        _refuse_strangers(schema)


def _refuse_strangers(schema: Mapping[str, Any]) -> None:
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
