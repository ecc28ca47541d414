"""What follows from a fact: one fact in, one batch of events out.

Pure on purpose. It never reads a clock, never awaits, never logs, never draws a random
number; engines do that. The events it returns are already folded into the run it was
given. It runs once per fact; replay never calls it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, assert_never

import msgspec
from msgspec import UNSET

from penstock.policy import retry as retry_policy
from penstock.run import accept, orphans, reducers
from penstock.run.commands import Decide
from penstock.run.control import control_values, too_large
from penstock.run.events import (
    BudgetWarned,
    CommandAccepted,
    Event,
    LayerStarted,
    MapStarted,
    StateUpdated,
    TaskCompleted,
    TaskFailed,
    TaskSkipped,
    TaskStarted,
    WorkflowAborted,
    WorkflowCompleted,
    WorkflowPaused,
    WorkflowResumed,
    WorkflowStarted,
)
from penstock.run.evolve import TIMEOUT, evolve
from penstock.run.facts import (
    BackoffElapsed,
    CommandReceived,
    Fact,
    ItemsCounted,
    OutputsCollected,
    ProcessLeaving,
    RunReopened,
    RunRequested,
    StorageStalled,
    TaskOrphaned,
    TaskRaised,
    TaskReturned,
    TimeRanOut,
)
from penstock.run.state import ASKING, BACKOFF, DORMANT, ENDED, RUNNING, SKIPPED, SUCCEEDED, WAITING, Run, dig
from penstock.workflow.expr import Failure, Path
from penstock.workflow.graph import ALL_DONE, ALL_SUCCESS, ANY_SUCCESS, bottom_levels

UNCERTAIN = (
    "it may have taken effect, so it is not repeated (`effect: idempotent` or `on_orphan: rerun` allow it)"
)


def decide(run: Run, fact: Fact, now: float) -> list[Event]:
    """Everything that follows from `fact`, in order, already folded into `run`."""
    batch: list[Event] = []
    if type(fact) is TaskReturned and fact.item is None:  # most facts are of this kind
        _complete(run, fact, fact.output, now, batch)
        _advance(run, now, batch)
        return batch
    match fact:
        case TaskReturned():
            _returned(run, fact, now, batch)
        case TaskRaised():
            _raised(run, fact, now, batch)
        case ItemsCounted():
            _counted(run, fact, now, batch)
        case BackoffElapsed():
            _elapsed(run, fact)
        case CommandReceived():
            if run.ended:
                return batch  # its last event stays its last
            output = orphans.given(run, fact.command) if isinstance(fact.command, Decide) else None
            accept.command(run, fact, now, batch)
            if isinstance(fact.command, Decide):
                if output is not None and isinstance(batch[0], CommandAccepted):
                    _returned(run, output, now, batch)
                for i in [i for i, state in run.maps.items() if state.count >= 0]:
                    _close_map(run, i, now, batch)  # its last open item may just have been decided
        case OutputsCollected():
            if run.open == 0 and not run.ended:
                _end(run, fact, now, batch)
            return batch
        case RunRequested():
            event = WorkflowStarted(
                run.seq + 1, now, run.graph.workflow.name, run.graph.hash, fact.inputs, fact.engine,
                fact.parent, fact.durations,
            )  # fmt: skip
            emit(run, batch, event)
        case ProcessLeaving():
            if not run.ended:
                emit(run, batch, WorkflowPaused(run.seq + 1, now, fact.reason, "process"))
        case StorageStalled():
            _stalled(run, fact.reason, now, batch)
        case RunReopened():
            event_ = WorkflowResumed(
                run.seq + 1, now, fact.reason, fact.cause, fact.reopened, fact.overrides, fact.inputs
            )
            emit(run, batch, event_)
            for i, state in run.maps.items():
                if state.count >= 0:
                    _enqueue(run, i)
        case TaskOrphaned():
            orphans.ask(run, fact, now, batch)
        case TimeRanOut():
            if not run.ended and not run.stopping:
                emit(run, batch, BudgetWarned(run.seq + 1, now, TIMEOUT, fact.limit, fact.limit))
        case _:
            assert_never(fact)
    _advance(run, now, batch)
    return batch


def emit(run: Run, batch: list[Event], event: Event) -> None:
    """Conclude: fold the event in and add it to the batch."""
    evolve(run, event)
    batch.append(event)


# --- what came back ---------------------------------------------------------------------------


def _returned(run: Run, fact: TaskReturned, now: float, batch: list[Event]) -> None:
    i, graph = fact.step, run.graph
    step = graph.ids[i]
    if fact.item is not None:
        event = TaskCompleted(run.seq + 1, now, step, fact.output, fact.iteration, fact.item, fact.attempt)
        emit(run, batch, event)
        _close_map(run, i, now, batch)
        return
    _complete(run, fact, fact.output, now, batch)


def _complete(run: Run, fact: TaskReturned, output: Any, now: float, batch: list[Event]) -> None:
    """The step has its output: note what control expressions read of it, and what it sets."""
    i, graph = fact.step, run.graph
    step = graph.ids[i]
    control = control_values(graph, i, output) if i in graph.control else None
    update: tuple[dict[str, Any], dict[str, Any]] | None = None
    if i in graph.sets:
        found = _update(run, i, output)
        if isinstance(found, Failure):
            _failed(run, i, fact, "state", found.message, now, batch)
            return
        update = found
    event = TaskCompleted(run.seq + 1, now, step, fact.output, fact.iteration, None, fact.attempt, control)
    evolve(run, event)
    batch.append(event)
    if update:
        emit(run, batch, StateUpdated(run.seq + 1, now, update[0], update[1], step))


def _update(run: Run, i: int, output: Any) -> tuple[dict[str, Any], dict[str, Any]] | Failure:
    """What a step's `set` writes: undeclared keys go into `context`."""

    def look_up(path: Path) -> Any:
        if path[0] == "output":
            return dig(output, path[1:])
        return run.look_up(path, i)

    delta: dict[str, Any] = {}
    for key, template in run.graph.sets[i]:
        value = template.render(look_up)
        if isinstance(value, Failure):
            return value
        if key in run.graph.workflow.reducers:
            delta[key] = value
        else:
            delta.setdefault(reducers.CONTEXT, {})[key] = value
    try:
        return reducers.split(run, delta)
    except Exception as error:  # noqa: BLE001 - a declared reducer is a user's function
        return Failure(str(error), "set")


