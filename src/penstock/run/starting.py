"""Which steps start, and which are skipped: joins, conditions, slots."""

from __future__ import annotations

from heapq import heappop, heappush

import msgspec

from penstock.run import asking
from penstock.run.control import too_large
from penstock.run.emit import emit
from penstock.run.events import Event, LayerStarted, TaskFailed, TaskSkipped, TaskStarted
from penstock.run.evolve import evolve
from penstock.run.maps import start_item
from penstock.run.ready import enqueue, rank
from penstock.run.release import callers
from penstock.run.scope import look_up
from penstock.run.state import BACKOFF, RUNNING, SKIPPED, SUCCEEDED, WAITING, Run
from penstock.workflow.expr import Failure
from penstock.workflow.graph import ALL_DONE, ALL_SUCCESS, ANY_SUCCESS


def starts_at_once(run: Run, i: int) -> bool:
    """Whether nothing at all stands between this step and its start."""
    graph = run.graph
    return not (
        graph.careful
        or run.metered
        or run.pending[i]
        or run.phase[i]
        or run.pauses
        or i in graph.when
        or run.running >= graph.workflow.config.max_parallel
        or i in run.blamed
        or i in run.passed_over
        or run.decisions
        or run.ending
        or run.points
    )


def start(run: Run, i: int, now: float, batch: list[Event]) -> None:
    graph = run.graph
    layer = graph.layers[i]
    if layer > run.layer:
        event: Event = LayerStarted(run.seq + 1, now, layer)
        evolve(run, event)
        batch.append(event)
    attempt = run.attempts[i] + 1 if i in run.attempts else 1
    event = TaskStarted(run.seq + 1, now, graph.ids[i], run.iterations.get(i, 1), None, attempt)
    evolve(run, event)
    batch.append(event)


def judge_due(run: Run, now: float, batch: list[Event]) -> None:
    """Let each step whose needs have spoken start or be skipped. Skips make more steps due."""
    due, phase, when, barriers = run.due, run.phase, run.graph.when, run.graph.barriers
    at = 0
    while at < len(due):
        i = due[at]
        at += 1
        if phase[i] != WAITING or run.queued[i] or ((barriers or run.preparing) and _barred(run, i)):
            continue
        plain = not (i in run.blamed or i in run.passed_over or run.pending[i])
        skipped = None if plain else _join(run, i)
        if skipped is not None:
            skip(run, i, skipped, now, batch)
        elif i not in when or _condition(run, i, now, batch):
            enqueue(run, i)
    due.clear()


def _barred(run: Run, i: int) -> bool:
    """Whether the step depends on a loop that may turn again, or is being asked about."""
    if run.preparing and (i, -1) in run.preparing:
        return True
    return not all(router in run.settled for router in run.graph.barriers.get(i, ()))


def _join(run: Run, i: int) -> tuple[str, str] | None:
    """None when the step may start; otherwise why not. ("", "") means: not yet."""
    rule, ids = run.graph.joins[i], run.graph.ids
    blamed, passed_over = run.blamed.get(i), run.passed_over.get(i)
    if rule == ANY_SUCCESS:
        if any(_counts_as_success(run, i, need) for need in run.graph.needs[i]):
            return None
        if run.pending[i]:
            return ("", "")
    elif rule == ALL_DONE:
        return ("", "") if run.pending[i] else None
    if blamed is not None:
        return ("upstream_failed", f"needs {ids[blamed]}, which {_how(run, blamed)}")
    if run.pending[i]:
        return ("", "")
    if passed_over is not None and rule in (ALL_SUCCESS, ANY_SUCCESS):
        kind = run.reasons[passed_over][0]
        return (kind, f"needs {ids[passed_over]}, which was skipped")
    return None


def _counts_as_success(run: Run, i: int, need: int) -> bool:
    if need in run.unsettled and need not in callers(run, i):
        return False  # whoever waits for this very step has done what it is needed for
    if run.phase[need] == SUCCEEDED:
        return True
    return run.phase[need] > SUCCEEDED and (
        run.phase[need] != SKIPPED and run.graph.workflow.steps[need].on_error == "continue"
    )


def _how(run: Run, i: int) -> str:
    return "did not run" if run.phase[i] == SKIPPED else "failed"


def skip(run: Run, i: int, why: tuple[str, str], now: float, batch: list[Event]) -> None:
    kind, reason = why
    if kind:
        event = TaskSkipped(run.seq + 1, now, run.graph.ids[i], kind, reason, run.iterations.get(i, 1))  # type: ignore[arg-type]  # kinds come from SkipKind
        emit(run, batch, event)


def _condition(run: Run, i: int, now: float, batch: list[Event]) -> bool:
    """Evaluate `when`. False: the step has been skipped or failed, and the event says why."""
    expression = run.graph.when[i]
    value = expression.evaluate(lambda path: look_up(run, path, i))
    step = run.graph.workflow.steps[i]
    if value is True:
        return True
    if isinstance(value, Failure):
        policy = step.on_expr_error or run.graph.workflow.config.on_expr_error or "halt"
        why = too_large(run, expression.reads) or value.message
        if policy == "halt":
            emit(run, batch, TaskFailed(run.seq + 1, now, step.id, f"when: {why}", "expression"))
            return False
        skip(run, i, ("condition", f"when could not be evaluated: {why}"), now, batch)
        return False
    shown = "false" if value is False else f"{msgspec.json.encode(value).decode()}, not true"
    skip(run, i, ("condition", f"when is {shown}: {expression.source}"), now, batch)
    return False


def fill_slots(run: Run, now: float, batch: list[Event]) -> None:
    """Start ready tasks while there are slots, the most critical first."""
    graph, queued, phase = run.graph, run.queued, run.phase
    order = (run.rank or rank(run))[1]
    ready = run.ready
    slots = graph.workflow.config.max_parallel
    aside: list[int] = []
    while ready and run.running < slots:
        at = heappop(ready)
        i = order[at]
        if not queued[i]:
            continue  # held back since
        if graph.careful or run.metered:
            if run.wave and run.wave.get(i) != run.iterations.get(i, 1):
                aside.append(at)  # it belongs to the next wave
                continue
            if run.metered and phase[i] != RUNNING and asking.over_budget(run, i, now, batch):
                aside.append(at)
                break
            if phase[i] in (WAITING, BACKOFF) and asking.needs_approval(run, i, None):
                queued[i] = 0
                continue
        queued[i] = 0
        if phase[i] == RUNNING:
            start_item(run, i, now, batch)
        elif phase[i] in (WAITING, BACKOFF):
            start(run, i, now, batch)
    for at in aside:
        heappush(ready, at)
