"""What a CEL text reads, found without evaluating it.

This module knows CEL as text and as a parsed tree (the `cel.expr.ParsedExpr` message that a
parser gives out). It knows nothing of workflows, of the names they offer, or of the library
that evaluates: `expr` brings those together. Everything here is iterative.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, Literal

from msgspec import Struct

Path = tuple[str, ...]
"""`("steps", "x", "output", "files")` stands for `steps.x.output.files`."""

Use = Literal["value", "tested", "coalesced"]
"""How a path is read: as a value, to ask what it contains (`has`, `.?`), or as an argument of `coalesce`."""

STRING = (
    r"(?:[bB]?[rR]|[rR][bB])(?:\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|\"[^\"\n]*\"|'[^'\n]*')"
    r"|[bB]?(?:\"\"\"(?:\\[\s\S]|[^\\])*?\"\"\"|'''(?:\\[\s\S]|[^\\])*?'''"
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
)
"""A string literal: raw or not, of text or of bytes, in one or three quotes."""

COMMENT = r"//[^\n]*"

_NAME = r"(?!(?:true|false|null|in)\b)[A-Za-z_]\w*"
_STEP = (
    rf"\s*\.\s*(?:({_NAME})|`([^`\n]+)`)"
    r"|\s*\[\s*(?:'([^'\\\n]*)'|\"([^\"\\\n]*)\")\s*\]"
)
_RESERVED = r"_(?:v|[a-z]\d\d)"
"""Names that rewriting puts into a text. An author cannot use them."""

# Patterns are compiled where they are used, and remembered by `re`: most programs need none of them.


class Read(Struct, frozen=True):
    """One place in a text where a path below a root is read."""

    path: Path
    use: Use
    start: int
    """Offset of the first character."""
    end: int
    macros: int = 0
    """How many `map` and `filter` are applied to it, one after the other, before anything else is."""


class Span(Struct, frozen=True):
    """A part of a text: from the offset `start` up to `end`."""

    start: int
    end: int


class Tree(Struct, frozen=True):
    """What the parsed form tells about a text."""

    reads: tuple[Read, ...]
    """In order of appearance."""
    names: frozenset[str]
    """Every identifier written in it, bound by a macro or free."""
    functions: frozenset[str]
    json_only: bool
    """Nothing in it can make a value that JSON does not know, such as a timestamp."""


def plain_path(text: str) -> Path | None:
    """The path that the whole text is, or None when it is anything more than a path."""
    root = re.compile(rf"\s*({_NAME})", re.ASCII).match(text)
    if root is None:
        return None
    steps, end = _steps(text, root.end(), None)
    return (root[1], *steps) if not text[end:].strip() else None


def path_text(path: Sequence[str]) -> str:
    """A path as an author would write it."""
    rest = (f".{part}" if re.fullmatch(_NAME, part, re.ASCII) else f"[{part!r}]" for part in path[1:])
    return path[0] + "".join(rest)


def is_reserved(name: str) -> bool:
    return re.fullmatch(_RESERVED, name) is not None


def analyse(parsed: bytes, text: str, roots: Collection[str]) -> Tree:
    """Find the free paths below `roots` in the serialized parse of `text`."""
    message = _last(_fields(parsed), 2, b"")
    expression = _last(_fields(message), 2, b"")
    offsets = _offsets(_last(_fields(message), 3, b""))
    walk = _Walk(text, roots, offsets)
    walk.run(expression)
    reads = (walk.reads[start] for start in sorted(walk.reads))
    json_only = not walk.exotic and not walk.functions & _EXOTIC
    return Tree(tuple(reads), frozenset(walk.names), frozenset(walk.functions), json_only)


_EXOTIC: Final = frozenset(
    (
        *("uint", "bytes", "timestamp", "duration", "type", "decode", "base64.decode"),
        *("of", "none", "ofNonZeroValue", "optional.of", "optional.none", "_?._", "_[?_]"),
    )
)
"""Functions whose results are not JSON."""

_MACRO = r"\s*\.\s*(?:map|filter)\s*\("
_BRACKETS = rf"{STRING}|{COMMENT}|[(){{}}\[\]]"


def list_macros(text: str, read: Read) -> Span | None:
    """The part of a text that is `path.filter(…).map(…)`, when a list is built from a read path."""
    end = read.end
    for _ in range(read.macros):
        macro = re.compile(_MACRO).match(text, end)
        if macro is None:
            break
        end = _closing(text, macro.end())
    return Span(read.start, end) if end > read.end else None


def _closing(text: str, at: int) -> int:
    """The offset behind the bracket that closes one opened before `at`."""
    depth = 1
    for found in re.compile(_BRACKETS).finditer(text, at):
        if found[0] in ("(", "[", "{"):
            depth += 1
        elif found[0] in (")", "]", "}"):
            depth -= 1
            if not depth:
                return found.end()
    return len(text)


def substitute(text: str, parts: Iterable[tuple[Read | Span, str]], within: Span) -> str:
    """The text within a span, with a name in the place of each part. Columns and lines stay the same."""
    out: list[str] = []
    done = within.start
    for part, name in parts:
        rest = text[part.start + len(name) : part.end]
        out += (text[done : part.start], name, re.sub(r"[^\n]", " ", rest))
        done = part.end
    out.append(text[done : within.end])
    return "".join(out)


_COALESCE = rf"{STRING}|{COMMENT}|(?P<call>\bcoalesce\s*\()|[(){{}}\[\],]"


def expand_coalesce(text: str) -> str:
    """Write `coalesce(a, b)` out in CEL's own terms, so that it is lazy and keeps every type.

    `text` must have passed the checker: then each `coalesce(` outside a literal is a call of it.
    """
    arguments: list[int] = []

    def spell(found: re.Match[str]) -> str:
        mark = found[0]
        if found["call"]:
            arguments.append(1)
            return "cel.bind(_v, "
        if mark in "([{":
            arguments.append(0)
        elif mark in ")]}":
            if count := arguments.pop():
                return ", _v != null ? _v : null" + ")" * count
        elif mark == "," and arguments and arguments[-1]:
            arguments[-1] += 1
            return ", _v != null ? _v : cel.bind(_v, "
        return mark

    return re.sub(_COALESCE, spell, text)


def _steps(text: str, at: int, limit: Sequence[str] | None) -> tuple[list[str], int]:
    """The `.name` and `['name']` steps written at an offset, as far as they agree with `limit`."""
    steps: list[str] = []
    step_at = re.compile(_STEP, re.ASCII).match
    while limit is None or len(steps) < len(limit):
        found = step_at(text, at)
        if found is None:
            break
        step = next(part for part in found.groups() if part is not None)
        if limit is not None and step != limit[len(steps)]:
            break
        steps.append(step)
        at = found.end()
    return steps, at


# -- the parsed form -------------------------------------------------------------------------------

_CONST, _IDENT, _SELECT, _CALL, _LIST, _STRUCT, _COMPREHENSION = range(3, 10)
"""Field numbers of `cel.expr.Expr`."""

_Field = tuple[int, int | bytes]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7


def _fields(message: bytes) -> Iterator[_Field]:
    """The fields of a protobuf message; a fixed-size number comes as its bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            number, at = _varint(message, at)
            yield tag >> 3, number
            continue
        if kind == 2:
            size, at = _varint(message, at)
        else:
            size = 8 if kind == 1 else 4
        yield tag >> 3, message[at : at + size]
        at += size


