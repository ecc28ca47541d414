"""The picture of a workflow as one self-contained SVG: no scripts, no fonts to load, no links.

Light or dark as the reader prefers. Wide graphs run from left to right, others from top to
bottom. Positions come from `layout`; what is shown comes from `picture`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Final

from penstock.ids import StepId
from penstock.workflow.graph import Graph
from penstock.workflow.layout import Layout, Link, Point, lay_out
from penstock.workflow.ornaments import ICONS, STYLE, group, legend, tag
from penstock.workflow.picture import Box, Edge, Picture, clean, headline, notes, picture, short

_HEIGHT: Final = 46.0
_LETTER: Final = 7.4
_SMALL: Final = 6.1
"""Width of a letter, on the safe side."""

_GAP: Final = 28
_MARGIN: Final = 24
_TITLE: Final = 40
_LEGEND: Final = 44
_ROW: Final = 44
_LANE: Final = 22
_CORNER: Final = 8
_STACK: Final = 5
"""How far the second box of a map shows behind the first."""

Drawn = tuple[str, str]
"""A line and its label; labels come on top of all lines."""


def svg(graph: Graph, states: Mapping[StepId, str] | None = None, *, limit: int = 300) -> str:
    """Draw a workflow; `states` colours its steps."""
    return _Drawing(picture(graph, states, limit)).text()


class _Drawing:
    """One SVG in the making."""

    def __init__(self, drawn: Picture) -> None:
        self.drawn = drawn
        self.width = _box_width(drawn)
        widest = max(map(len, drawn.layers), default=0)
        labels = [len(edge.label) for edge in drawn.edges if edge.label]
        self.label = int(min(max(labels, default=0), self.width / _SMALL + 4))
        """Letters that a label may have."""
        ahead = self.label * _SMALL + 60 if labels else 64.0
        down = widest * (self.width + _GAP)
        right = len(drawn.layers) * (self.width + ahead)
        self.sideways = right <= down
        """The flow goes from left to right."""
        self.thickness = self.width if self.sideways else _HEIGHT
        self.size = _HEIGHT if self.sideways else self.width
        self.plan = self._lay_out(ahead)
        self.low, self.high = 0.0, self.plan.extent
        """How far the drawing reaches across; loops push it out."""

    def text(self) -> str:
        onward = [self._edge(edge, way) for edge, way in zip(self._onward(), self.plan.bends, strict=True)]
        lines, labels = zip(*onward, *self._loops(), strict=True) if self.drawn.edges else ((), ())
        boxes = [self._box(number, box) for number, box in enumerate(self.drawn.boxes)]
        across = self.high - self.low
        along = self.plan.along[-1] + self.thickness / 2 if self.plan.along else 0.0
        wide, tall = (along, across) if self.sideways else (across, along)
        title = headline(self.drawn.graph)
        keys, least = legend(self.drawn)
        width = round(max(wide, len(title) * _LETTER, least) + 2 * _MARGIN)
        height = round(_TITLE + tall + _LEGEND + 2 * _MARGIN)
        left, top = (width - wide) / 2, _MARGIN + _TITLE
        x, y = (left, top - self.low) if self.sideways else (left - self.low, float(top))
        name, _, counts = title.partition(" · ")
        counted = tag("tspan", _text(counts), class_="note", dx=10)
        parts = (
            tag("title", _text(title), id="title"),
            tag("desc", _text(_description(self.drawn)), id="desc"),
            STYLE,
            tag("rect", class_="page", width=width, height=height, rx=12),
            tag("text", _text(name) + counted, class_="name", x=_MARGIN, y=_MARGIN + 14),
            group(x, y, "\n".join((*lines, *labels, *boxes))),
            group(_MARGIN, height - _MARGIN - 8, keys) if keys else "",
        )
        size: dict[str, str | float] = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height}
        about = {"role": "img", "aria_labelledby": "title desc"}
        return tag("svg", "\n".join(parts), xmlns="http://www.w3.org/2000/svg", **size, **about) + "\n"

    def _lay_out(self, ahead: float) -> Layout:
        rows = self.drawn.layers
        labelled = {self.drawn.boxes[edge.target].layer for edge in self._onward() if edge.label}
        spaces = [
            ahead if self.sideways else _ROW + (16 if row + 1 in labelled else 0) for row in range(len(rows))
        ]
        links = [
            Link(edge.source, edge.target, 0 if edge.kind == "need" else n, self._room(edge))
            for n, edge in enumerate(self._onward(), start=1)
        ]
        return lay_out(rows, links, size=self.size, gap=_GAP, thickness=self.thickness, spaces=spaces)

    def _room(self, edge: Edge) -> float:
        """What the label of an edge takes across."""
        if not edge.label:
            return 0.0
        return 18.0 if self.sideways else len(short(edge.label, self.label)) * _SMALL + 8

    def _onward(self) -> list[Edge]:
        boxes = self.drawn.boxes
        return [edge for edge in self.drawn.edges if boxes[edge.source].layer < boxes[edge.target].layer]

    def _across(self, box: int) -> float:
        return self.plan.across[box]

    def _along(self, box: int) -> float:
        return self.plan.along[self.drawn.boxes[box].layer]

    def _at(self, point: Point) -> str:
        across, along = point
        return f"{along:.1f} {across:.1f}" if self.sideways else f"{across:.1f} {along:.1f}"

    def _edge(self, edge: Edge, way: Sequence[int]) -> Drawn:
        """A line that leaves and enters boxes straight and passes rows between them straight."""
        half = self.thickness / 2
        first = self.drawn.boxes[edge.source].layer + 1
        points: list[Point] = [(self._across(edge.source), self._along(edge.source) + half)]
        for row, bend in enumerate(way, start=first):
            centre = self.plan.along[row]
            points += [(self.plan.across[bend], centre - half), (self.plan.across[bend], centre + half)]
        points.append((self._across(edge.target), self._along(edge.target) - self._depth(edge.target) - 1))
        path = [f"M{self._at(points[0])}"]
        for n, (start, end) in enumerate(pairwise(points)):
            if n % 2:
                path.append(f"L{self._at(end)}")
            else:
                middle = (start[1] + end[1]) / 2
                path.append(f"C{self._at((start[0], middle))} {self._at((end[0], middle))} {self._at(end)}")
        label = ""
        if edge.label:
            label = self._label(edge, self._label_place(edge, points, way))
        return _line(edge, "".join(path), self._names(edge)), label

    def _label_place(self, edge: Edge, points: Sequence[Point], way: Sequence[int]) -> Point:
        """Where a line is by itself: in the first row it passes, or near the box it leads to."""
        (a, b), (c, d) = points[:2]
        if way:
            return c, self.plan.along[self.drawn.boxes[edge.source].layer + 1]
        if self.sideways:
            return c, d - len(short(edge.label, self.label)) * _SMALL / 2 - 14
        return a + (c - a) * 0.7, b + (d - b) * 0.6

    def _depth(self, box: int) -> float:
        """Half of a box along the flow; `end` and `human` are smaller than steps."""
        kind, _, step, _ = self.drawn.boxes[box]
        if kind in ("end", "human"):
            return 24 if self.sideways else 12
        stacked = kind == "step" and not self.sideways and step in self.drawn.graph.for_each
        return self.thickness / 2 + (_STACK if stacked else 0)

    def _label(self, edge: Edge, at: Point, anchor: str = "middle") -> str:
        across, along = at
        x, y = (along, across) if self.sideways else (across, along)
        text = short(edge.label, self.label)
        width = len(text) * _SMALL
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        ground = tag("rect", class_="ground", x=left - 2, y=y - 8, width=width + 4, height=16, rx=4)
        return ground + tag(
            "text", _text(text), class_=f"label {edge.kind}", x=x, y=y + 4, text_anchor=anchor
        )

    def _loops(self) -> Iterator[Drawn]:
        """Lines back, led around the boxes on the nearer side; inner loops inside outer ones."""
        boxes = self.drawn.boxes
        loops = [edge for edge in self.drawn.edges if boxes[edge.source].layer >= boxes[edge.target].layer]
        loops.sort(key=lambda edge: boxes[edge.source].layer - boxes[edge.target].layer)
        reach: list[dict[int, float]] = [{}, {}]
        for edge in loops:
            if edge.source == edge.target:
                yield self._loop(edge, 1, self._across(edge.source) + self.size / 2 + _GAP / 2)
                continue
            rows = range(boxes[edge.target].layer, boxes[edge.source].layer + 1)
            side = self._side(edge)
            sign = 1 if side else -1
            ends = [sign * self._across(n) + self.size / 2 for row in rows for n in self.plan.rows[row]]
            lane = max([*ends, *(reach[side].get(row, ends[0]) for row in rows)]) + _LANE
            beyond = lane + (16.0 if self.sideways else len(short(edge.label, self.label)) * _SMALL + 10)
            for row in rows:
                reach[side][row] = beyond
            self.low, self.high = min(self.low, sign * beyond), max(self.high, sign * beyond)
            yield self._loop(edge, sign, sign * lane)

    def _side(self, edge: Edge) -> int:
        """1 for the far side, 0 for the near one: wherever fewer boxes are in the way."""
        blocked = [0, 0]
        for end in (edge.source, edge.target):
            row = self.plan.rows[self.drawn.boxes[end].layer]
            place = row.index(end)
            blocked[0] += place
            blocked[1] += len(row) - 1 - place
        return int(blocked[1] <= blocked[0])

    def _loop(self, edge: Edge, sign: int, lane: float) -> Drawn:
        start, end = self._along(edge.source), self._along(edge.target)
        if edge.source == edge.target:
            start, end = start + self.thickness / 5, end - self.thickness / 5
        corner = min(_CORNER, abs(start - end) / 2)
        edge_of = self.size / 2 * sign
        points: list[Point] = [
            (self._across(edge.source) + edge_of, start),
            (lane - corner * sign, start),
            (lane, start),
            (lane, start - corner),
            (lane, end + corner),
            (lane, end),
            (lane - corner * sign, end),
            (self._across(edge.target) + edge_of + sign, end),
        ]
        at = [self._at(point) for point in points]
        path = f"M{at[0]}L{at[1]}Q{at[2]} {at[3]}L{at[4]}Q{at[5]} {at[6]}L{at[7]}"
        anchor = "middle" if self.sideways else "start" if sign > 0 else "end"
        if edge.source == edge.target:
            return _line(edge, path, self._names(edge)), ""  # the box itself says how often
        label = self._label(edge, (lane + sign * (9 if self.sideways else 7), (start + end) / 2), anchor)
        return _line(edge, path, self._names(edge)), label

    def _names(self, edge: Edge) -> str:
        ends = [_name(self.drawn, number) for number in (edge.source, edge.target)]
        how = {"need": "then", "route": "routes to", "loop": "goes back to", "detour": "detours to"}[
            edge.kind
        ]
        return f"{ends[0]} {how} {ends[1]}" + (f": {edge.label}" if edge.label else "")

    def _box(self, number: int, box: Box) -> str:
        across, along = self._across(number), self._along(number)
        x, y = (along, across) if self.sideways else (across, along)
        title = tag("title", _text(_told(self.drawn, number)))
        if box.kind == "step":
            inner = self._step(box)
        elif box.kind == "more":
            inner = tag("rect", class_="more", **self._frame())
            inner += tag("text", f"… {box.step:,} more", class_="uses", y=4, text_anchor="middle")
        else:
            inner = tag("rect", class_=box.kind, x=-24, y=-12, width=48, height=24, rx=12)
            inner += tag("text", box.kind, class_=f"{box.kind}-text", y=4, text_anchor="middle")
        return group(x, y, title + inner)

    def _frame(self, shift: int = 0) -> dict[str, float]:
        x, y = -self.width / 2 + shift, -_HEIGHT / 2 - shift
        return {"x": x, "y": y, "width": self.width, "height": _HEIGHT, "rx": 9}

    def _step(self, box: Box) -> str:
        graph = self.drawn.graph
        step = graph.workflow.steps[box.step]
        right, bottom = self.width / 2, _HEIGHT / 2
        state = box.state if box.state in ICONS or box.state == "dormant" else ""
        name = short(step.id, int((self.width - 24) / _LETTER))
        uses = short(step.uses, int((self.width - 20) / _SMALL))
        parts = [tag("rect", class_="box under", **self._frame(_STACK))] if step.for_each else []
        parts.append(tag("rect", class_=f"box {state}".strip(), **self._frame()))
        parts.append(tag("text", _text(name), class_="id", x=12 - right, y=-3))
        parts.append(tag("text", _text(uses), class_="uses", x=12 - right, y=13))
        router = graph.routers.get(box.step)
        if router:
            x, y = (right, 0.0) if self.sideways else (0.0, bottom)
            parts.append(tag("path", class_="router", d=f"M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z"))
        again = [f"≤ {router.max_iterations}×"] if router and box.step in router.back else []
        if words := " · ".join((*notes(graph, box.step), *again)):
            parts.append(_pill(words, right - 10, bottom))
        if state in ICONS:
            parts.append(group(right - 12, -bottom, ICONS[state], class_=state))
        return "".join(parts)


def _pill(words: str, right: float, y: float) -> str:
    width = len(words) * 5.6 + 12
    pill = tag("rect", class_="pill", x=right - width, y=y - 7, width=width, height=14, rx=7)
    return pill + tag("text", words, class_="pill-text", x=right - width / 2, y=y + 3.5, text_anchor="middle")


def _box_width(drawn: Picture) -> float:
    graph = drawn.graph
    steps = [graph.workflow.steps[box.step] for box in drawn.boxes if box.kind == "step"]
    names = max((len(step.id) * _LETTER + 28 for step in steps), default=0.0)
    uses = max((len(step.uses) * _SMALL + 24 for step in steps), default=0.0)
    return float(round(min(max(names, uses, 112.0), 224.0)))


def _line(edge: Edge, path: str, title: str) -> str:
    told = tag("title", _text(title))
    return tag("path", told, class_=f"line {edge.kind}", d=path, marker_end=f"url(#{edge.kind}-end)")


def _name(drawn: Picture, number: int) -> str:
    box = drawn.boxes[number]
    if box.kind == "step":
        return drawn.graph.ids[box.step]
    return f"{box.step:,} more steps" if box.kind == "more" else box.kind


def _told(drawn: Picture, number: int) -> str:
    """A box in words, for those who hear it or point at it."""
    box = drawn.boxes[number]
    if box.kind != "step":
        return _name(drawn, number)
    graph = drawn.graph
    step = graph.workflow.steps[box.step]
    parts = [f"{step.id}: {step.uses}", box.state, *notes(graph, box.step)]
    if needs := graph.needs[box.step]:
        rest = f" and {len(needs) - 6:,} more" if len(needs) > 6 else ""
        parts.append("needs " + ", ".join(graph.ids[need] for need in needs[:6]) + rest)
    return "; ".join(part for part in parts if part)


def _description(drawn: Picture) -> str:
    counts: dict[str, int] = {}
    for box in drawn.boxes:
        if box.kind == "step" and box.state not in ("", "dormant"):
            counts[box.state] = counts.get(box.state, 0) + 1
    told = ", ".join(f"{count} {state}" for state, count in counts.items())
    return "A workflow as boxes and arrows" + (f": {told}" if told else "")


def _text(text: str) -> str:
    return escape(clean(text))
