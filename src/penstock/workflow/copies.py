"""One copy of a template's steps: its variables and references put in place.

Works on the text of expressions, token by token, and knows CEL only as far as that takes:
what is a string, a name, a `${ … }`. The rules are in `templates`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from penstock.workflow.nodes import Node
from penstock.workflow.problems import Problems
from penstock.workflow.syntax import COMMENT, STRING

Scalar = str | int | float | bool
Parts = tuple[str, ...]
"""The values of a copy's variables, as they stand in ids."""

_TOKEN: Final = re.compile(
    rf"(?P<text>{STRING}|{COMMENT})"
    r"|(?<![\w.])(?P<root>steps|previous)\s*"
    r"""(?:\.\s*(?P<name>[A-Za-z_]\w*)|\[\s*(?P<quote>['"])(?P<quoted>[A-Za-z_]\w*)(?P=quote)\s*\])"""
    r"(?:\s*\[(?P<index>[^\[\]]*)\])?"
    r"|(?<![\w.])(?P<word>[A-Za-z_]\w*)"
    r"|(?P<brace>[{}])"
    r"|\w+|[^\w{}'\"]+|.",
    re.ASCII | re.DOTALL,
)
_TAIL: Final = re.compile(r"(?:\.[A-Za-z_]\w*(?!\w|\s*\()|\[[^\[\]]*\])*", re.ASCII)
"""Fields and indices behind a reference; a method call is not part of it."""
_HAS_NULL: Final = re.compile(r"\bhas\(\s*null\s*\)")
_SHIFTED: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:([+-])\s*(\d{1,15}))?\s*", re.ASCII)
_CONSTANT: Final = re.compile(r"""\s*(?:(-?\d+)|'([^']*)'|"([^"]*)")\s*""", re.ASCII)
_NAME: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\[([^\[\]]*)\])?\s*", re.ASCII)

_Mode = Literal["keys", "text", "expr", "name", "needs"]
_MODES: Final[Mapping[str, _Mode]] = {
    **dict.fromkeys(("when", "for_each", "expr", "if", "on"), "expr"),
    **dict.fromkeys(
        ("target", "loop_target", "next", "detour", "valid_targets", "branches", "after"), "name"
    ),
    **dict.fromkeys(("with", "set", "retry", "output", "outputs"), "text"),
    "needs": "needs",
}
"""How the texts under a key are to be understood; under any other key, as its own keys say."""


class Steps:
    """Which step each reference by index means, and which references have met one."""

    def __init__(self, written: set[str], problems: Problems) -> None:
        self._written = written
        self._copies: dict[tuple[str, Parts], str] = {}
        self._names: set[str] = set()
        self._met: set[tuple[int, str]] = set()
        self._missed: dict[tuple[int, str], Node] = {}
        self._problems = problems

    def add(self, name: str, parts: Parts, step: str) -> None:
        self._copies[name, parts] = step
        self._names.add(name)

    def knows(self, name: str) -> bool:
        return name in self._names

    def find(self, name: str, parts: Parts) -> str | None:
        written = "_".join((name, *parts))
        return self._copies.get((name, parts)) or (written if written in self._written else None)

    def met(self, node: Node, reference: str, *, found: bool) -> None:
        """Remember whether a reference that may lead beyond the last copy led anywhere."""
        if found:
            self._met.add((id(node), reference))
        else:
            self._missed.setdefault((id(node), reference), node)

    def complain(self) -> None:
        """About references that lead nowhere in every copy."""
        for (key, reference), node in self._missed.items():
            if (key, reference) not in self._met:
                self._problems.add(node, f"{reference} has no step in any copy", "check the index")


class _UnreadableError(Exception):
    """An index that is none of the forms allowed."""