def _raised(run: Run, fact: TaskRaised, now: float, batch: list[Event]) -> None:
    i = fact.step
    step = run.graph.workflow.steps[i]
    policy = step.retry or run.graph.workflow.config.retry or retry_policy.ONCE
    again: float | None = None
    error, kind = fact.error, fact.kind
    spent = fact.attempt - (run.attempt_base.get(i, 0) if fact.item is None else run.maps[i].base)
    if retry_policy.ambiguous(kind=fact.kind, effect=fact.effect, on_orphan=step.on_orphan):
        error += f"; {UNCERTAIN}"
    elif retry_policy.retries(policy, attempt=spent, kind=fact.kind, name=fact.name):
        if run.stopping:
            kind, error = "cancelled", f"{error}; not tried again: {run.stop_reason}"
        elif fact.item is None or run.maps[i].failed is None:
            seed = f"{run.id}/{step.id}.{fact.iteration}.{fact.item}"
            again = retry_policy.delay(policy, attempt=spent, seed=seed)
    event = TaskFailed(
        run.seq + 1, now, step.id, error, kind, fact.name, fact.iteration, fact.item, fact.attempt,
        again, fact.trace,
    )  # fmt: skip
    emit(run, batch, event)
    if fact.item is not None:
        _close_map(run, i, now, batch)


def _failed(
    run: Run, i: int, fact: TaskReturned, kind: str, error: str, now: float, batch: list[Event]
) -> None:
    """A task that came back, but whose result cannot be used."""
    step = run.graph.ids[i]
    emit(
        run, batch,
        TaskFailed(run.seq + 1, now, step, error, kind, "", fact.iteration, fact.item, fact.attempt),
    )  # fmt: skip


def _elapsed(run: Run, fact: BackoffElapsed) -> None:
    i = fact.step
    if fact.item is None:
        if run.phase[i] == BACKOFF and run.attempts.get(i, 1) == fact.attempt:
            _enqueue(run, i)
    elif i in run.maps and run.maps[i].backoff.get(fact.item) == fact.attempt:
        run.maps[i].fired.append(fact.item)
        _enqueue(run, i)


def _stalled(run: Run, reason: str, now: float, batch: list[Event]) -> None:
    """Trouble with the journal pauses the run; its end lifts that pause and no other."""
    if run.ended:
        return  # its end is decided; it only has to be written
    if reason and "storage" not in run.pauses:
        emit(run, batch, WorkflowPaused(run.seq + 1, now, f"storage: {reason}", "storage"))
    elif not reason and "storage" in run.pauses:
        emit(run, batch, WorkflowResumed(run.seq + 1, now, "storage is back", "storage"))


# --- maps -------------------------------------------------------------------------------------


