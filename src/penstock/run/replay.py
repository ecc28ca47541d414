"""A run rebuilt from its events: resume, time travel and audits all start here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.ids import RunId
from penstock.run.events import Event
from penstock.run.evolve import evolve
from penstock.run.state import Reducer, Run
from penstock.workflow.graph import Graph


def replay(
    id: RunId,
    graph: Graph,
    events: Iterable[Event],
    *,
    until: int | None = None,
    reducers: Mapping[str, Reducer] | None = None,
) -> Run:
    """The run as it stood after event `until` (or after the last one). Decides nothing."""
    return fold(Run(id, graph, reducers=reducers), events, until=until)


def fold(run: Run, events: Iterable[Event], *, until: int | None = None) -> Run:
    """The run with these events taken in."""
    for event in events:
        if until is not None and event.seq > until:
            break
        step = getattr(event, "step", None)
        if step is not None and step not in run.graph.index:
            run.seq, run.at = event.seq, event.at  # of an earlier version of the definition: it is gone
            continue
        evolve(run, event)
    run.points.clear()  # whoever was to be asked about these steps has been
    run.withdrawn.clear()  # the events say it
    return run
