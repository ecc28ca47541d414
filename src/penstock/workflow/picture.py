"""What there is to draw of a workflow, before anyone decides how.

Boxes and arrows in layers. A graph too large to look at is cut down first: in the middle
when it is long, at the end of a layer when that is wide, and never where something failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from penstock.ids import StepId
from penstock.workflow.graph import END, Graph, Router

LAYERS: Final = (24, 8)
"""Layers kept at the top and at the bottom of a long graph."""

LABEL: Final = 44
"""Longest text beside an arrow."""

_FIRST: Final = {"failed": 0, "asking": 1, "running": 2, "backoff": 3}
"""Steps in these states are shown before others when not all can be."""

_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]+")

EdgeKind = Literal["need", "route", "loop", "detour"]
BoxKind = Literal["step", "more", "end", "human"]


class Box(NamedTuple):
    kind: BoxKind
    layer: int
    step: int = -1
    """Its index; for `more` the number of steps it stands for."""
    state: str = ""


class Edge(NamedTuple):
    kind: EdgeKind
    source: int
    target: int
    label: str = ""


@dataclass(slots=True)
class Picture:
    graph: Graph
    boxes: list[Box] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    """Between boxes, by number."""
    layers: list[list[int]] = field(default_factory=list)
    """Boxes by layer, in order."""


def picture(graph: Graph, states: Mapping[StepId, str] | None, limit: int) -> Picture:
    """Boxes and arrows for at most about `limit` steps."""
    drawn = Picture(graph)
    box_of = _place_steps(drawn, states or {}, limit)
    targets: dict[tuple[int, int], int] = {}
    seen: set[tuple[EdgeKind, int, int]] = set()
    for kind, source, target, label in _edges(graph):
        start = box_of[source]
        if target < 0:
            end = targets.get((start, target), -1)
            if end < 0:
                end = targets[start, target] = _add_end(drawn, start, target)
        else:
            end = box_of[target]
        hidden = "more" in (drawn.boxes[start].kind, drawn.boxes[end].kind)
        if (hidden and start == end) or (kind, start, end) in seen:
            continue
        seen.add((kind, start, end))
        drawn.edges.append(Edge(kind, start, end, "" if hidden else label))
    return drawn


def clean(text: str) -> str:
    """One line, and nothing that a terminal or an XML reader would take for an order."""
    return _UNPRINTABLE.sub(" ", text).strip()


def short(text: str, width: int) -> str:
    text = clean(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def headline(graph: Graph) -> str:
    """`triage · 5 steps · 4 layers`."""
    steps, layers = len(graph.ids), max(graph.layers, default=-1) + 1
    counted = (
        f"{count:,} {noun}{'' if count == 1 else 's'}" for count, noun in ((steps, "step"), (layers, "layer"))
    )
    return " · ".join((short(graph.workflow.name, 60), *counted))


def notes(graph: Graph, i: int) -> list[str]:
    """What is special about a step, in a word each."""
    step = graph.workflow.steps[i]
    found = [
        ("each", bool(step.for_each)),
        ("if", bool(step.when)),
        ("gate", i in graph.gates),
        ("asks", step.approval == "always" or step.critical),
    ]
    return [word for word, true in found if true]


def routes_of(router: Router) -> Iterator[tuple[EdgeKind, int, str]]:
    """The ways out of a router, in the order in which they are tried."""
    kinds: dict[int, EdgeKind] = dict.fromkeys(router.back, "loop")
    for expression, target in router.conditions:
        yield kinds.get(target, "route"), target, expression.source
    for key, target in router.branches.items():
        yield kinds.get(target, "route"), target, f"= {key}"
    for target in router.tie_targets:
        yield kinds.get(target, "route"), target, "tie-breaker"
    if router.loop_target is not None:
        yield "loop", router.loop_target, ""
    if router.next is not None:
        first = not (router.conditions or router.branches or router.loop_target is not None)
        yield kinds.get(router.next, "route"), router.next, "next" if first else "else"
    if router.detour is not None:
        yield "detour", router.detour, "detour"


def capped(router: Router, kind: EdgeKind, label: str) -> str:
    """The label of a way out; a way back says first how often it may be taken."""
    if kind != "loop":
        return label
    return f"up to {router.max_iterations}×" + (f": {label}" if label else "")


def _place_steps(drawn: Picture, states: Mapping[StepId, str], limit: int) -> list[int]:
    """Fill boxes and layers; returns the box of each step."""
    graph = drawn.graph
    depth = max(graph.layers, default=-1) + 1
    by_layer: list[list[int]] = [[] for _ in range(depth)]
    for i, layer in enumerate(graph.layers):
        by_layer[layer].append(i)
    box_of = [0] * len(graph.ids)
    whole = len(graph.ids) <= limit
    top, bottom = LAYERS if not whole and depth > sum(LAYERS) + 1 else (depth, 0)
    width = len(graph.ids) if whole else max(4, limit // min(depth, sum(LAYERS)))
    for steps in by_layer[:top]:
        _place_layer(drawn, steps, width, states, box_of)
    if between := [i for steps in by_layer[top : depth - bottom] for i in steps]:
        _place_layer(drawn, between, 1, {}, box_of)
        for steps in by_layer[depth - bottom :]:
            _place_layer(drawn, steps, width, states, box_of)
    return box_of


def _place_layer(
    drawn: Picture, steps: list[int], width: int, states: Mapping[StepId, str], box_of: list[int]
) -> None:
    ids, dormant = drawn.graph.ids, drawn.graph.dormant
    row: list[int] = []
    layer = len(drawn.layers)
    drawn.layers.append(row)
    kept = steps
    if len(steps) > width:
        urgent = sorted(steps, key=lambda i: _FIRST.get(states.get(ids[i], ""), 9))
        kept = sorted(urgent[: width - 1])
    for i in kept:
        box_of[i] = len(drawn.boxes)
        row.append(len(drawn.boxes))
        state = states.get(ids[i], "") or ("dormant" if i in dormant else "")
        drawn.boxes.append(Box("step", layer, i, state))
    if len(kept) < len(steps):
        shown = set(kept)
        for i in steps:
            if i not in shown:
                box_of[i] = len(drawn.boxes)
        row.append(len(drawn.boxes))
        drawn.boxes.append(Box("more", layer, len(steps) - len(kept)))


def _add_end(drawn: Picture, start: int, target: int) -> int:
    """A place for `end` or `human`, below the router that names it."""
    layer = drawn.boxes[start].layer + 1
    if layer == len(drawn.layers):
        drawn.layers.append([])
    number = len(drawn.boxes)
    drawn.layers[layer].append(number)
    drawn.boxes.append(Box("end" if target == END else "human", layer))
    return number


def _edges(graph: Graph) -> Iterator[Edge]:
    """Needs and routes between steps. A route also stands for the need it satisfies."""
    for i, needs in enumerate(graph.needs):
        for need in needs:
            router = graph.routers.get(need)
            if router is None or i not in router.forward:
                yield Edge("need", need, i)
    for i, router in graph.routers.items():
        labels: dict[tuple[EdgeKind, int], list[str]] = {}
        for kind, target, label in routes_of(router):
            labels.setdefault((kind, target), []).append(label)
        for (kind, target), texts in labels.items():
            label = " / ".join(text for text in dict.fromkeys(texts) if text)
            yield Edge(kind, i, target, short(capped(router, kind, label), LABEL))
