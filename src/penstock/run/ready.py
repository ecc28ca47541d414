"""The queue of steps that may start, the most critical first."""

from __future__ import annotations

from heapq import heapify, heappush

from penstock.run.state import Run
from penstock.workflow.graph import bottom_levels


def enqueue(run: Run, i: int) -> None:
    if run.queued[i]:
        return
    ranks = run.rank or rank(run)
    run.queued[i] = 1
    heappush(run.ready, ranks[0][i])


def rank(run: Run) -> tuple[list[int], list[int]]:
    """Order the steps by the longest chain of work that hangs on them: first come the critical ones."""
    graph = run.graph
    steps = graph.workflow.steps
    known = run.durations or any(step.estimate is not None for step in steps)
    if not known and graph.ranks is not None:
        return _requeue(run, graph.ranks)
    seconds = [run.durations.get(step.id, 1.0 if step.estimate is None else step.estimate) for step in steps]
    levels = bottom_levels(graph, seconds)
    order = sorted(range(len(levels)), key=lambda i: (-levels[i], i))
    rank = [0] * len(order)
    for position, i in enumerate(order):
        rank[i] = position
    if not known:
        graph.ranks = (rank, order)
    return _requeue(run, (rank, order))


def _requeue(run: Run, ranks: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
    """Take up an order of starting, and put what is queued into it."""
    run.rank = ranks
    run.ready = [ranks[0][i] for i, queued in enumerate(run.queued) if queued]
    heapify(run.ready)
    return ranks
