"""Values that remember where they stand: what a workflow file is before its keys mean anything.

A definition that comes as Python or JSON data is the same nodes without a place.
Treated as immutable once made, so that copies may share what does not change.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from penstock.workflow.plain import plain

LONGEST_QUOTE: Final = 40
"""Characters of a document's text that a message repeats."""

Kind = Literal["map", "list", "scalar"]
Spot = tuple[int, int]
"""Line and column, 1-based; 0 when the value did not come from a text."""


class Node:
    """One value of a document and its place."""

    __slots__ = ("column", "keys", "kind", "line", "value")

    def __init__(
        self, kind: Kind, value: Any, line: int = 0, column: int = 0, keys: dict[str, Spot] | None = None
    ) -> None:
        self.kind: Kind = kind
        self.value = value
        """dict[str, Node], list[Node] or a JSON scalar."""
        self.line = line
        self.column = column
        self.keys = keys
        """Of a map that came from a text: where each key stands."""

    def __repr__(self) -> str:
        return f"Node({self.kind}, {self.plain()!r}, {self.line}:{self.column})"

    @property
    def spot(self) -> Spot:
        return self.line, self.column

    def key_spot(self, key: str) -> Spot:
        """Where the key stands; the map itself when it has no such key."""
        return (self.keys or {}).get(key, self.spot)

    def plain(self) -> Any:
        """The value as JSON data, fresh at every call."""
        if self.kind == "scalar":
            return self.value
        box: list[Any] = [None]
        jobs: list[tuple[Any, str | int, Node]] = [(box, 0, self)]
        while jobs:
            into, key, node = jobs.pop()
            if node.kind == "scalar":
                into[key] = node.value
            elif node.kind == "map":
                into[key] = fields = dict.fromkeys(node.value)
                jobs.extend((fields, name, part) for name, part in node.value.items())
            else:
                into[key] = rows = [None] * len(node.value)
                jobs.extend((rows, n, part) for n, part in enumerate(node.value))
        return box[0]

    @classmethod
    def from_plain(cls, value: Any) -> Node:
        """Python or JSON data as nodes without a place. Raises DefinitionError when it is not JSON."""
        box: list[Any] = [None]
        jobs: list[tuple[Any, str | int, Any]] = [(box, 0, plain(value))]
        while jobs:
            into, key, item = jobs.pop()
            if type(item) is dict:
                fields: dict[str, Any] = dict.fromkeys(item)
                into[key] = cls("map", fields)
                jobs.extend((fields, name, part) for name, part in item.items())
            elif type(item) is list:
                rows: list[Any] = [None] * len(item)
                into[key] = cls("list", rows)
                jobs.extend((rows, n, part) for n, part in enumerate(item))
            else:
                into[key] = cls("scalar", item)
        root: Node = box[0]
        return root


def quoted(text: str) -> str:
    """A text as it may stand in a message: in quotes, and not too long."""
    return repr(text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 3] + "...")


def describe(node: Node) -> str:
    """What stands there, in the words of a message."""
    value = node.value
    if node.kind != "scalar":
        return f"an empty {node.kind}" if not value else f"a {node.kind}"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value == "":
        return "empty text"
    if isinstance(value, str):
        return f"the text {quoted(value)}"
    return f"the number {value}"