def _last(fields: Iterator[_Field], number: int, default: bytes) -> bytes:
    found = default
    for field, value in fields:
        if field == number and isinstance(value, bytes):
            found = value
    return found


def _offsets(source_info: bytes) -> dict[int, int]:
    """Where each node starts in the text, in characters."""
    offsets = {}
    for field, entry in _fields(source_info):
        if field == 4 and isinstance(entry, bytes):
            numbers = {key: value for key, value in _fields(entry) if isinstance(value, int)}
            offsets[numbers.get(1, 0)] = numbers.get(2, 0)
    return offsets


class _Node(Struct, frozen=True):
    """A subtree still to be visited, with what its surroundings say about it."""

    expression: bytes
    bound: frozenset[str] = frozenset()
    """Names that macros bind around it; they hide roots of the same name."""
    steps: Path = ()
    """What is selected from it, nearest first."""
    use: Use = "value"
    macros: int = 0
    """See `Read.macros`."""


class _Walk:
    """One pass over a parsed expression, with a stack of its own instead of recursion."""

    def __init__(self, text: str, roots: Collection[str], offsets: dict[int, int]) -> None:
        self.text = text
        self.roots = roots
        self.offsets = offsets
        self.reads: dict[int, Read] = {}
        self.names: set[str] = set()
        self.functions: set[str] = set()
        self.exotic = False
        """A literal was met that JSON does not know."""
        self._todo: list[_Node] = []

    def run(self, expression: bytes) -> None:
        visitors = {
            _SELECT: self._select,
            _CALL: self._call,
            _LIST: self._list,
            _STRUCT: self._struct,
            _COMPREHENSION: self._comprehension,
        }
        self._todo.append(_Node(expression))
        while self._todo:
            node = self._todo.pop()
            number = 0
            for field, value in _fields(node.expression):
                if isinstance(value, int):
                    number = value
                elif field == _IDENT:
                    self._ident(node, value, number)
                elif field == _CONST:
                    self.exotic |= any(kind in (4, 7) for kind, _ in _fields(value))
                elif field in visitors:
                    visitors[field](node, value)

    def _ident(self, node: _Node, message: bytes, number: int) -> None:
        name = _last(_fields(message), 1, b"").decode()
        self.names.add(name)
        if name not in self.roots or name in node.bound:
            return
        start = self.offsets.get(number, 0)
        steps, end = _steps(self.text, start + len(name), node.steps)
        # Parentheses or a comment within the chain end the path early: reading more is still right.
        macros = node.macros if len(steps) == len(node.steps) else 0
        self.reads.setdefault(start, Read((name, *steps), node.use, start, end, macros))

    def _select(self, node: _Node, message: bytes) -> None:
        operand, field, tested = b"", "", False
        for key, value in _fields(message):
            if key == 1 and isinstance(value, bytes):
                operand = value
            elif key == 2 and isinstance(value, bytes):
                field = value.decode()
            elif key == 3:
                tested = bool(value)
        if tested:
            self._todo.append(_Node(operand, node.bound, (), "tested"))
        else:
            self._todo.append(_Node(operand, node.bound, (field, *node.steps), node.use, node.macros))

    def _call(self, node: _Node, message: bytes) -> None:
        function, target, arguments = "", b"", []
        for key, value in _fields(message):
            if key == 1 and isinstance(value, bytes):
                target = value
            elif key == 2 and isinstance(value, bytes):
                function = value.decode()
            elif isinstance(value, bytes):
                arguments.append(value)
        self.functions.add(function)
        if function == "_[_]" and (step := _constant(arguments[1])) is not None:
            self._todo.append(_Node(arguments[0], node.bound, (step, *node.steps), node.use, node.macros))
        elif function in ("_?._", "_[?_]"):
            self._todo.append(_Node(arguments[0], node.bound, (), "tested"))
            self._visit(node.bound, arguments[1:])
        elif function == "coalesce" and not target:
            self._visit(node.bound, arguments, "coalesced")
        else:
            self._visit(node.bound, [target, *arguments] if target else arguments)

    def _list(self, node: _Node, message: bytes) -> None:
        self._visit(node.bound, [v for key, v in _fields(message) if key == 1 and isinstance(v, bytes)])

    def _struct(self, node: _Node, message: bytes) -> None:
        entries = [v for key, v in _fields(message) if key == 2 and isinstance(v, bytes)]
        for entry in entries:
            self._visit(node.bound, [v for k, v in _fields(entry) if k in (3, 4) and isinstance(v, bytes)])

    def _comprehension(self, node: _Node, message: bytes) -> None:
        parts = {key: value for key, value in _fields(message) if isinstance(value, bytes)}
        names = {key: parts[key].decode() for key in (1, 3, 8) if key in parts}
        self.names.update(names.values())
        looping = node.bound | set(names.values())
        result = node.bound | {names.get(3, "")}
        builds = not node.bound and 8 not in names and _is_empty_list(parts.get(4, b""))
        self._todo.append(_Node(parts.get(2, b""), node.bound, macros=node.macros + 1 if builds else 0))
        for key, bound in ((4, node.bound), (5, looping), (6, looping), (7, result)):
            self._visit(bound, [parts.get(key, b"")])

    def _visit(self, bound: frozenset[str], expressions: Sequence[bytes], use: Use = "value") -> None:
        self._todo.extend(_Node(expression, bound, (), use) for expression in expressions)


def _is_empty_list(expression: bytes) -> bool:
    """Whether a comprehension starts from it to build a list, as those of `map` and `filter` do."""
    return any(field == _LIST and value == b"" for field, value in _fields(expression))


def _constant(expression: bytes) -> str | None:
    """The text of a string literal, when the node is one."""
    for field, value in _fields(expression):
        if field == _CONST and isinstance(value, bytes):
            for kind, text in _fields(value):
                if kind == 6 and isinstance(text, bytes):
                    return text.decode()
    return None
