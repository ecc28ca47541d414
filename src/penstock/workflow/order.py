"""Before and after: topological order, depth, and the circles that make both impossible.

Plain graphs of numbers, given as the predecessors of each; no workflow in sight. All of it
iterative: a chain of 100,000 steps must not meet the interpreter's recursion limit.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

Edges = Sequence[Sequence[int]]
"""For each node, its predecessors (or its successors), ascending."""

Extra = Mapping[int, Sequence[int]]
"""Further edges, for the few nodes that have any."""

ENDS_SHOWN: Final = 4
"""How many steps of a long path are shown at either end."""


def inverse(edges: Edges, nodes: Iterable[int]) -> list[tuple[int, ...]]:
    """Predecessors to successors, or back; ascending either way. `nodes` counts from 0."""
    after: list[list[int] | None] = [None] * len(edges)
    for node, before in zip(nodes, edges, strict=False):
        for other in before:
            found = after[other]
            if found is None:
                after[other] = [node]
            else:
                found.append(node)
    return [() if found is None else tuple(found) for found in after]


def topological(needs: Edges, dependents: Edges, extra: Extra | None = None) -> Sequence[int]:
    """An order in which every node follows its predecessors, as near to 0, 1, 2 … as can be.

    `extra` are further successors. Nodes on a circle, and those after one, are left out.
    """
    more = extra or {}
    if not more and all(not before or before[-1] < node for node, before in enumerate(needs)):
        return range(len(needs))  # most definitions name a step before the steps that need it
    open_needs = [len(before) for before in needs]
    for targets in more.values():
        for target in targets:
            open_needs[target] += 1
    ready = [node for node, count in enumerate(open_needs) if not count]
    order: list[int] = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for after in (*dependents[node], *more.get(node, ())):
            open_needs[after] -= 1
            if not open_needs[after]:
                heapq.heappush(ready, after)
    return order


def circles(needs: Edges, ordered: Sequence[int]) -> list[list[int]]:
    """Circles among the nodes that `topological` left out, each from its lowest node along the flow."""
    in_order = bytearray(len(needs))
    for node in ordered:
        in_order[node] = 1
    walk_of = [0] * len(needs)
    found: list[list[int]] = []
    for start in range(len(needs)):
        if in_order[start] or walk_of[start]:
            continue
        # A node that is left out waits for another that is: going back ends on a circle.
        walk: list[int] = []
        node = start
        while not walk_of[node]:
            walk_of[node] = start + 1
            walk.append(node)
            node = next(before for before in needs[node] if not in_order[before])
        if walk_of[node] == start + 1:
            circle = walk[walk.index(node) :][::-1]
            first = circle.index(min(circle))
            found.append(circle[first:] + circle[:first])
    return found


def shown_path(names: Sequence[str]) -> str:
    """`a -> b -> c`; the middle of a long path is counted instead."""
    hidden = len(names) - 2 * ENDS_SHOWN
    if hidden <= 1:
        return " -> ".join(names)
    middle = f"… {hidden:,} more …"
    return " -> ".join((*names[:ENDS_SHOWN], middle, *names[-ENDS_SHOWN:]))
