"""What the source says of its classes and functions: signatures, fields, docstrings under fields.

Reads the text, so that types appear as they were written. Knows nothing of Markdown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import penstock

PACKAGE = Path(penstock.__file__).parent
WIDTH = 88
"""Characters of a signature on one line."""


class Field(NamedTuple):
    name: str
    type: str
    default: str
    about: str


class Shape(NamedTuple):
    """A class or function as its source shows it."""

    name: str
    about: str
    signature: str
    """Of a function; empty for a class."""
    fields: list[Field]
    methods: list[Shape]
    properties: list[Shape]


def shape(module: str, name: str, shown: str = "") -> Shape:
    """What `penstock.MODULE` says of `name`."""
    found = [node for node in parsed(module).body if _name(node) == name]
    return _shape(found[-1], shown or name)  # the last of several overloads is the function itself


@cache
def parsed(module: str) -> ast.Module:
    """`run.events` as a tree."""
    file = PACKAGE / f"{module.replace('.', '/')}.py"
    return ast.parse(file.read_text(encoding="utf-8"))


def mentioned(*modules: str) -> set[str]:
    """Every plain name that these modules mention: the classes they make are among them."""
    trees = (ast.walk(parsed(module)) for module in modules)
    return {node.id for tree in trees for node in tree if isinstance(node, ast.Name)}


def attributes(module: str, name: str) -> list[str]:
    """What a class gives its instances in `__init__`."""
    found = next(node for node in parsed(module).body if _name(node) == name)
    stores = (node for node in ast.walk(found) if isinstance(node, ast.Attribute))
    return [node.attr for node in stores if isinstance(node.ctx, ast.Store)]


def _shape(node: ast.AST, shown: str) -> Shape:
    if isinstance(node, ast.ClassDef):
        functions = [part for part in node.body if _public(part)]
        methods = [_shape(part, _name(part)) for part in functions if not _is_property(part)]
        properties = [_shape(part, _name(part)) for part in functions if _is_property(part)]
        about = ast.get_docstring(node) or ""
        return Shape(shown, about, _constructor(node), _fields(node), methods, properties)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        word = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
        signature = word + shown + _signature(node)
        return Shape(shown, ast.get_docstring(node) or "", signature, [], [], [])
    raise TypeError(shown)


def _constructor(node: ast.ClassDef) -> str:
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            return node.name + _signature(part)
    return ""


def _name(node: ast.AST) -> str:
    return str(getattr(node, "name", ""))


def _public(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")


def _is_property(node: ast.AST) -> bool:
    marks = getattr(node, "decorator_list", [])
    return any(isinstance(mark, ast.Name) and mark.id == "property" for mark in marks)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The parameters as written, without `self`; over several lines when they are many."""
    parts = [part for part in _split(ast.unparse(node.args)) if part not in ("", "self")]
    if parts[:1] == ["/"]:
        del parts[0]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    whole = f"({', '.join(parts)}){returns}"
    if len(whole) <= WIDTH:
        return whole
    return "(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def _split(text: str) -> Iterator[str]:
    """At the commas that are in no bracket."""
    depth = start = 0
    for at, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()


def _fields(node: ast.ClassDef) -> list[Field]:
    found: list[Field] = []
    for part, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(part, ast.AnnAssign) or not isinstance(part.target, ast.Name):
            continue
        if part.target.id.startswith("_") or "ClassVar" in ast.unparse(part.annotation):
            continue
        default = _default(part.value)
        found.append(Field(part.target.id, ast.unparse(part.annotation), default, _said_under(after)))
    return found


def _default(value: ast.expr | None) -> str:
    if value is None:
        return ""
    text = ast.unparse(value)
    made = re.search(r"default_factory=(\w+)", text)
    return f"{made[1]}()" if made else "" if text.startswith("field(") else text


def _said_under(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split())
    return ""
