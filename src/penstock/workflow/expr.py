"""Expressions: CEL over a run's state, behind a small interface.

The only module that knows the CEL library. It does not know where values come from (a
`Lookup` does) nor what a failure means for a step (its caller does). A runtime error is a
value, never an exception, and an expression keeps nothing between evaluations.

One CEL environment serves all expressions: each path that is read becomes a numbered
variable of it, because an environment for every expression would cost a millisecond and
150 KB each. An expression that is only a path never loads CEL.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final, Literal

from msgspec import Struct

from penstock.errors import ExpressionError
from penstock.workflow import crossing, syntax
from penstock.workflow.complaints import explain_check, explain_run
from penstock.workflow.names import ROOTS, Scope, kind_of
from penstock.workflow.spec import InputType
from penstock.workflow.syntax import Path, Read, Span, Tree, Use

__all__ = ["MISSING", "ROOTS", "Expression", "Failure", "Lookup", "Path", "Scope", "compile"]


class _Missing(enum.Enum):
    MISSING = "missing"


MISSING: Final = _Missing.MISSING
"""No such value at this path. Not null: null is a value."""

Lookup = Callable[[Path], Any]
"""Gives the JSON value at a path, or `MISSING`."""

Env = Any
Program = Any
"""The library's types. It is young and untyped: nothing outside this module should hold one."""

Expect = Literal["bool", "list", "any"]

_SLOTS: Final = 100
"""Paths that an expression may read."""

_AT_ONCE: Final = 64
"""Items that `map` and `filter` are given at a time."""


class Failure(Struct, frozen=True):
    """An expression could not be evaluated. The caller decides what follows from that."""

    message: str
    source: str


class _Slot(Struct, frozen=True):
    """A path as a variable of the environment."""

    name: str
    path: Path
    use: Use
    number: bool
    """Declared `number`: an integer given for it counts as a double, as the checker assumed."""


class _Code(Struct, frozen=True):
    """A program and the paths it reads."""

    source: str
    program: Program
    slots: tuple[_Slot, ...]

    def bind(self, lookup: Lookup, data: dict[str, Any]) -> Failure | None:
        """Look up what the program reads. What cannot be bound is left out: it may not be needed."""
        flaw = None
        for slot in self.slots:
            value = lookup(slot.path)
            if value is None:
                data[slot.name] = {} if slot.use == "tested" else None
            elif value is MISSING:
                if slot.use == "coalesced":
                    data[slot.name] = None
            elif type(value) in crossing.NEEDS_A_LOOK and (reason := crossing.flaw(value)):
                flaw = Failure(f"{syntax.path_text(slot.path)}: {reason}", self.source)
            else:
                data[slot.name] = float(value) if slot.number and type(value) is int else value
        return flaw

    def run(self, data: dict[str, Any]) -> Any:
        """Evaluate. The result may hold CEL's own types; an error is a `Failure`."""
        try:
            result = self.program.eval(data=data)
            plain = crossing.plain(result)
            if type(plain) is not str or result.type().name() != "ERROR":
                return plain
        except (RuntimeError, TypeError) as error:
            plain = str(error)
        paths = {slot.name: syntax.path_text(slot.path) for slot in self.slots}
        return Failure(explain_run(plain, paths), self.source)


class _Listing(Struct, frozen=True):
    """A `path.filter(…).map(…)`, evaluated on a few items at a time.

    The library copies the list built so far for every item: ten thousand at once would take
    seconds and a gigabyte, and more than that it refuses.
    """

    name: str
    """The variable that the rest of the expression sees."""
    code: _Code
    """Its first slot is the list."""

    def run(self, lookup: Lookup) -> Any:
        data: dict[str, Any] = {}
        flaw = self.code.bind(lookup, data)
        head = self.code.slots[0].name
        items = data.get(head)
        if type(items) is dict:
            items = data[head] = sorted(items)  # CEL would go through the keys, in an order of its own
        if type(items) is not list or len(items) <= _AT_ONCE:
            return _first(self.code.run(data), flaw)
        built: list[Any] = []
        for start in range(0, len(items), _AT_ONCE):
            data[head] = items[start : start + _AT_ONCE]
            part = self.code.run(data)
            if isinstance(part, Failure):
                return _first(part, flaw)
            built += part
        return built


def _first(result: Any, flaw: Failure | None) -> Any:
    """A failure's cause rather than the failure, where a cause is known."""
    return flaw if flaw is not None and isinstance(result, Failure) else result


