"""Maps: their items start as slots allow, and the step ends with the last of them."""

from __future__ import annotations

from msgspec import UNSET

from penstock.run import asking
from penstock.run.completing import complete
from penstock.run.emit import emit
from penstock.run.events import Event, MapStarted, TaskFailed, TaskStarted
from penstock.run.facts import ItemsCounted, TaskReturned
from penstock.run.ready import enqueue
from penstock.run.state import Run


def counted(run: Run, fact: ItemsCounted, now: float, batch: list[Event]) -> None:
    i = fact.step
    step, count = run.graph.ids[i], len(fact.items)
    emit(run, batch, MapStarted(run.seq + 1, now, step, count, fact.iteration, fact.items))
    close_map(run, i, now, batch)


def close_map(run: Run, i: int, now: float, batch: list[Event]) -> None:
    """End the step when its last item has ended, or when a failed item leaves nothing running."""
    state = run.maps[i]
    step, iteration = run.graph.ids[i], run.iterations.get(i, 1)
    attempt = run.attempts.get(i, 1)
    halted = run.halted
    if state.running or (state.asking and not halted and not _moot(run, i)):
        if not halted and state.failed is None and (state.fired or state.next < state.count):
            enqueue(run, i)
        return
    if state.failed is not None or (halted and state.done < state.count):
        if state.failed is not None:
            error = f"item {state.failed} failed: {state.errors[state.failed]}"
            kind = "unavailable" if state.kind == "unavailable" else "error"
        else:
            error = f"{state.count - state.done} of {state.count} items did not run: {halted}"
            kind = "cancelled"
        emit(run, batch, TaskFailed(run.seq + 1, now, step, error, kind, "", iteration, None, attempt))
    elif state.done == state.count:
        whole = state.outputs if state.outputs is not None else [None] * state.count
        complete(run, TaskReturned(i, UNSET, iteration, None, attempt), whole, now, batch)
    elif not halted:
        enqueue(run, i)


def _moot(run: Run, i: int) -> bool:
    """Whether a map fails whatever is answered: all that is open is whether more items may start."""
    if run.maps[i].failed is None:
        return False
    step = run.graph.ids[i]
    return all(asked.kind == "approval" for asked in run.decisions.values() if asked.step == step)


def start_item(run: Run, i: int, now: float, batch: list[Event]) -> None:
    """Start the next item of an open map, and queue the map again while it may start more."""
    state = run.maps.get(i)
    if state is None or state.failed is not None or run.halted:
        return
    cap = run.graph.workflow.steps[i].max_parallel
    if cap is not None and len(state.running) >= cap:
        return  # the next item to end queues the map again
    if state.fired:
        item = state.fired[-1]
        attempt = state.backoff[item] + 1
    elif state.next < state.count:
        item, attempt = state.next, state.base + 1
    else:
        return
    if run.metered and asking.over_budget(run, i, now, batch):
        return
    if asking.needs_approval(run, i, item):
        if state.fired:
            state.fired.pop()
        return
    if state.fired:
        state.fired.pop()
    step, iteration = run.graph.ids[i], run.iterations.get(i, 1)
    emit(run, batch, TaskStarted(run.seq + 1, now, step, iteration, item, attempt))
    if state.fired or state.next < state.count:
        enqueue(run, i)
