"""The kinds of values a workflow file is made of: how each is read, and how JSON Schema says it.

One object per kind, so that the reader, the builder and the published schema cannot disagree.
Which keys there are, and of which kind, is in `keys`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from penstock.workflow import durations
from penstock.workflow.interpolate import expression_text
from penstock.workflow.names import did_you_mean
from penstock.workflow.nodes import Node, describe, quoted
from penstock.workflow.problems import Problems

Schema = dict[str, Any]

BAD: Final = object()
"""Stands for a value that could not be read; its problem is already on the list."""

_EMPTY: Final = "give a value, or remove the key"


_YES_NO: Final = dict.fromkeys(("yes", "on", "y"), "true") | dict.fromkeys(("no", "off", "n"), "false")
"""Words that older YAML took for true and false."""


class Kind(Protocol):
    """One kind of value."""

    def read(self, node: Node, problems: Problems) -> Any:
        """The value for the definition, or BAD."""

    def schema(self) -> Schema: ...


def wrong(node: Node, problems: Problems, expected: str, hint: str = "") -> Any:
    """Complain that something else was expected here."""
    nothing = node.kind == "scalar" and node.value is None
    problems.add(node, f"expected {expected}, found {describe(node)}", _EMPTY if nothing else hint)
    return BAD


class Text(msgspec.Struct, frozen=True):
    what: str = "text"
    hint: str = "quotes make a value text"
    empty: bool = True

    def read(self, node: Node, problems: Problems) -> Any:
        if type(node.value) is not str:
            return wrong(node, problems, self.what, self.hint)
        if not self.empty and not node.value.strip():
            return wrong(node, problems, self.what)
        return node.value

    def schema(self) -> Schema:
        return {"type": "string"} if self.empty else {"type": "string", "minLength": 1}


class Label(msgspec.Struct, frozen=True):
    """Text that people often write as a whole number: a version, an argument of a command."""

    def read(self, node: Node, problems: Problems) -> Any:
        if type(node.value) is int:
            return str(node.value)
        return Text().read(node, problems)

    def schema(self) -> Schema:
        return {"type": ["string", "integer"]}


class Choice(msgspec.Struct, frozen=True):
    options: Sequence[str]
    also: Mapping[Any, str] = msgspec.field(default_factory=dict)
    """Other ways to say an option: true and false, or the names that other languages use."""

    def read(self, node: Node, problems: Problems) -> Any:
        value = node.value
        if node.kind != "scalar" or value is None:
            return wrong(node, problems, f"one of {', '.join(self.options)}")
        if type(value) is str and value in self.options:
            return value
        if type(value) is bool and value in self.also:
            return self.also[value]
        meant = self.also.get(value, "") if type(value) is str else ""
        hint = f"did you mean {meant}?" if meant else did_you_mean(str(value), self.options)
        problems.add(node, f"{describe(node)} is not one of {', '.join(self.options)}", hint)
        return BAD

    def schema(self) -> Schema:
        return {"enum": [*self.options, *(word for word in self.also if isinstance(word, bool))]}


class Flag(msgspec.Struct, frozen=True):
    def read(self, node: Node, problems: Problems) -> Any:
        if type(node.value) is bool:
            return node.value
        word = _YES_NO.get(node.value) if type(node.value) is str else None
        return wrong(node, problems, "true or false", f"write {word}" if word else "")

    def schema(self) -> Schema:
        return {"type": "boolean"}


class Whole(msgspec.Struct, frozen=True):
    least: int

    def read(self, node: Node, problems: Problems) -> Any:
        value = node.value
        if type(value) is not int:
            return wrong(node, problems, "a whole number")
        if value < self.least:
            problems.add(node, f"{value} is too small", f"the least is {self.least}")
            return BAD
        return value

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.least}


class Number(msgspec.Struct, frozen=True):
    least: float
    most: float | None = None

    def read(self, node: Node, problems: Problems) -> Any:
        value = node.value
        if type(value) not in (int, float):
            return wrong(node, problems, "a number")
        if value < self.least or (self.most is not None and value > self.most):
            limits = f"at least {self.least:g}" if self.most is None else f"{self.least:g} to {self.most:g}"
            problems.add(node, f"{value} is out of range", f"use {limits}")
            return BAD
        return float(value)

    def schema(self) -> Schema:
        most = {} if self.most is None else {"maximum": self.most}
        return {"type": "number", "minimum": self.least, **most}


class Duration(msgspec.Struct, frozen=True):
    """`30s`, `1m30s`, `PT5M`, or a number of seconds."""

    zero: bool = False

    def read(self, node: Node, problems: Problems) -> Any:
        value = node.value
        length = durations.seconds(value) if type(value) is str else value
        if type(length) is not float and type(length) is not int:
            return wrong(node, problems, "a duration", f"write {durations.EXAMPLES}, or seconds as a number")
        if length < 0 or (length == 0 and not self.zero):
            least = "0 or more" if self.zero else "more than 0"
            problems.add(node, f"{describe(node)} is too short", f"a duration here is {least}")
            return BAD
        if length > durations.LONGEST:
            problems.add(node, f"{describe(node)} is too long", "the longest duration is ten years")
            return BAD
        return float(length)

    def schema(self) -> Schema:
        least = {"minimum": 0} if self.zero else {"exclusiveMinimum": 0}
        text = {"type": "string", "pattern": durations.PATTERN}
        return {"anyOf": [{"type": "number", **least}, text]}


class Expr(msgspec.Struct, frozen=True):
    """CEL, bare or as `${ … }`."""

    def read(self, node: Node, problems: Problems) -> Any:
        value = node.value
        if type(value) is bool:
            return "true" if value else "false"
        if type(value) is not str or not value.strip():
            return wrong(node, problems, "an expression", 'write it as text, e.g. "inputs.n > 3"')
        text = expression_text(value).strip()
        return text or wrong(node, problems, "an expression")

    def schema(self) -> Schema:
        return {"type": ["string", "boolean"]}


class Items(msgspec.Struct, frozen=True):
    """What `for_each` goes over: an expression, or the list itself."""

    def read(self, node: Node, problems: Problems) -> Any:
        if node.kind != "list":
            return Expr().read(node, problems)
        text = msgspec.json.encode(node.plain()).decode()
        if "${" in text:
            problems.add(
                node, "a list written out cannot hold expressions", 'write "${ [inputs.a, inputs.b] }"'
            )
            return BAD
        return text

    def schema(self) -> Schema:
        return {"type": ["string", "array"]}


class Assigned(msgspec.Struct, frozen=True):
    """A value for `set`: text with expressions in it, or a constant."""

    def read(self, node: Node, problems: Problems) -> Any:
        if type(node.value) is str:
            return node.value
        if node.kind != "scalar":
            return wrong(node, problems, "an expression", 'write it as CEL, e.g. "${ [output.a, output.b] }"')
        return f"${{ {msgspec.json.encode(node.value).decode()} }}"

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean", "null"]}


class Json(msgspec.Struct, frozen=True):
    """Any value; expressions inside its texts are the business of whoever renders it."""

    def read(self, node: Node, problems: Problems) -> Any:  # noqa: ARG002 - nothing can be wrong
        return node.plain()

    def schema(self) -> Schema:
        return {}


class JsonMap(msgspec.Struct, frozen=True):
    def read(self, node: Node, problems: Problems) -> Any:
        if node.kind != "map":
            return wrong(node, problems, "a map", "write names and values: {name: value}")
        return node.plain()

    def schema(self) -> Schema:
        return {"type": "object"}


class ListOf(msgspec.Struct, frozen=True):
    kind: Kind
    single: bool = False
    """One value may stand for a list of one."""
    hint: str = ""

    def read(self, node: Node, problems: Problems) -> Any:
        if node.kind == "list":
            values = [self.kind.read(part, problems) for part in node.value]
            return tuple(value for value in values if value is not BAD)
        if self.single and node.kind == "scalar" and node.value is not None:
            value = self.kind.read(node, problems)
            return BAD if value is BAD else (value,)
        return wrong(node, problems, "a list", self.hint)

    def schema(self) -> Schema:
        many: Schema = {"type": "array", "items": self.kind.schema()}
        return {"anyOf": [self.kind.schema(), many]} if self.single else many


class MapOf(msgspec.Struct, frozen=True):
    kind: Kind
    hint: str = ""

    def read(self, node: Node, problems: Problems) -> Any:
        if node.kind != "map":
            return wrong(node, problems, "a map", self.hint)
        values = {key: self.kind.read(part, problems) for key, part in node.value.items()}
        return {key: value for key, value in values.items() if value is not BAD}

    def schema(self) -> Schema:
        return {"type": "object", "additionalProperties": self.kind.schema()}


class Short(msgspec.Struct, frozen=True):
    """A short form for values of some type, beside the full one."""

    types: tuple[type, ...]
    """Of the node's value: bool, int, list …; bool is not an int here."""
    kind: Kind
    make: Callable[[Any], Any]
    full: Kind

    def read(self, node: Node, problems: Problems) -> Any:
        if type(node.value) not in self.types:
            return self.full.read(node, problems)
        value = self.kind.read(node, problems)
        return BAD if value is BAD else self.make(value)

    def schema(self) -> Schema:
        return {"anyOf": [self.kind.schema(), self.full.schema()]}