class Expression(Struct, frozen=True, eq=False):
    """A compiled expression. Shared freely: it holds no values."""

    source: str
    reads: tuple[Path, ...]
    """Every path it reads, in order of appearance."""
    path: Path | None = None
    """Set when the whole expression is one plain path."""
    _code: _Code | None = None
    """None when it is a path, or one listing and nothing else."""
    _listings: tuple[_Listing, ...] = ()

    def evaluate(self, lookup: Lookup) -> Any:
        """A JSON value, or a `Failure`. A plain path gives out the very value looked up: do not change it."""
        if self.path is not None:
            value = lookup(self.path)
            if value is MISSING:
                return Failure(f"{syntax.path_text(self.path)}: no such value", self.source)
            return value
        result = self._listings[0].run(lookup) if self._code is None else self._run(self._code, lookup)
        if type(result) in crossing.JSON_SCALARS or isinstance(result, Failure):
            return result
        try:
            return crossing.to_json(result)
        except ValueError as error:
            return Failure(str(error), self.source)

    def _run(self, code: _Code, lookup: Lookup) -> Any:
        data: dict[str, Any] = {}
        flaw = code.bind(lookup, data)
        for listing in self._listings:
            built = listing.run(lookup)
            if isinstance(built, Failure):
                flaw = built
            else:
                data[listing.name] = built
        return _first(code.run(data), flaw)


def compile(source: str, scope: Scope, expect: Expect = "any") -> Expression:
    """Compile an expression for a place. Raises `ExpressionError` for bad syntax, names or types."""
    path = syntax.plain_path(source)
    if path is not None:
        kind = kind_of(path, scope, column=1 + len(source) - len(source.lstrip()))
        _check_result(_KIND_NAMES[kind], expect)
        return Expression(source, (path,), path)
    try:
        tree = _tree(source)
        kinds = tuple(kind_of(read.path, scope, column=read.start + 1) for read in tree.reads)
        expression, result = _compiled(source, kinds)
    except RuntimeError as error:
        raise explain_check(str(error), source, scope) from None
    _check_result(result, expect)
    return expression


@lru_cache(maxsize=4096)
def _tree(source: str) -> Tree:
    if "\0" in source:
        message = "an expression cannot hold a NUL character"
        raise ExpressionError(message)
    parsed = _evaluator().compile(source, disable_check=True).serialize()
    tree = syntax.analyse(parsed, source, ROOTS)
    if reasons := _unfit(tree):
        raise ExpressionError(*reasons)
    return tree


def _unfit(tree: Tree) -> tuple[str, ...]:
    """Why a text cannot be used although it is CEL: a message, and perhaps a hint."""
    if reserved := next(filter(syntax.is_reserved, tree.names), ""):
        return f"the name {reserved} is reserved", "choose a name without a leading _"
    if len(tree.reads) > _SLOTS:
        return f"the expression reads more than {_SLOTS} values", "split it over steps"
    return tuple(reason for function, reason in _REFUSED.items() if function in tree.functions)[:1]


@lru_cache(maxsize=4096)
def _compiled(source: str, kinds: tuple[InputType, ...]) -> tuple[Expression, str]:
    """The expression and its static type. Of a scope they depend only on the kinds of what is read."""
    tree = _tree(source)
    whole = Span(0, len(source))
    typed = (
        (read, f"_{_LETTERS[kind]}{n:02}")
        for n, (read, kind) in enumerate(zip(tree.reads, kinds, strict=True))
    )
    checked = _checker().compile(syntax.substitute(source, typed, whole))
    reads = tuple(dict.fromkeys(read.path for read in tree.reads))
    code, listings = _Assembly(source, tree, kinds).build(whole)
    return Expression(source, reads, None, code, listings), checked.return_type().name()


class _Assembly:
    """Turns a checked text into programs: one for each listing, one for what is around them."""

    def __init__(self, source: str, tree: Tree, kinds: Sequence[InputType]) -> None:
        self._source = source
        self._tree = tree
        self._kinds = dict(zip(tree.reads, kinds, strict=True))

    def build(self, whole: Span) -> tuple[_Code | None, tuple[_Listing, ...]]:
        spans = self._spans()
        listings = tuple(_Listing(f"_h{n:02}", self._code(span, [])) for n, span in enumerate(spans))
        if len(spans) == 1 and self._is_all(spans[0]):
            return None, listings
        inner = list(zip(spans, (listing.name for listing in listings), strict=True))
        return self._code(whole, inner), listings

    def _spans(self) -> list[Span]:
        found = [syntax.list_macros(self._source, read) for read in self._tree.reads if read.macros]
        spans = [span for span in found if span is not None]
        # A listing's result passes through Python: fine for JSON, and anyway at the very end.
        return spans if self._tree.json_only or (len(spans) == 1 and self._is_all(spans[0])) else []

    def _is_all(self, span: Span) -> bool:
        return not (self._source[: span.start] + self._source[span.end :]).strip()

    def _code(self, span: Span, inner: list[tuple[Span, str]]) -> _Code:
        """The program of a span, in which the inner ones are already named."""
        slots: dict[tuple[Path, Use, bool], _Slot] = {}
        parts: list[tuple[Read | Span, str]] = list(inner)
        for read in self._tree.reads:
            if not _inside(read, span) or any(_inside(read, one) for one, _ in inner):
                continue
            head = read.start == span.start and bool(read.macros) and not inner
            key = (read.path, read.use, head)
            if key not in slots:
                name = f"_d{len(slots):02}"
                slots[key] = _Slot(name, read.path, read.use, self._kinds[read] == "number")
            parts.append((read, slots[key].name))
        text = syntax.substitute(self._source, sorted(parts, key=lambda part: part[0].start), span)
        if "coalesce" in self._tree.functions:
            text = syntax.expand_coalesce(text)
        return _Code(self._source, plan(_evaluator(), text), tuple(slots.values()))


