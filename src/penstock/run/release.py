"""Who waits for whom: counting needs down when steps end, and up again when they re-open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.ids import StepId
from penstock.run.state import (
    ASKING,
    BACKOFF,
    DORMANT,
    FAILED,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    WAITING,
    Place,
    Run,
)
from penstock.workflow.graph import ALL_DONE, ANY_SUCCESS


def release_succeeded(run: Run, i: int) -> None:
    pending, due, joins = run.pending, run.due, run.graph.joins
    for d in run.graph.dependents[i]:
        left = pending[d] = pending[d] - 1
        if not left or joins[d] == ANY_SUCCESS:
            due.append(d)


def release_failed(run: Run, i: int, *, spared: int = -1) -> None:
    """`spared` is a step that was routed to because of the failure."""
    pending, due, joins = run.pending, run.due, run.graph.joins
    for d in run.graph.dependents[i]:
        left = pending[d] = pending[d] - 1
        if d != spared:
            run.blamed.setdefault(d, i)
        if not left or joins[d] not in (ANY_SUCCESS, ALL_DONE):
            due.append(d)  # the failure alone settles it; whatever else it needs


def release_skipped(run: Run, i: int) -> None:
    pending, due = run.pending, run.due
    for d in run.graph.dependents[i]:
        left = pending[d] = pending[d] - 1
        run.passed_over.setdefault(d, i)
        if not left:
            due.append(d)


def reopen(run: Run, body: set[int]) -> None:
    """Let these steps run again as if they had never begun; ids of tasks stay unique."""
    chosen = awake(run, body)
    for i in body:
        undo(run, i)
        forget_tasks(run, i)
    put_to_sleep(run, body, chosen)
    for i in body:
        recount(run, i)
        _hold_back(run, i, body)
    run.first_failure = first_failure(run)
    run.due.extend(sorted(body))


def first_failure(run: Run) -> int:
    """The first step, in the order of the definition, whose failure counts."""
    return min((i for i in run.reasons if counts_as_failed(run, i)), default=-1)


def counts_as_failed(run: Run, i: int) -> bool:
    """A failure that nobody has dealt with."""
    if run.phase[i] != FAILED or i in run.forgiven:
        return False
    return run.graph.workflow.steps[i].on_error != "continue"


def awake(run: Run, body: set[int]) -> set[int]:
    """Those that are not waiting for a route, and were not passed by."""
    return {
        i
        for i in body
        if run.phase[i] != DORMANT and not (run.phase[i] == SKIPPED and run.reasons[i][0] == "not_routed")
    }


def put_to_sleep(run: Run, body: set[int], chosen: set[int], *, spared: int = -1) -> None:
    """Targets wait for a route again, unless the router that chose them does not run again.

    `spared` is where a loop goes back to: it has just been routed to.
    """
    for i in (body & run.graph.dormant) - {spared}:
        arrival = run.arrivals.get(i)
        if i not in chosen or arrival is None or run.graph.index[arrival["from"]] in body:
            run.phase[i] = DORMANT
            run.arrivals.pop(i, None)
            run.left.extend(run.graph.routed.get(i, ()))  # if they have all settled, nobody will choose it


def forget_tasks(run: Run, i: int) -> None:
    """What gates and people said of the tasks of a step."""
    tasks: tuple[dict[Place, Any], ...] = (
        run.tried, run.gate_base, run.checking, run.approved, run.edits, run.resting_until,
    )  # fmt: skip
    for kept in tasks:
        for at in [at for at in kept if at[0] == i]:
            del kept[at]


def drop_questions(run: Run, step: StepId) -> None:
    """Nobody needs an answer about this step any more."""
    for id in [id for id, asked in run.decisions.items() if asked.step == step]:
        del run.decisions[id]


def withdraw_inputs(run: Run, moot: Callable[[Any], bool]) -> None:
    """Nobody waits any more for what tasks asked in the middle of their work."""
    for id in [id for id, asked in run.decisions.items() if asked.kind == "input" and moot(asked)]:
        run.withdrawn.append(run.decisions.pop(id))


def end_inputs(run: Run, step: StepId, item: int | None) -> None:
    """A task is over, and so is what it asked."""
    withdraw_inputs(run, lambda asked: asked.step == step and asked.item == item)


def undo(run: Run, i: int) -> None:
    """Forget that a step ended, or was under way."""
    phase = run.phase[i]
    if phase in (RUNNING, BACKOFF, ASKING, SUCCEEDED, FAILED):
        run.attempt_base[i] = run.attempts[i] = run.attempts.get(i, 1)
    if phase >= SUCCEEDED:
        run.open += 1
    if i in run.maps:
        run.running -= len(run.maps[i].running)
        close_map(run, i)
    elif phase == RUNNING:
        run.running -= 1
    elif phase == BACKOFF:
        run.timers -= 1
    if counts_as_failed(run, i):
        run.failures -= 1
    run.forgiven.discard(i)
    run.settled.discard(i)
    step = run.graph.ids[i]
    run.withdrawn += [asked for asked in run.decisions.values() if asked.step == step]
    drop_questions(run, step)
    run.preparing = {at for at in run.preparing if at[0] != i}
    run.phase[i] = WAITING
    run.ended_at[i] = 0
    run.queued[i] = 0
    run.reasons.pop(i, None)
    run.control.pop(i, None)
    run.unsettled.pop(i, None)
    run.returning.pop(i, None)
    if run.frames:
        run.frames = [frame for frame in run.frames if frame[0] != i]


def close_map(run: Run, i: int) -> None:
    state = run.maps.pop(i)
    run.timers -= len(state.backoff)
    if state.asking:
        drop_questions(run, run.graph.ids[i])
    run.item_base[i] = state.highest


def _hold_back(run: Run, i: int, body: set[int]) -> None:
    """Let the dependents of a re-opened step wait for it again, unless they have begun."""
    for d in run.graph.dependents[i]:
        if d in body:
            continue
        if run.phase[d] in (WAITING, DORMANT):
            run.queued[d] = 0
            run.preparing.discard((d, -1))
            recount(run, d)
            run.due.append(d)  # it may be free to start all the same
        else:
            run.pending[d] += 1


def callers(run: Run, i: int) -> set[int]:
    """Who waits for a detour to this step to return, and who waits for them."""
    found: set[int] = set()
    todo = [i]
    while run.frames and todo:
        at = todo.pop()
        new = {waiting for waiting, step in run.frames if step == at} - found
        found |= new
        todo += new
    return found


def recount(run: Run, i: int) -> None:
    """Count the needs of a re-opened step afresh."""
    run.blamed.pop(i, None)
    run.passed_over.pop(i, None)
    run.pending[i] = 0
    for need in run.graph.needs[i]:
        phase = run.phase[need]
        if phase < SUCCEEDED or (need in run.unsettled and need not in callers(run, i)):
            run.pending[i] += 1
        elif phase == FAILED and run.graph.workflow.steps[need].on_error != "continue":
            if run.arrivals.get(i, {}).get("from") != run.graph.ids[need]:
                run.blamed.setdefault(i, need)
        elif phase == SKIPPED:
            kind = run.reasons[need][0]
            (run.blamed if kind == "upstream_failed" else run.passed_over).setdefault(i, need)
