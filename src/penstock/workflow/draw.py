"""Drawings of a workflow as text: a listing for the terminal, and Mermaid.

Both show the same picture, by layers. The picture as SVG is in `svg`. Nothing here prints,
knows colours of a terminal, or asks a run how it is: states are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.ids import StepId
from penstock.workflow.graph import END, HUMAN, Graph
from penstock.workflow.picture import (
    LABEL,
    Box,
    Picture,
    capped,
    clean,
    headline,
    notes,
    picture,
    routes_of,
    short,
)
from penstock.workflow.svg import svg

__all__ = ["MARKS", "mermaid", "svg", "tree"]

MARKS: Final[Mapping[str, str]] = {
    "": "○",
    "waiting": "○",
    "dormant": "◌",
    "ready": "◔",
    "running": "◐",
    "backoff": "↻",
    "asking": "?",
    "succeeded": "✔",
    "failed": "✘",
    "skipped": "⊘",
}
"""A step's state as one character; what is not listed is a dot."""

_ARROWS: Final = {"route": "⇢", "loop": "↺", "detour": "⇄"}
_RESERVED: Final = {END: "end", HUMAN: "human"}
_ID_WIDTH: Final = 28
_USES_WIDTH: Final = 36
_NEEDS: Final = 4
"""Needs listed by name."""

_MERMAID_STATES: Final[Mapping[str, str]] = {
    "running": "fill:#dbeafe,stroke:#2563eb,color:#1e3a8a",
    "backoff": "fill:#fef3c7,stroke:#d97706,color:#78350f",
    "asking": "fill:#fef3c7,stroke:#d97706,color:#78350f",
    "succeeded": "fill:#dcfce7,stroke:#16a34a,color:#14532d",
    "failed": "fill:#fee2e2,stroke:#dc2626,color:#7f1d1d",
    "skipped": "fill:#f3f4f6,stroke:#9ca3af,color:#6b7280,stroke-dasharray:4 3",
    "dormant": "stroke-dasharray:4 3",
}


def tree(graph: Graph, states: Mapping[StepId, str] | None = None, *, limit: int = 200) -> str:
    """A listing by layers: each step, what it calls, what it waits for and where it may go."""
    drawn = picture(graph, states, limit)
    steps = [box.step for box in drawn.boxes if box.kind == "step"]
    named = [len(short(graph.ids[i], _ID_WIDTH)) for i in steps]
    called = [len(short(graph.workflow.steps[i].uses, _USES_WIDTH)) for i in steps]
    widths = (max(named, default=0), max(called, default=0))
    gutter = len(str(max(graph.layers, default=0)))
    lines = [headline(graph), ""]
    for row in drawn.layers:
        boxes = [drawn.boxes[number] for number in row if drawn.boxes[number].kind in ("step", "more")]
        for n, box in enumerate(boxes):
            lines.extend(_lines(drawn, box, _bracket(n, len(boxes)), gutter, widths, first=n == 0))
    return "\n".join(lines) + "\n"


def mermaid(graph: Graph, states: Mapping[StepId, str] | None = None, *, limit: int = 300) -> str:
    """A Mermaid flowchart. Routes are dotted, loops say how often they may go round."""
    drawn = picture(graph, states, limit)
    lines = [f"%% {headline(graph)}", "flowchart TD"]
    lines.extend(f"    n{number}{_mermaid_box(graph, box)}" for number, box in enumerate(drawn.boxes))
    for kind, source, target, label in drawn.edges:
        arrow = "-->" if kind == "need" else "-.->"
        text = f'|"{_mermaid_text(label)}"|' if label else ""
        lines.append(f"    n{source} {arrow}{text} n{target}")
    used: dict[str, list[str]] = {}
    for number, box in enumerate(drawn.boxes):
        if box.state in _MERMAID_STATES:
            used.setdefault(box.state, []).append(f"n{number}")
    for state, numbers in used.items():
        lines.append(f"    classDef {state} {_MERMAID_STATES[state]}")
        lines.append(f"    class {','.join(numbers)} {state}")
    return "\n".join(lines) + "\n"


def _bracket(n: int, count: int) -> str:
    if count == 1:
        return " "
    return "┌" if n == 0 else "└" if n == count - 1 else "├"


def _lines(
    drawn: Picture, box: Box, bracket: str, gutter: int, widths: tuple[int, int], *, first: bool
) -> Sequence[str]:
    graph = drawn.graph
    if box.kind == "more":
        return [f"{'':{gutter}} {bracket} … {box.step:,} more step{'' if box.step == 1 else 's'}"]
    i = box.step
    step = graph.workflow.steps[i]
    number = str(graph.layers[i]) if first else ""
    mark = "◇" if i in graph.routers and not box.state else MARKS.get(box.state, "•")
    parts = [short(step.id, _ID_WIDTH).ljust(widths[0]), short(step.uses, _USES_WIDTH).ljust(widths[1])]
    parts.extend(notes(graph, i))
    if box.state not in ("", "waiting", "dormant"):
        parts.append(clean(box.state))
    if needs := graph.needs[i]:
        named = [graph.ids[need] for need in needs[:_NEEDS]]
        rest = [f"{len(needs) - _NEEDS:,} more"] if len(needs) > _NEEDS else []
        parts.append(f"← {', '.join((*named, *rest))}")
    lines = ["  ".join([f"{number:>{gutter}} {bracket} {mark} {parts[0]}", *parts[1:]]).rstrip()]
    if router := graph.routers.get(i):
        for kind, target, label in routes_of(router):
            name = graph.ids[target] if target >= 0 else _RESERVED[target]
            text = short(capped(router, kind, label), LABEL)
            lines.append(f"{'':{gutter}}     {_ARROWS[kind]} {name:{widths[0]}}  {text}")
    return lines


def _mermaid_box(graph: Graph, box: Box) -> str:
    if box.kind in ("end", "human"):
        return f'(["{box.kind}"])'
    if box.kind == "more":
        return f'["… {box.step:,} more"]'
    step = graph.workflow.steps[box.step]
    label = f"<b>{_mermaid_text(step.id)}</b><br/>{_mermaid_text(short(step.uses, _USES_WIDTH))}"
    if words := notes(graph, box.step):
        label += f"<br/><i>{' · '.join(words)}</i>"
    left, right = ("{{", "}}") if box.step in graph.routers else ("[[", "]]") if step.for_each else ("[", "]")
    return f'{left}"{label}"{right}'


def _mermaid_text(text: str) -> str:
    """Mermaid reads entities as `#name;`, so that every mark it could misread is written as one."""
    marks = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", "|": "#124;"}
    marks |= {"\\": "#92;", "{": "#123;", "}": "#125;", ";": "#59;"}
    return "".join(marks.get(mark, mark) for mark in clean(text))