def _inside(part: Read | Span, span: Span) -> bool:
    return span.start <= part.start and part.end <= span.end


def _check_result(name: str, expect: Expect) -> None:
    """Refuse a static type that can never be what is needed here."""
    if name.startswith("optional_type"):
        message = "the result is optional"
        raise ExpressionError(message, "end the expression with .orValue(…)")
    wanted = {"bool": "BOOL", "list": "LIST", "any": ""}[expect]
    if name != "DYN" and not name.startswith(wanted):
        needed = "true or false" if expect == "bool" else "a list"
        message = f"{needed} is needed here, and this gives {_SPOKEN.get(name, name.lower())}"
        raise ExpressionError(message)


# -- the library -----------------------------------------------------------------------------------

_EXTENSIONS: Final = (
    "bindings", "encoders", "lists", "math", "optional", "sets", "strings", "two-var-comprehensions",
)  # fmt: skip

_REFUSED: Final[Mapping[str, str]] = {
    "cel.@mapInsert": "transformMap() is not available: use transformList(), or a tool",
    "range": "lists.range() is not available: one number could fill the memory",
}

_COMPARISONS: Final[Mapping[str, str]] = {
    "_<_": "less", "_<=_": "less_equals", "_>_": "greater", "_>=_": "greater_equals", "_==_": "equals",
    "_!=_": "not_equals",
}  # fmt: skip

_ARGUMENTS: Final = 8
"""Of `coalesce`."""

_LETTERS: Final[Mapping[InputType, str]] = {
    "any": "d", "string": "s", "integer": "i", "number": "f", "boolean": "b", "array": "l", "object": "m",
}  # fmt: skip
"""The kind of a slot, in its name."""

_KIND_NAMES: Final[Mapping[InputType, str]] = {
    "any": "DYN", "string": "STRING", "integer": "INT", "number": "DOUBLE", "boolean": "BOOL",
    "array": "LIST", "object": "MAP",
}  # fmt: skip

_SPOKEN: Final[Mapping[str, str]] = {
    "BOOL": "true or false", "STRING": "a string", "INT": "an integer", "UINT": "an integer",
    "DOUBLE": "a number", "MAP": "an object", "LIST": "a list", "NULL": "null",
}  # fmt: skip


def _library() -> Any:
    """CEL, loaded when the first expression needs it and not before."""
    from cel_expr_python import cel  # type: ignore[import-untyped]

    return cel


def environment(variables: Mapping[str, Any], *, checking: bool = False, container: str = "") -> Env:
    """The language as Penstock offers it, with these variables.

    `checking` makes an environment for the checker alone. It declares `coalesce`, which is
    written out before evaluation, and comparisons of integers with doubles, which CEL
    evaluates but does not declare.
    """
    cel = _library()
    names = "".join(f"- name: {name}\n" for name in _EXTENSIONS)
    config = cel.NewEnvConfigFromYaml(f"extensions:\n{names}")
    extensions = [cel.CelExtension("penstock", _declarations())] if checking else []
    return cel.NewEnv(config=config, variables=variables, extensions=extensions, container=container)


def plan(evaluator: Env, text: str) -> Program:
    """What evaluates a text: checked where CEL's own checker agrees, unchecked where it is too strict."""
    try:
        return evaluator.compile(text)
    except RuntimeError:
        return evaluator.compile(text, disable_check=True)


@cache
def _evaluator() -> Env:
    cel = _library()
    return environment({f"_{letter}{n:02}": cel.Type.DYN for letter in "dh" for n in range(_SLOTS)})


@cache
def _checker() -> Env:
    cel = _library()
    types = {
        "d": cel.Type.DYN,
        "s": cel.Type("google.protobuf.StringValue"),  # the wrapper types are the ones that may be null
        "i": cel.Type("google.protobuf.Int64Value"),
        "f": cel.Type("google.protobuf.DoubleValue"),
        "b": cel.Type("google.protobuf.BoolValue"),
        "l": cel.Type.List(cel.Type.DYN),
        "m": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
    }
    slots = {f"_{letter}{n:02}": kind for letter, kind in types.items() for n in range(_SLOTS)}
    return environment(slots, checking=True)


def _declarations() -> list[Any]:
    cel = _library()
    anything, yes_or_no = cel.Type.DYN, cel.Type.BOOL
    coalesce = [cel.Overload(f"coalesce_{n}", anything, [anything] * n) for n in range(1, _ARGUMENTS + 1)]
    declared = [cel.FunctionDecl("coalesce", coalesce)]
    numbers = {"int64": cel.Type.INT, "uint64": cel.Type.UINT, "double": cel.Type.DOUBLE}
    for operator, name in _COMPARISONS.items():
        mixed = [
            cel.Overload(f"{name}_{left}_{right}", yes_or_no, [numbers[left], numbers[right]])
            for left in numbers
            for right in numbers
            if left != right
        ]
        declared.append(cel.FunctionDecl(operator, mixed))
    return declared
