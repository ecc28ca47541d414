"""Where boxes go: rows of boxes in, coordinates out.

Works on two axes, *across* a row and *along* the flow, so that the same arithmetic serves a
drawing from top to bottom and one from left to right. Knows no workflow, no text, no colour.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

SWEEPS: Final = 8
MOST_BENDS: Final = 4_000
"""Places that long edges may be led through; beyond them they go straight."""

Point = tuple[float, float]
"""Across, along."""


class Link(NamedTuple):
    source: int
    target: int
    bundle: int = 0
    """Long edges from one box that are of one bundle run together."""
    label: float = 0.0
    """How much room a long edge needs across the first row it passes."""


@dataclass(slots=True)
class Layout:
    rows: list[list[int]]
    """Nodes by row; numbers from `boxes` on are bends of long edges."""
    across: list[float] = field(default_factory=list)
    """Centre of each node."""
    along: list[float] = field(default_factory=list)
    """Centre of each row."""
    bends: list[list[int]] = field(default_factory=list)
    """For each edge the bends it is led through."""
    extent: float = 0.0
    """How far the rows reach across, from 0."""


def lay_out(
    rows: Sequence[Sequence[int]],
    edges: Sequence[Link],
    *,
    size: float,
    gap: float,
    thickness: float,
    spaces: Sequence[float],
) -> Layout:
    """Order and place `rows` of boxes, all of one size; `spaces[n]` lies between rows n and n + 1.

    Edges lead to later rows.
    """
    boxes = sum(map(len, rows))
    plan = Layout([list(row) for row in rows])
    pieces, bends = _lead(plan, edges, boxes, gap / 2)
    before, after = _neighbours(pieces, boxes + len(bends))
    _untangle(plan.rows, before, after)
    sizes = [size] * boxes + bends
    plan.across = _place(plan.rows, before, after, sizes, gap)
    plan.extent = max(
        (centre + size / 2 for centre, size in zip(plan.across, sizes, strict=True)), default=0.0
    )
    position = thickness / 2
    for space in (*spaces[: max(len(rows) - 1, 0)], 0.0):
        plan.along.append(position)
        position += thickness + space
    return plan


def _lead(
    plan: Layout, edges: Sequence[Link], boxes: int, least: float
) -> tuple[list[tuple[int, int]], list[float]]:
    """Give long edges a bend in every row they pass. Returns pieces of edges, and the bends' sizes."""
    row_of = {node: number for number, row in enumerate(plan.rows) for node in row}
    made: dict[tuple[int, int, int], int] = {}
    sizes: list[float] = []
    pieces: list[tuple[int, int]] = []
    for source, target, bundle, label in edges:
        way: list[int] = []
        for row in range(row_of[source] + 1, row_of[target]):
            if len(made) >= MOST_BENDS:
                break
            bend = made.get((source, row, bundle))
            if bend is None:
                bend = made[source, row, bundle] = boxes + len(made)
                sizes.append(least if way else max(label, least))
                plan.rows[row].append(bend)
                pieces.append((way[-1] if way else source, bend))
            way.append(bend)
        pieces.append((way[-1] if way else source, target))
        plan.bends.append(way)
    return pieces, sizes


def _neighbours(links: Iterable[tuple[int, int]], count: int) -> tuple[list[list[int]], list[list[int]]]:
    before: list[list[int]] = [[] for _ in range(count)]
    after: list[list[int]] = [[] for _ in range(count)]
    for source, target in links:
        before[target].append(source)
        after[source].append(target)
    return before, after


def _untangle(rows: list[list[int]], before: list[list[int]], after: list[list[int]]) -> None:
    """Reorder rows so that fewer edges cross: each node goes to the middle of its neighbours."""
    best = [list(row) for row in rows]
    fewest = _crossings(rows, after)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        place = {node: float(n) for row in rows for n, node in enumerate(row)}
        near = before if down else after
        for row in rows if down else reversed(rows):
            row.sort(key=lambda node: _mean([place[other] for other in near[node]], place[node]))
            place.update((node, float(n)) for n, node in enumerate(row))
        found = _crossings(rows, after)
        if found < fewest:
            fewest, best = found, [list(row) for row in rows]
    rows[:] = best


def _crossings(rows: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> int:
    total = 0
    place = {node: n for row in rows for n, node in enumerate(row)}
    for row in rows:
        ends: list[int] = []
        for node in row:
            targets = sorted(place[other] for other in after[node])
            total += sum(len(ends) - bisect_right(ends, target) for target in targets)
            for target in targets:
                insort(ends, target)
    return total


def _place(
    rows: Sequence[Sequence[int]],
    before: list[list[int]],
    after: list[list[int]],
    sizes: Sequence[float],
    gap: float,
) -> list[float]:
    """Move every node towards its neighbours as far as its row allows, up and down the rows."""
    across = [0.0] * len(sizes)
    for row in rows:
        position = 0.0
        for node in row:
            across[node] = position + sizes[node] / 2
            position += sizes[node] + gap
    for sweep in range(SWEEPS):
        near = [before, after, [[*a, *b] for a, b in zip(before, after, strict=True)]][sweep % 3]
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [_mean([across[other] for other in near[node]], across[node]) for node in row]
            for node, position in zip(row, _spread(wanted, [sizes[node] for node in row], gap), strict=True):
                across[node] = position
    left = min((across[node] - sizes[node] / 2 for row in rows for node in row), default=0.0)
    return [position - left for position in across]


def _spread(wanted: Sequence[float], sizes: Sequence[float], gap: float) -> list[float]:
    """Positions nearest to those wanted, in this order and without overlap (least squares)."""
    offsets = [0.0]
    for one, other in pairwise(sizes):
        offsets.append(offsets[-1] + (one + other) / 2 + gap)
    blocks: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=False):
        mean, count = want - offset, 1
        while blocks and blocks[-1][0] > mean:
            other_mean, other_count = blocks.pop()
            mean = (mean * count + other_mean * other_count) / (count + other_count)
            count += other_count
        blocks.append((mean, count))
    settled = [mean for mean, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(settled, offsets, strict=False)]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
