"""The text of a workflow file, as nodes that remember where they stand.

YAML 1.2 core schema (`on` and `off` are text) over PyYAML's event stream, with a composer of
our own: no recursion, no tags, no duplicate keys, aliases only within a budget. What the keys
mean is not known here.
"""

from __future__ import annotations

import math
import re
import sys
from typing import Any, Final, NamedTuple

import yaml
from yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from penstock.errors import DefinitionError, Problem
from penstock.workflow.nodes import Node, quoted
from penstock.workflow.plain import INT_MAX, INT_MIN, MAX_DEPTH

__all__ = ["MAX_ALIASED", "MAX_BYTES", "Node", "decode", "parse"]

MAX_BYTES: Final = 10 * 2**20
"""A larger file is refused before it is parsed."""

MAX_ALIASED: Final = 100_000
"""Nodes that aliases may add to a document, each counted as if it were written out."""

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where it is built in; the pure Python scanner gives the same events, slower."""

_CONSTANTS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMERIC: Final = frozenset("+-.0123456789")
_INT: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_UNPRINTABLE: Final = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LONGEST_INT: Final = 30
"""Characters; 64 bits need at most 22, and int() refuses thousands of digits with an exception."""

_SYNTAX_HINTS: Final = {
    "mapping values are not allowed": "quote a value that contains ': ', and check the indentation",
    "did not find expected key": "check the indentation and the quotes",
    "could not find expected ':'": "a key needs ': ' after it; check the indentation",
    "did not find expected '-' indicator": "items of a list start with '- ', all at the same indentation",
    "did not find expected ',' or ']'": "close the list with ']'",
    "did not find expected ',' or '}'": "close the map with '}'",
    "did not find expected node content": "is a bracket left open?",
    "found unexpected end of stream": "is a quote left open?",
    "found unknown escape character": "use single quotes, or write the backslash twice",
}


class _Anchored(NamedTuple):
    node: Node
    size: int
    height: int


class _Frame:
    """A map or list whose end has not been seen yet."""

    __slots__ = ("anchor", "before", "height", "key", "keys", "node")

    def __init__(self, node: Node, anchor: str | None, before: int) -> None:
        self.node = node
        self.keys = {} if node.keys is None else node.keys
        self.anchor = anchor
        self.before = before
        """Nodes counted when it opened, to know its size when it closes."""
        self.height = 1
        self.key: str | None = None
        """In a map: the key whose value comes next."""


def decode(data: bytes, file: str = "") -> str:
    """The text of a file's bytes. Raises DefinitionError when they are too many, or not UTF-8."""
    if len(data) > MAX_BYTES:
        raise DefinitionError([_too_large(file)])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DefinitionError(
            [Problem("not UTF-8 text", "save the file as UTF-8", file=file, line=line)]
        ) from None


def parse(text: str, file: str = "") -> Node:
    """The one document in `text`. Raises DefinitionError with everything that is wrong with it as YAML."""
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        raise DefinitionError([_too_large(file)])
    try:
        return _Composer(text, file).document()
    except yaml.MarkedYAMLError as error:
        raise DefinitionError([_syntax_problem(error, text, file)]) from None
    except (yaml.reader.ReaderError, UnicodeEncodeError):
        raise DefinitionError([_character_problem(text, file)]) from None