def _counted(run: Run, fact: ItemsCounted, now: float, batch: list[Event]) -> None:
    i = fact.step
    step, count = run.graph.ids[i], len(fact.items)
    emit(run, batch, MapStarted(run.seq + 1, now, step, count, fact.iteration, fact.items))
    _close_map(run, i, now, batch)


def _close_map(run: Run, i: int, now: float, batch: list[Event]) -> None:
    """End the step when its last item has ended, or when a failed item leaves nothing running."""
    state = run.maps[i]
    step, iteration = run.graph.ids[i], run.iterations.get(i, 1)
    attempt = run.attempts.get(i, 1)
    if state.running or state.asking:
        if not run.stopping and state.failed is None and (state.fired or state.next < state.count):
            _enqueue(run, i)
        return
    if state.failed is not None or (run.stopping and state.done < state.count):
        if state.failed is not None:
            error = f"item {state.failed} failed: {state.errors[state.failed]}"
        else:
            error = f"{state.count - state.done} of {state.count} items did not run: {run.stop_reason}"
        kind = "error" if state.failed is not None else "cancelled"
        emit(run, batch, TaskFailed(run.seq + 1, now, step, error, kind, "", iteration, None, attempt))
    elif state.done == state.count:
        whole = state.outputs if state.outputs is not None else [None] * state.count
        _complete(run, TaskReturned(i, UNSET, iteration, None, attempt), whole, now, batch)
    elif not run.stopping:
        _enqueue(run, i)


def _start_item(run: Run, i: int, now: float, batch: list[Event]) -> None:
    """Start the next item of an open map, and queue the map again while it may start more."""
    state = run.maps.get(i)
    if state is None or state.failed is not None:
        return
    cap = run.graph.workflow.steps[i].max_parallel
    if cap is not None and len(state.running) >= cap:
        return  # the next item to end queues the map again
    if state.fired:
        item = state.fired.pop()
        attempt = state.backoff[item] + 1
    elif state.next < state.count:
        item, attempt = state.next, state.base + 1
    else:
        return
    step, iteration = run.graph.ids[i], run.iterations.get(i, 1)
    emit(run, batch, TaskStarted(run.seq + 1, now, step, iteration, item, attempt))
    if state.fired or state.next < state.count:
        _enqueue(run, i)


# --- what starts, what is skipped, what ends --------------------------------------------------


def _advance(run: Run, now: float, batch: list[Event]) -> None:
    """Carry the consequences as far as they go, by a queue: a skip cascade may be very deep."""
    if run.status_ in ENDED:
        return
    due = run.due
    if run.stopping:
        if not run.swept:
            _stop(run, now, batch)
    elif len(due) == 1 and not run.ready and _starts_at_once(run, due[0]):
        _start(run, due.pop(), now, batch)  # a chain: nothing to order, nothing to judge
    elif due:
        _judge_due(run, now, batch)
    if run.ready and not run.paused and not run.stopping:
        _fill_slots(run, now, batch)
    if not run.open and not run.unsettled:
        _finish(run, now, batch)


def _starts_at_once(run: Run, i: int) -> bool:
    """Whether nothing at all stands between this step and its start."""
    return not (
        run.pending[i]
        or run.phase[i]
        or run.paused
        or i in run.graph.when
        or run.running >= run.graph.workflow.config.max_parallel
        or i in run.blamed
        or i in run.passed_over
    )


def _start(run: Run, i: int, now: float, batch: list[Event]) -> None:
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


def _judge_due(run: Run, now: float, batch: list[Event]) -> None:
    """Let each step whose needs have spoken start or be skipped. Skips make more steps due."""
    due, phase, when = run.due, run.phase, run.graph.when
    at = 0
    while at < len(due):
        i = due[at]
        at += 1
        if phase[i] != WAITING or run.queued[i]:
            continue
        plain = not (i in run.blamed or i in run.passed_over or run.pending[i])
        skipped = None if plain else _join(run, i)
        if skipped is not None:
            _skip(run, i, skipped, now, batch)
        elif i not in when or _condition(run, i, now, batch):
            _enqueue(run, i)
    due.clear()


def _join(run: Run, i: int) -> tuple[str, str] | None:
    """None when the step may start; otherwise why not. ("", "") means: not yet."""
    rule, ids = run.graph.joins[i], run.graph.ids
    blamed, passed_over = run.blamed.get(i), run.passed_over.get(i)
    if rule == ANY_SUCCESS:
        if any(_counts_as_success(run, need) for need in run.graph.needs[i]):
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


