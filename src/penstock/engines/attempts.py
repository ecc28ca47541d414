"""Another attempt at a child run that failed: it goes on where that one failed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.engines.history import failed_steps
from penstock.errors import UnknownRun
from penstock.ids import RunId, StepId
from penstock.run.events import Event, WorkflowStarted
from penstock.run.replay import replay
from penstock.run.state import Run
from penstock.steps.base import Prepared
from penstock.store.base import Store


async def failed_before(
    store: Store, flow: Prepared, inputs: Mapping[str, Any], *, run: RunId, parent: RunId, before: RunId
) -> tuple[RunId, Run, tuple[StepId, ...]] | None:
    """The attempt before this one, its state for the new `run`, and the steps of it that failed.

    None when there was none, it did not fail, or it was about something else: then all begins anew.
    """
    before, events = await _found(store, parent, before)
    first = events[0] if events else None
    graph = flow.graph
    if not isinstance(first, WorkflowStarted) or (first.hash, first.inputs) != (graph.hash, inputs):
        return None
    state = replay(run, graph, events, reducers=flow.reducers)
    failed = failed_steps(state) if state.ended else ()
    return (before, state, failed) if failed else None


async def _found(store: Store, parent: RunId, child: RunId) -> tuple[RunId, Sequence[Event]]:
    """A child and its history. That of a fork may be a child of the run which it was forked from."""
    until = math.inf
    while True:
        try:
            events = await store.load(child)
        except UnknownRun:
            (record,) = await store.runs(run=parent)
            if record.fork_of is None or record.fork_at is None:
                return child, ()
            own = await store.load(parent, after=record.fork_at)
            until = min(until, own[0].at)  # what the other run did later is not ours
            child = RunId(f"{record.fork_of}{child.removeprefix(parent)}")
            parent = record.fork_of
        else:
            return child, events if events[-1].at <= until else ()