class Later(msgspec.Struct, frozen=True):
    """A kind that is defined further down, for the one circle in the format."""

    find: Callable[[], Kind]

    def read(self, node: Node, problems: Problems) -> Any:
        return self.find().read(node, problems)

    def schema(self) -> Schema:
        return self.find().schema()


class Key(msgspec.Struct, frozen=True):
    kind: Kind
    about: str
    """One sentence, shown by editors."""
    field: str = ""
    """The name in the definition, where it differs from the key."""
    required: bool = False


class Section:
    """A map with known keys, read into one value of the definition."""

    def __init__(
        self,
        name: str,
        make: type[msgspec.Struct],
        keys: Mapping[str, Key],
        *,
        foreign: Mapping[str, str] | None = None,
        check: Callable[[Node, Problems], bool] | None = None,
        hint: str = "",
    ) -> None:
        self.name = name
        self.keys = keys
        self.required = tuple(key for key, spec in keys.items() if spec.required)
        self._make = make
        self._readers = {key: (spec.field or key, spec.kind.read) for key, spec in keys.items()}
        self._foreign = foreign or {}
        """Words that other tools use for one of our keys, or a hint for what we do instead."""
        self._check = check
        self._hint = hint
        self._defaults = {field.name: field.default for field in msgspec.structs.fields(make)}

    def read(self, node: Node, problems: Problems) -> Any:
        if node.kind != "map":
            return wrong(node, problems, "a map", self._hint)
        fields = self.fields(node, problems)
        for key in self.required:
            if key not in node.value and key not in map(self._foreign.get, node.value):
                about = self.keys[key].about
                hint = f"add {key!r}: {about[0].lower()}{about[1:].rstrip('.')}"
                problems.add(node, f"the key {key!r} is missing", hint)
        if not all(self._readers[key][0] in fields for key in self.required):
            return BAD
        if self._check is not None and not self._check(node, problems):
            return BAD
        return self._make(**fields)

    def fields(self, node: Node, problems: Problems) -> dict[str, Any]:
        """What a map says, by field of the definition, whether or not it says enough."""
        fields: dict[str, Any] = {}
        readers = self._readers
        for key, part in node.value.items():
            reader = readers.get(key)
            if reader is None:
                self._unknown(node, key, problems)
            elif (value := reader[1](part, problems)) is not BAD:
                # A default written out is the default itself: the canonical form leaves it out.
                default = self._defaults[reader[0]]
                if value is not default and (type(value) is not type(default) or value != default):
                    fields[reader[0]] = value
        return fields

    def _unknown(self, node: Node, key: str, problems: Problems) -> None:
        meant = self._foreign.get(key, "")
        if meant in self.keys:
            hint = f"use {meant!r}"
        else:
            hint = meant or did_you_mean(key, self.keys) or f"the keys here are {', '.join(self.keys)}"
        problems.add(node, f"unknown key {quoted(key)}", hint, key=key)

    def schema(self) -> Schema:
        return {"$ref": f"#/$defs/{self.name}"}
