"""The values that a run is given: checked against what the workflow declares.

JSON values from a program (`check_inputs`), texts from a command line (`coerce_inputs`).
Nothing here reads a file or asks a person.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from penstock.errors import DefinitionError, InputError, Problem
from penstock.workflow.findings import did_you_mean
from penstock.workflow.plain import plain
from penstock.workflow.spec import Input, InputType, Workflow

TYPE_WORDS: Final[Mapping[InputType, str]] = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a map",
    "any": "a value",
}
_PYTHON: Final[Mapping[InputType, type | tuple[type, ...]]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": (list, tuple),
    "object": Mapping,
    "any": object,
}
SHOWN: Final = 60
"""How much of a value a message repeats."""

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})
_INTEGER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def check_inputs(workflow: Workflow, given: Mapping[str, Any]) -> dict[str, Any]:
    """All inputs of a run, defaults included, as a fresh copy; or one `InputError` with all that is wrong."""
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for name, declared in workflow.inputs.items():
        if name in given:
            values[name] = _checked(name, given[name], declared, problems)
        elif declared.required:
            problems.append(_missing(name, declared))
        else:
            values[name] = plain(declared.default)
    problems.extend(_unknown(name, workflow) for name in given if name not in workflow.inputs)
    if problems:
        raise InputError(problems)
    return values


def coerce_inputs(workflow: Workflow, texts: Mapping[str, str]) -> dict[str, Any]:
    """What texts such as `-i count=3` mean, by the declared types. Check the result with `check_inputs`."""
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for name, text in texts.items():
        declared = workflow.inputs.get(name)
        if declared is None:
            problems.append(_unknown(name, workflow))
            continue
        try:
            values[name] = _READERS[declared.type](text)
        except ValueError:
            hint = "write it as JSON" if declared.type in ("array", "object") else ""
            problems.append(_wrong(name, text, declared, hint))
    if problems:
        raise InputError(problems)
    return values


def inputs_schema(workflow: Workflow) -> dict[str, Any]:
    """The JSON Schema of what a workflow takes."""
    properties: dict[str, Any] = {}
    for name, declared in workflow.inputs.items():
        kind = {} if declared.type == "any" else {"type": declared.type}
        properties[name] = {**kind, **({"enum": list(declared.enum)} if declared.enum else {})}
    required = [name for name, declared in workflow.inputs.items() if declared.required]
    return {
        "type": "object", "properties": properties, "required": required, "additionalProperties": False
    }  # fmt: skip


def fits(value: Any, kind: InputType) -> bool:
    """Whether a JSON value is of a declared type. True is not a whole number; 3 is a number."""
    if isinstance(value, bool):
        return kind in ("boolean", "any")
    return isinstance(value, _PYTHON[kind])


def among(value: Any, allowed: tuple[Any, ...]) -> bool:
    """Whether a value is one of those allowed. In JSON true is not 1, as it is in Python."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed)


def shown(value: Any) -> str:
    """A value as a message may repeat it: as JSON, and not all of a long one."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _checked(name: str, value: Any, declared: Input, problems: list[Problem]) -> Any:
    try:
        fresh = plain(value, f"inputs.{name}")
    except DefinitionError as error:
        problems.extend(error.problems)
        return None
    if not fits(fresh, declared.type):
        problems.append(_wrong(name, fresh, declared))
    elif declared.enum and not among(fresh, declared.enum):
        choices = ", ".join(map(shown, declared.enum))
        words = [one for one in declared.enum if isinstance(one, str)]
        hint = did_you_mean(fresh, words) if isinstance(fresh, str) else ""
        problems.append(Problem(f"{shown(fresh)} is not one of {choices}", hint, where=f"inputs.{name}"))
    return fresh


def _wrong(name: str, value: Any, declared: Input, hint: str = "") -> Problem:
    return Problem(f"{shown(value)} is not {TYPE_WORDS[declared.type]}", hint, where=f"inputs.{name}")


def _missing(name: str, declared: Input) -> Problem:
    what = f": {declared.description}" if declared.description else ""
    return Problem(f"{TYPE_WORDS[declared.type]} must be given{what}", where=f"inputs.{name}")


def _unknown(name: str, workflow: Workflow) -> Problem:
    hint = did_you_mean(name, workflow.inputs)
    if not hint and workflow.inputs:
        hint = f"it takes {', '.join(workflow.inputs)}"
    elif not hint:
        hint = "it takes none"
    return Problem(f"the workflow has no input {name!r}", hint)


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text.strip()):
        raise ValueError(text)
    return int(text)


def _number(text: str) -> int | float:
    if _INTEGER.fullmatch(text.strip()):
        return int(text)
    if not _NUMBER.fullmatch(text.strip()):
        raise ValueError(text)
    return float(text)


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(text)
    return word in _TRUE


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(text) from error


def _anything(text: str) -> Any:
    try:
        return _json(text)
    except ValueError:
        return text


_READERS: Final[Mapping[InputType, Callable[[str], Any]]] = {
    "string": str,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "array": _json,
    "object": _json,
    "any": _anything,
}
