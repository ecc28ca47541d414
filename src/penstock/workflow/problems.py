"""What is wrong with a document, gathered before anyone is told.

Readers complain about a node; where that node is, in words, is worked out only when there
is something to say. The findings about a definition's meaning are in `findings`.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import DefinitionError, Problem
from penstock.workflow.findings import SHOWN
from penstock.workflow.nodes import LONGEST_QUOTE, Node, Spot, quoted

_Trail = tuple["_Trail | None", str | int, Node]
"""A chain of keys from the node up to the root; each link holds the node at its key."""


class _Complaint(NamedTuple):
    node: Node
    key: str
    """The key of `node` that is pointed at; empty for the node itself."""
    message: str
    hint: str

    @property
    def spot(self) -> Spot:
        return self.node.key_spot(self.key) if self.key else self.node.spot


class Problems:
    """Everything found so far, and the one exception made of it."""

    def __init__(self) -> None:
        self._found: dict[tuple[Spot, int, str], _Complaint] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, node: Node, message: str, hint: str = "", *, key: str = "") -> None:
        complaint = _Complaint(node, key, message, hint)
        # Copies of a template share their nodes' places: one mistake in the text is one problem.
        place = (complaint.spot, 0 if node.line else id(node), message)
        self._found.setdefault(place, complaint)

    def error(self, *roots: Node, file: str = "", prefix: str = "") -> DefinitionError:
        """All of it in the order of the text, with file, line, column and the place in words."""
        found = sorted(self._found.values(), key=lambda complaint: complaint.spot)
        shown = found[:SHOWN]
        trails = _trails({id(complaint.node) for complaint in shown}, roots)
        problems = [
            Problem(
                complaint.message,
                complaint.hint,
                where=_where(trails.get(id(complaint.node)), prefix),
                file=file,
                line=complaint.spot[0],
                column=complaint.spot[1],
            )
            for complaint in shown
        ]
        if more := len(found) - len(shown):
            problems.append(Problem(f"and {more:,} more problem{'s' if more > 1 else ''}", file=file))
        return DefinitionError(problems)


def _trails(wanted: set[int], roots: tuple[Node, ...]) -> dict[int, _Trail | None]:
    """The way to each wanted node, the first one found."""
    found: dict[int, _Trail | None] = {}
    jobs: list[tuple[Node, _Trail | None]] = [(root, None) for root in reversed(roots)]
    while jobs and len(found) < len(wanted):
        node, trail = jobs.pop()
        if id(node) in wanted:
            found.setdefault(id(node), trail)
        if node.kind == "map":
            jobs.extend((part, (trail, key, part)) for key, part in reversed(node.value.items()))
        elif node.kind == "list":
            last = len(node.value) - 1
            jobs.extend((part, (trail, last - n, part)) for n, part in enumerate(reversed(node.value)))
    return found


def _where(trail: _Trail | None, prefix: str) -> str:
    """`steps.fetch.retry`: an item that has an id is called by it, any other by its number."""
    parts: list[str] = []
    while trail is not None:
        trail, label, node = trail
        name = _id_of(node) if isinstance(label, int) else label
        plain = name.isprintable() and len(name) <= LONGEST_QUOTE
        parts.append(f".{name if plain else quoted(name)}" if name else f"[{label}]")
    return (prefix + "".join(reversed(parts))).lstrip(".")


def _id_of(node: Node) -> str:
    name = node.value.get("id") if node.kind == "map" else None
    return name.value if name is not None and isinstance(name.value, str) else ""