def _counts_as_success(run: Run, need: int) -> bool:
    if need in run.unsettled:
        return False
    if run.phase[need] == SUCCEEDED:
        return True
    return run.phase[need] > SUCCEEDED and (
        run.phase[need] != SKIPPED and run.graph.workflow.steps[need].on_error == "continue"
    )


def _how(run: Run, i: int) -> str:
    return "did not run" if run.phase[i] == SKIPPED else "failed"


def _skip(run: Run, i: int, why: tuple[str, str], now: float, batch: list[Event]) -> None:
    kind, reason = why
    if kind:
        event = TaskSkipped(run.seq + 1, now, run.graph.ids[i], kind, reason, run.iterations.get(i, 1))  # type: ignore[arg-type]  # kinds come from SkipKind
        emit(run, batch, event)


def _condition(run: Run, i: int, now: float, batch: list[Event]) -> bool:
    """Evaluate `when`. False: the step has been skipped or failed, and the event says why."""
    expression = run.graph.when[i]
    value = expression.evaluate(lambda path: run.look_up(path, i))
    step = run.graph.workflow.steps[i]
    if value is True:
        return True
    if isinstance(value, Failure):
        policy = step.on_expr_error or run.graph.workflow.config.on_expr_error or "halt"
        why = too_large(run, expression.reads) or value.message
        if policy == "halt":
            emit(run, batch, TaskFailed(run.seq + 1, now, step.id, f"when: {why}", "expression"))
            return False
        _skip(run, i, ("condition", f"when could not be evaluated: {why}"), now, batch)
        return False
    shown = "false" if value is False else f"{msgspec.json.encode(value).decode()}, not true"
    _skip(run, i, ("condition", f"when is {shown}: {expression.source}"), now, batch)
    return False


def _enqueue(run: Run, i: int) -> None:
    if run.queued[i]:
        return
    ranks = run.rank or _rank(run)
    run.queued[i] = 1
    heappush(run.ready, ranks[0][i])


def _rank(run: Run) -> tuple[list[int], list[int]]:
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


def _fill_slots(run: Run, now: float, batch: list[Event]) -> None:
    """Start ready tasks while there are slots, the most critical first."""
    graph, queued, phase = run.graph, run.queued, run.phase
    order = (run.rank or _rank(run))[1]
    ready = run.ready
    slots = graph.workflow.config.max_parallel
    while ready and run.running < slots:
        i = order[heappop(ready)]
        if not queued[i]:
            continue  # held back since
        queued[i] = 0
        at = phase[i]
        if at in (WAITING, BACKOFF):
            _start(run, i, now, batch)
        elif at == RUNNING:
            _start_item(run, i, now, batch)


def _stop(run: Run, now: float, batch: list[Event]) -> None:
    """The run is being stopped: end everything that is not running right now."""
    run.swept = True
    run.due.clear()
    run.ready.clear()
    kind = "command" if run.stopping == "abort" else "run_ended"
    for i, phase in enumerate(run.phase):
        if phase in (WAITING, DORMANT, ASKING):
            _skip(run, i, (kind, run.stop_reason), now, batch)
        elif phase == BACKOFF:
            attempt, step = run.attempts.get(i, 1), run.graph.ids[i]
            error = f"not tried again: {run.stop_reason}"
            iteration = run.iterations.get(i, 1)
            emit(
                run, batch,
                TaskFailed(run.seq + 1, now, step, error, "cancelled", "", iteration, None, attempt),
            )  # fmt: skip
        elif phase == RUNNING and i in run.maps and run.maps[i].count >= 0:
            _close_map(run, i, now, batch)
    run.due.clear()


def _finish(run: Run, now: float, batch: list[Event]) -> None:
    """Every step has an outcome. Outputs, if any are declared, must be collected first."""
    if run.stopping == "abort":
        emit(run, batch, WorkflowAborted(run.seq + 1, now, run.stop_reason))
    elif not run.graph.outputs:
        _end(run, OutputsCollected({}), now, batch)


def _end(run: Run, fact: OutputsCollected, now: float, batch: list[Event]) -> None:
    """Say honestly how it went."""
    reason = ""
    if run.stopping:
        reason = run.stop_reason
    elif run.failures:
        i = run.first_failure
        reason = f"step {run.graph.ids[i]} failed: {run.reasons[i][1]}"
    elif fact.errors:
        name, error = next(iter(fact.errors.items()))
        reason = f"output {name} could not be produced: {error}"
    produced = any(value is not None for value in fact.outputs.values())
    status = "succeeded" if not reason else "partial" if produced else "failed"
    emit(run, batch, WorkflowCompleted(run.seq + 1, now, status, fact.outputs, reason))  # type: ignore[arg-type]  # one of three literals