class _Composer:
    """Events to nodes, one pass. Stops at the first thing after which the rest cannot be trusted."""

    def __init__(self, text: str, file: str) -> None:
        self._events = _LOADER(text)
        self._file = file
        self._frames: list[_Frame] = []
        self._roots: list[Node] = []
        self._anchors: dict[str, _Anchored] = {}
        self._count = 0
        self._aliased = 0
        self._problems: list[Problem] = []

    def document(self) -> Node:
        get_event = self._events.get_event
        while True:
            event = get_event()
            kind = type(event)
            if kind is ScalarEvent:
                self._scalar(event)
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                self._open(event)
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                self._close()
            elif kind is AliasEvent:
                self._alias(event)
            elif kind is DocumentStartEvent and self._roots:
                raise self._stop(
                    event, "a second document starts here", "one workflow per file: remove '---'"
                )
            elif kind is StreamEndEvent:
                return self._finish()

    def _finish(self) -> Node:
        if self._problems:
            raise DefinitionError(self._problems)
        if not self._roots:
            raise DefinitionError(
                [
                    Problem(
                        "the file is empty",
                        "start with 'name:' and 'steps:'",
                        file=self._file,
                        line=1,
                        column=1,
                    )
                ]
            )
        return self._roots[0]

    def _scalar(self, event: Any) -> None:
        frame = self._frames[-1] if self._frames else None
        if event.tag is not None:
            self._refuse_tag(event)
        if frame is not None and frame.node.kind == "map" and frame.key is None:
            self._key(frame, event)
            return
        mark = event.start_mark
        value = self._resolve(event) if event.implicit[0] else event.value
        node = Node("scalar", value, mark.line + 1, mark.column + 1)
        self._count += 1
        self._add(node, 0)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(node, 1, 0)

    def _key(self, frame: _Frame, event: Any) -> None:
        key = sys.intern(event.value)
        if event.implicit[0]:
            self._check_plain_key(event)
        keys = frame.keys
        if key in keys:
            self._complain(event, f"duplicate key {quoted(key)}", f"it is already on line {keys[key][0]}")
        else:
            keys[key] = (event.start_mark.line + 1, event.start_mark.column + 1)
        frame.key = key

    def _check_plain_key(self, event: ScalarEvent) -> None:
        text = event.value
        if text == "<<":
            hint = "write the keys out, or use a template"
            self._complain(event, "merge keys ('<<') are not part of YAML 1.2", hint)
        elif text in _CONSTANTS or (text[0] in _NUMERIC and not isinstance(_number(text), str)):
            self._complain(event, f"the key {text or '(empty)'} is not text", f'quote it: "{text}"')

    def _open(self, event: Any) -> None:
        self._no_key(event)
        if event.tag is not None:
            self._refuse_tag(event)
        if len(self._frames) >= MAX_DEPTH:
            raise self._too_deep(event)
        mark = event.start_mark
        line, column = mark.line + 1, mark.column + 1
        node = (
            Node("map", {}, line, column, {})
            if type(event) is MappingStartEvent
            else Node("list", [], line, column)
        )
        self._frames.append(_Frame(node, event.anchor, self._count))
        self._count += 1

    def _close(self) -> None:
        frame = self._frames.pop()
        self._add(frame.node, frame.height)
        if frame.anchor is not None:
            # Known only from here on: an alias to a value that is still open would contain itself.
            self._anchors[frame.anchor] = _Anchored(frame.node, self._count - frame.before, frame.height)

    def _alias(self, event: AliasEvent) -> None:
        self._no_key(event)
        name = str(event.anchor)
        found = self._anchors.get(name)
        if any(frame.anchor == name for frame in self._frames):
            message = f"the alias *{name} is inside the value that it names"
            raise self._stop(event, message, "a value cannot contain itself")
        if found is None:
            message = f"the alias *{name} names nothing above it"
            raise self._stop(event, message, f"mark the value with &{name} first")
        self._count += found.size
        self._aliased += found.size
        if self._aliased > MAX_ALIASED:
            message = f"aliases expand to more than {MAX_ALIASED:,} values"
            raise self._stop(event, message, "write the values out, or use a template")
        if len(self._frames) + found.height > MAX_DEPTH:
            raise self._too_deep(event)
        self._add(found.node, found.height)

    def _add(self, node: Node, height: int) -> None:
        if not self._frames:
            self._roots.append(node)
            return
        frame = self._frames[-1]
        if height >= frame.height:
            frame.height = height + 1
        if frame.node.kind == "list":
            frame.node.value.append(node)
        else:
            frame.node.value[frame.key] = node
            frame.key = None

    def _resolve(self, event: ScalarEvent) -> Any:
        text: str = event.value
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text[0] not in _NUMERIC:
            return text
        value = _number(text)
        if type(value) is int and not INT_MIN <= value <= INT_MAX:
            self._complain(event, "the whole number does not fit into 64 bits", "quote it to keep it as text")
        elif type(value) is float and not math.isfinite(value):
            message = f"{text[:40]} is not a number that JSON can carry"
            self._complain(event, message, "quote it to keep it as text")
        return value

    def _no_key(self, event: NodeEvent) -> None:
        frame = self._frames[-1] if self._frames else None
        if frame is not None and frame.node.kind == "map" and frame.key is None:
            raise self._stop(event, "a key must be plain text", "quote a key that starts with [, { or *")

    def _refuse_tag(self, event: CollectionStartEvent | ScalarEvent) -> None:
        hint = "remove the tag; quotes make a value text"
        tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
        self._complain(event, f"tags such as {tag} are not allowed", hint)

    def _too_deep(self, event: NodeEvent) -> DefinitionError:
        message = f"nested more than {MAX_DEPTH} levels deep"
        return self._stop(event, message, "move inner parts into steps of their own")

    def _complain(self, event: Any, message: str, hint: str) -> None:
        mark = event.start_mark
        self._problems.append(
            Problem(message, hint, file=self._file, line=mark.line + 1, column=mark.column + 1)
        )

    def _stop(self, event: Any, message: str, hint: str) -> DefinitionError:
        self._complain(event, message, hint)
        return DefinitionError(self._problems)


def _number(text: str) -> int | float | str:
    """The number that a plain scalar is in the core schema, or the text itself."""
    if _INT.fullmatch(text):
        digits = text.lstrip("+-")
        if len(digits.lstrip("0")) > _LONGEST_INT:
            return INT_MAX + 1
        return int(text, 0) if digits[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return math.inf if _NOT_FINITE.fullmatch(text) else text


def _too_large(file: str) -> Problem:
    limit = f"the file is larger than {MAX_BYTES // 2**20} MB"
    return Problem(limit, "use templates, or move parts into child workflows", file=file)


def _row(text: str, line: int) -> str:
    return "".join(text.splitlines()[line - 1 : line])


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    message = error.problem or "not valid YAML"
    hint = next((hint for start, hint in _SYNTAX_HINTS.items() if message.startswith(start)), "")
    if "cannot start any token" in message:
        character = _row(text, line)[column - 1 : column]
        if character == "\t":
            message, hint = "a tab cannot indent YAML", "use spaces"
        else:
            message, hint = f"a value cannot start with {character!r}", "quote the value"
    elif "'}'" in message and "${" in _row(text, line):
        hint = 'quote an expression inside braces: {path: "${ … }"}'
    elif error.context_mark and error.context and error.context_mark.line + 1 < line:
        message = f"{error.context} that starts on line {error.context_mark.line + 1}, {message}"
    return Problem(f"not valid YAML: {message}", hint, file=file, line=line, column=column)


def _character_problem(text: str, file: str) -> Problem:
    found = _UNPRINTABLE.search(text)
    position = found.start() if found else 0
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    message = f"the character U+{ord(text[position]):04X} is not allowed"
    hint = "a workflow file is plain text, saved as UTF-8"
    return Problem(message, hint, file=file, line=line, column=column)