class Copy:
    """What changes in one copy. With no variables: the rest of the file, which may refer to copies."""

    def __init__(
        self, variables: Mapping[str, Scalar], names: Mapping[str, str], steps: Steps, problems: Problems
    ) -> None:
        self._variables = variables
        self._names = names
        self._steps = steps
        self._problems = problems

    def node(self, node: Node, key: str = "") -> Node:
        """The node with every variable and reference below it in place."""
        box: list[Any] = [None]
        jobs: list[tuple[Any, str | int, Node, _Mode]] = [(box, 0, node, _MODES.get(key, "keys"))]
        while jobs:
            into, place, old, mode = jobs.pop()
            if mode == "needs":
                into[place] = self._needs(old)
            elif old.kind == "scalar":
                into[place] = self._scalar(old, mode)
            elif old.kind == "map":
                fields = dict.fromkeys(old.value)
                into[place] = Node("map", fields, old.line, old.column, old.keys)
                jobs.extend((fields, name, part, _below(mode, name)) for name, part in old.value.items())
            else:
                rows = [None] * len(old.value)
                into[place] = Node("list", rows, old.line, old.column)
                inner = "text" if mode == "expr" else mode
                jobs.extend((rows, n, part, inner) for n, part in enumerate(old.value))
        copied: Node = box[0]
        return copied

    def _needs(self, node: Node) -> Node:
        rows = node.value if node.kind == "list" else [node]
        named = [(row, self._name(row) if type(row.value) is str else row.value) for row in rows]
        kept = [
            row if name == row.value else _scalar_like(row, name) for row, name in named if name is not None
        ]
        return Node("list", kept, node.line, node.column)

    def _scalar(self, node: Node, mode: _Mode) -> Node:
        if type(node.value) is not str:
            return node
        if mode == "name":
            value: Any = self._name(node)
            if value is None:
                message = f"{node.value} is beyond the last copy"
                self._problems.add(node, message, "a route needs a target in every copy")
        elif mode == "expr" and "${" not in node.value:
            value = self._expression(node.value, node)
        else:
            value = self._interpolated(node)
        return node if value is None or value == node.value else _scalar_like(node, value)

    def _name(self, node: Node) -> str | None:
        """The step that a need or a target names; None beyond the last copy."""
        text = str(self._interpolated(node))
        match = _NAME.fullmatch(text)
        if match is None:
            return text
        name, index = match.groups()
        if index is None:
            return self._names.get(name, text)
        return self._reference(name, index, node) if self._steps.knows(name) else text

    def _interpolated(self, node: Node) -> Any:
        """The text with each `${ … }` in it rewritten; the bare value when it is nothing but a variable."""
        text: str = node.value
        done: list[str] = []
        start = 0
        while (opening := text.find("${", start)) >= 0:
            if text[opening - 1 : opening] == "$":
                done.append(text[start : opening + 2])
                start = opening + 2
                continue
            closing = _closing(text, opening + 2)
            if closing < 0:
                break
            body = text[opening + 2 : closing]
            value = self._value(body)
            if value is not None and opening == 0 and closing == len(text) - 1:
                return value
            new = f"${{{self._expression(body, node)}}}" if value is None else in_text(value)
            done.append(text[start:opening] + new)
            start = closing + 1
        return "".join(done) + text[start:] if done else text

    def _expression(self, text: str, node: Node) -> str:
        done: list[str] = []
        position, nulls = 0, False
        while match := _TOKEN.match(text, position):
            position = match.end()
            token = self._token(match, node)
            if token is None:
                token, nulls = "null", True
                tail = _TAIL.match(text, position)
                position = tail.end() if tail else position
            done.append(token)
        new = "".join(done)
        return _HAS_NULL.sub("false", new) if nulls else new

    def _token(self, match: re.Match[str], node: Node) -> str | None:
        root, word = match["root"], match["word"]
        if word is not None and word in self._variables:
            return _literal(self._variables[word])
        if root is None:
            return match[0]
        name, index = match["name"] or match["quoted"], match["index"]
        if index is None:
            return f"{root}.{self._names[name]}" if name in self._names else match[0]
        if not self._steps.knows(name):
            return match[0]
        step = self._reference(name, index, node)
        return None if step is None else f"{root}.{step}"

    def _reference(self, name: str, index: str, node: Node) -> str | None:
        reference = f"{name}[{index}]"
        try:
            parts, shifted = self._index(index)
        except _UnreadableError:
            hint = "write a variable (n, n-1, n+1), a number or a quoted text"
            self._problems.add(node, f"the index of {reference} cannot be read", hint)
            return name
        step = self._steps.find(name, parts)
        if shifted:
            self._steps.met(node, reference, found=step is not None)
        elif step is None:
            self._problems.add(
                node, f"{reference} has no step", "give a value of each variable, in their order"
            )
            return name
        return step

    def _index(self, index: str) -> tuple[Parts, bool]:
        parts: list[str] = []
        shifted = False
        for piece in index.split(","):
            constant = _CONSTANT.fullmatch(piece)
            if constant:
                parts.append(part_of(next(group for group in constant.groups() if group is not None)))
                continue
            value = self._value(piece)
            if value is None:
                raise _UnreadableError
            shifted = shifted or "+" in piece or "-" in piece
            parts.append(part_of(value))
        return tuple(parts), shifted

    def _value(self, text: str) -> Scalar | None:
        """The value of `n`, `n-1` or `n+1`; None when the text is something else."""
        match = _SHIFTED.fullmatch(text)
        value = self._variables.get(match[1]) if match else None
        if match is None or match[2] is None:
            return value
        if type(value) is not int:
            return None
        return value + int(match[2] + match[3])


def part_of(value: Scalar) -> str:
    """A value as it stands in an id."""
    return re.sub(r"\W", "_", in_text(value), flags=re.ASCII)


def in_text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _literal(value: Scalar) -> str:
    """A value as CEL. Python's escapes of a text are CEL's too."""
    if isinstance(value, str):
        return repr(value)
    text = in_text(value)
    return f"({text})" if text.startswith("-") else text


def _below(mode: _Mode, key: str) -> _Mode:
    return _MODES.get(key, "keys") if mode == "keys" else mode


def _scalar_like(node: Node, value: Any) -> Node:
    return Node("scalar", value, node.line, node.column)


def _closing(text: str, start: int) -> int:
    """Where the `}` is that closes a `${`; -1 when there is none."""
    depth = 1
    for match in _TOKEN.finditer(text, start):
        if match["brace"]:
            depth += 1 if match["brace"] == "{" else -1
            if depth == 0:
                return match.start()
    return -1
