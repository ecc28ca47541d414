"""`data:*`: JSON, XML and CSV, from text or from a file, and back.

XML is read without document types: no entity is ever expanded, nothing is ever fetched.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any, Final
from xml.parsers import expat

from penstock.tools.builtin.places import Places
from penstock.tools.functions import tool

DEEPEST: Final = 200
_NODES: Final = 500_000
_EITHER: Final = "give either text or path, and not an empty one"


class Data:
    """Its methods are the tools. Each reads `text`, or the file at `path`."""

    def __init__(self, places: Places) -> None:
        self._places = places

    @tool(effect="read")
    def parse_json(self, text: str = "", path: str = "") -> Any:
        """Read JSON."""
        given = self._given(text, path)
        try:
            return json.loads(given, parse_constant=_not_json)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path or 'the text'} is not JSON: {error}") from None

    @tool(effect="read")
    def format_json(self, value: Any, indent: int = 2, *, sort_keys: bool = False) -> str:
        """Write a value as JSON."""
        spaces = max(0, min(indent, 16)) or None
        return json.dumps(value, indent=spaces, sort_keys=sort_keys, ensure_ascii=False)

    @tool(effect="read")
    def parse_csv(
        self, text: str = "", path: str = "", delimiter: str = ",", *, header: bool = True
    ) -> list[Any]:
        """Read a table: a list of objects by its first line, or of lists without one."""
        rows = list(csv.reader(io.StringIO(self._given(text, path), newline=""), delimiter=delimiter))
        if not header:
            return rows
        names = rows[0] if rows else []
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two columns are called {twice[0]!r}; read it with header: false")
        for n, row in enumerate(rows[1:], start=2):
            if any(row[len(names) :]):
                hint = "read it with header: false, or with another delimiter"
                raise ValueError(f"row {n} has {len(row)} fields, and the first one {len(names)}; {hint}")
        return [dict(zip(names, row, strict=False)) for row in rows[1:] if row]

    @tool(effect="read")
    def format_csv(self, rows: list[Any], columns: list[str] | None = None, delimiter: str = ",") -> str:
        """Write a list of objects, or of lists, as a table."""
        out = io.StringIO()
        names = columns or list(dict.fromkeys(key for row in rows if isinstance(row, dict) for key in row))
        writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
        if names:
            writer.writerow(names)
        for row in rows:
            writer.writerow([row.get(name, "") for name in names] if isinstance(row, dict) else row)
        return out.getvalue()

    @tool(effect="read")
    def parse_xml(self, text: str = "", path: str = "") -> dict[str, Any]:
        """Read XML: each element as `tag`, `attributes`, `text` and `children`."""
        if bool(text) == bool(path):
            raise ValueError(_EITHER)
        return _Reader().read(self._places.read(path) if path else text, path or "the text")

    @tool(effect="read")
    def format_xml(self, element: dict[str, Any]) -> str:
        """Write elements of the shape that `parse_xml` gives."""
        return "".join(_written(element, 0))

    def _given(self, text: str, path: str) -> str:
        if bool(text) == bool(path):
            raise ValueError(_EITHER)
        return self._places.read_text(path) if path else text


class _Reader:
    def __init__(self) -> None:
        self._stack: list[dict[str, Any]] = [{"children": []}]
        self._said: list[list[str]] = [[]]
        """Of each element on the stack, its text so far: put together once, when it ends."""
        self._nodes = 0

    def read(self, given: str | bytes, name: str) -> dict[str, Any]:
        """A text is read as it is, whatever it says of its letters; bytes as they say."""
        parser = expat.ParserCreate("utf-8" if isinstance(given, str) else None)
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._refuse
        try:
            parser.Parse(given.encode() if isinstance(given, str) else given, True)
        except expat.ExpatError as error:
            raise ValueError(f"{name} is not XML: {error}") from None
        root: dict[str, Any] = self._stack[0]["children"][0]
        return root

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._nodes += 1
        if len(self._stack) > DEEPEST or self._nodes > _NODES:
            raise ValueError("this XML is too large or nested too deep")
        element = {"tag": tag, "attributes": attributes, "text": "", "children": []}
        self._stack[-1]["children"].append(element)
        self._stack.append(element)
        self._said.append([])

    def _end(self, _: str) -> None:
        self._stack.pop()["text"] = "".join(self._said.pop()).strip()

    def _characters(self, data: str) -> None:
        self._said[-1].append(data)

    def _refuse(self, *_: object) -> None:
        raise ValueError("XML with a document type is not read")


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _written(element: Any, depth: int) -> list[str]:
    from xml.sax.saxutils import escape, quoteattr  # which brings half of urllib along

    if depth > DEEPEST or not isinstance(element, dict) or not _is_name(element.get("tag")):
        raise ValueError("an element needs a tag; its children are elements")
    given = element.get("attributes") or {}
    if not all(map(_is_name, given)):
        raise ValueError("an attribute needs a name")
    attributes = "".join(f" {name}={quoteattr(str(value))}" for name, value in given.items())
    tag = element["tag"]
    inner = [escape(str(element.get("text") or ""))]
    for child in element.get("children") or ():
        inner += _written(child, depth + 1)
    body = "".join(inner)
    return [f"<{tag}{attributes}>{body}</{tag}>" if body else f"<{tag}{attributes}/>"]


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.replace(":", "_").replace("-", "_").replace(".", "_").isidentifier()
