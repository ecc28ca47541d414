"""Fold one event into the run. Replay is this and nothing else.

Never asks an expression, a policy or the definition for an opinion: what was decided is
in the event. Each event costs its step's out-degree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.run import reducers
from penstock.run.commands import Abort, Command, ModifyArgs, RetryStep
from penstock.run.events import (
    BudgetWarned,
    Checkpointed,
    CommandAccepted,
    CommandRefused,
    DagChanged,
    DecisionMade,
    DecisionRequired,
    Event,
    GateChecked,
    GateEscalated,
    GateStarted,
    LayerStarted,
    MapStarted,
    ModelCalled,
    RouteDecided,
    SpeculationDiscarded,
    SpeculationStarted,
    SpeculationUsed,
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
from penstock.run.map_state import MapState
from penstock.run.questions import answer, ask, begin_gate, check_gate
from penstock.run.release import (
    close_map,
    drop_questions,
    end_inputs,
    recount,
    release_failed,
    release_skipped,
    release_succeeded,
    reopen,
    withdraw_inputs,
)
from penstock.run.state import (
    ASKING,
    BACKOFF,
    DORMANT,
    FAILED,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    WAITING,
    Injection,
    Run,
    place,
)
from penstock.run.turns import finished, go_on, settled, take_route
from penstock.run.usage import count_afresh, count_call, count_usage, meter
from penstock.workflow.graph import extend

KEPT_PREVIEWS = 12
"""Beginnings of outputs that are kept for whoever is asked."""

TIMEOUT = "timeout"
"""The budget whose end stops a run at once."""


def evolve(run: Run, event: Event) -> Run:
    """Fold one event into the run, in place, and return it."""
    if event.seq != run.seq + 1:
        msg = f"run {run.id} is at event {run.seq}; event {event.seq} does not follow"
        raise ValueError(msg)
    if run.metered:
        meter(run, event)
    run.seq = event.seq
    run.at = event.at
    _FOLDS[type(event)](run, event)
    return run


def _start(run: Run, event: TaskStarted) -> None:
    i = run.graph.index[event.step]
    item = event.item
    if item is not None:
        state = run.maps[i]
        if item in state.backoff:
            del state.backoff[item]
            run.timers -= 1
            run.resting_until.pop((i, item), None)
        elif item == state.next:
            state.next += 1
        state.running[item] = event.attempt
        state.highest = max(state.highest, event.attempt)
        run.running += 1
        run.calls += 1
        return
    phase = run.phase
    if phase[i] == BACKOFF:
        run.timers -= 1
        run.resting_until.pop((i, -1), None)
    phase[i] = RUNNING
    if event.attempt != 1:
        run.attempts[i] = event.attempt
    else:
        run.attempts.pop(i, None)
        run.openings += 1
    if i in run.graph.for_each:
        run.maps[i] = MapState(run.item_base.get(i, 0))
    else:
        run.running += 1
        run.calls += 1


def _complete(run: Run, event: TaskCompleted) -> None:
    i = run.graph.index[event.step]
    if run.decisions:
        end_inputs(run, event.step, event.item)
    if event.item is not None:
        _complete_item(run, i, event.item, event)
        return
    if i in run.maps:
        close_map(run, i)
    else:
        run.tasks.append(event.seq)
        if run.phase[i] == RUNNING:
            run.running -= 1
    run.phase[i] = SUCCEEDED
    run.ended_at[i] = event.seq
    run.open -= 1
    if event.control is not None:
        run.control[i] = event.control
    if event.usage:
        count_usage(run, event.step, event.usage)
    if event.print:
        run.prints[i] = event.print
    if event.preview:
        run.previews.pop(i, None)
        run.previews[i] = event.preview
        if len(run.previews) > KEPT_PREVIEWS:
            del run.previews[next(iter(run.previews))]
    if run.checking or run.approved:
        _forget(run, i, None)
    if i in run.graph.points:
        run.points.append(i)
    if i in run.graph.routers:
        run.unsettled[i] = ""
        run.choosing.append(i)
    else:
        release_succeeded(run, i)
        if run.returning or run.frames:
            finished(run, i)


def _complete_item(run: Run, i: int, item: int, event: TaskCompleted) -> None:
    state = run.maps[i]
    run.tasks.append(event.seq)
    if item in state.running:
        del state.running[item]
        run.running -= 1
    else:
        state.asking.pop(item, None)
    state.done += 1
    if i in run.graph.control or i in run.graph.sets:
        if state.outputs is None:
            state.outputs = [None] * state.count
        state.outputs[item] = event.output
    if event.print:
        state.prints[item] = event.print
    if event.usage:
        count_usage(run, event.step, event.usage)
    _forget(run, i, item)


def _forget(run: Run, i: int, item: int | None) -> None:
    """The task is over: what a person allowed for it holds no longer."""
    at = place(i, item)
    run.checking.pop(at, None)
    run.approved.pop(at, None)
    run.edits.pop(at, None)


def _fail(run: Run, event: TaskFailed) -> None:
    i = run.graph.index[event.step]
    run.tasks.append(event.seq)
    if event.usage:
        count_usage(run, event.step, event.usage)
    if run.decisions:
        end_inputs(run, event.step, event.item)
    if event.item is not None:
        _fail_item(run, i, event.item, event)
        return
    if i in run.maps:
        close_map(run, i)
    elif run.phase[i] == RUNNING:
        run.running -= 1
    elif run.phase[i] == BACKOFF:
        run.timers -= 1
    elif run.phase[i] == WAITING:
        run.attempts[i] = 0  # its condition could not be evaluated: it never ran
    if event.retry_in is not None:
        run.phase[i] = BACKOFF
        run.timers += 1
        run.attempts[i] = event.attempt
        run.resting_until[i, -1] = event.at + event.retry_in
        return
    run.phase[i] = FAILED
    run.ended_at[i] = event.seq
    run.open -= 1
    run.reasons[i] = (event.kind, event.error)
    _forget(run, i, None)
    run.points.append(i)
    passes = run.graph.workflow.steps[i].on_error == "continue"
    if not passes:
        run.failures += 1
        if run.first_failure < 0:
            run.first_failure = i
    if i in run.graph.routers:
        run.unsettled[i] = ""
        run.choosing.append(i)
        return
    (release_succeeded if passes else release_failed)(run, i)
    if run.returning or run.frames:
        finished(run, i)


def _fail_item(run: Run, i: int, item: int, event: TaskFailed) -> None:
    state = run.maps[i]
    if item in state.running:
        del state.running[item]
        run.running -= 1
    elif item in state.backoff:
        del state.backoff[item]
        run.timers -= 1
    elif item == state.next:
        state.next += 1  # its call could not even be shown
    else:
        state.asking.pop(item, None)
    if event.retry_in is not None:
        state.backoff[item] = event.attempt
        run.timers += 1
        run.resting_until[i, item] = event.at + event.retry_in
        return
    if run.stopping and event.kind == "cancelled":
        return  # it did not fail; it was not let finish
    _forget(run, i, item)
    state.done += 1
    state.errors[item] = event.error
    if state.failed is None and run.graph.workflow.steps[i].on_item_error == "fail":
        state.failed, state.kind = item, event.kind


def _skip(run: Run, event: TaskSkipped) -> None:
    i = run.graph.index[event.step]
    if run.phase[i] == BACKOFF:
        run.timers -= 1
    elif run.phase[i] == ASKING:
        drop_questions(run, event.step)
    run.phase[i] = SKIPPED
    run.ended_at[i] = event.seq
    run.open -= 1
    run.reasons[i] = (event.kind, event.reason)
    run.unsettled.pop(i, None)
    _forget(run, i, None)
    (release_failed if event.kind == "upstream_failed" else release_skipped)(run, i)
    if i in run.graph.routers:
        settled(run, i)
    elif run.returning or run.frames:
        finished(run, i)


def _obey(run: Run, command: Command) -> None:
    run.commands[command.id] = ""
    match command:
        case Abort():
            run.stopping, run.stop_reason = "abort", command.reason or "aborted by command"
        case ModifyArgs():
            i = run.graph.index[command.step]
            run.overrides.setdefault(i, {}).update(command.args)
            for at in [at for at in run.approved if at[0] == i]:
                del run.approved[at]  # it was for another call
            for at in [at for at in run.edits if at[0] == i]:  # the last word counts
                run.edits[at] = {k: v for k, v in run.edits[at].items() if k not in command.args}
        case RetryStep():
            _retry(run, run.graph.index[command.step])
        case _:
            pass  # what follows from it comes as events of its own


def _retry(run: Run, first: int) -> None:
    """Open a failed step again, and everything that was skipped because it failed."""
    body = {first}
    stack = [first]
    while stack:
        for d in _after(run, stack.pop()):
            if d not in body and run.phase[d] == SKIPPED and run.reasons[d][0] == "upstream_failed":
                body.add(d)
                stack.append(d)
    reopen(run, body)


def _after(run: Run, i: int) -> tuple[int, ...]:
    router = run.graph.routers.get(i)
    return run.graph.dependents[i] + (router.forward if router else ())


def _grow(run: Run, event: DagChanged) -> None:
    before = len(run.graph.ids)
    run.graph = extend(run.graph, event.added, feeds=event.feeds)
    run.metered = run.metered or run.graph.metered
    run.graph.guard(run.graph.index[step] for step in event.guarded)
    run.injected.append(Injection(event.added, event.feeds, event.guarded))
    added = len(run.graph.ids) - before
    run.phase.extend(bytes(added))
    run.queued.extend(bytes(added))
    run.pending.extend([0] * added)
    run.ended_at.extend([0] * added)
    run.open += added
    run.rank = None  # the order of starting has changed; it is made again, with the queue, when next needed
    for i in range(before, len(run.graph.ids)):
        if i in run.graph.dormant:
            run.phase[i] = DORMANT
        recount(run, i)
        run.due.append(i)
    for step, args in event.feeds.items():
        i = run.graph.index[step]
        run.overrides.setdefault(i, {}).update(args)
        run.queued[i] = 0
        run.preparing.discard((i, -1))
        recount(run, i)
        run.due.append(i)
    for step, values in event.control.items():
        i = run.graph.index[step]
        run.control[i] = {**run.control.get(i, {}), **values}


# --- the events that come once or seldom ------------------------------------------------------


def _layer(run: Run, event: LayerStarted) -> None:
    run.layer = event.layer
    if event.wave:
        steps = [run.graph.index[step] for step in event.wave]
        run.wave = {i: run.iterations.get(i, 1) for i in steps}


def _map(run: Run, event: MapStarted) -> None:
    state = run.maps[run.graph.index[event.step]]
    state.count, state.seq = event.count, event.seq


def _update(run: Run, event: StateUpdated) -> None:
    reducers.fold(run, event.delta, event.values)


def _begin(run: Run, event: WorkflowStarted) -> None:
    run.status_ = "running"
    run.started_at = event.at
    run.inputs, run.engine, run.parent = event.inputs, event.engine, event.parent
    run.durations = event.durations
    if event.allowance:
        run.allowance, run.metered = event.allowance, True


def _pause(run: Run, event: WorkflowPaused) -> None:
    run.pauses.add(event.by)
    run.reason = event.reason


def _resume(run: Run, event: WorkflowResumed) -> None:
    was = run.status_
    run.pauses.discard(event.by)
    if event.by == "fork":
        run.started_at = event.at  # what came before took another run's time
    if event.by in ("process", "fork"):
        run.pauses.discard("storage")  # it was another process's trouble
        withdraw_inputs(run, lambda _asked: True)  # who asked has gone; a task that is done again asks again
    run.reason, run.status_, run.then = "", "running", ""
    if run.stopping and was != "running":
        _unstop(run)
    if event.inputs is not None:
        run.inputs = event.inputs
    if event.allowance is not None:
        count_afresh(run, event.allowance)
    if event.reopened:
        run.ending = run.shortfall = run.swept = ""
        reopen(run, {run.graph.index[step] for step in event.reopened})
    for step, args in event.overrides.items():
        run.overrides.setdefault(run.graph.index[step], {}).update(args)


def _unstop(run: Run) -> None:
    """Take back a stop: what it cancelled or kept from starting is open again."""
    stopped = {
        i
        for i, (kind, reason) in run.reasons.items()
        if kind == "cancelled" or (run.phase[i] == SKIPPED and reason == run.stop_reason)
    }
    run.stopping, run.stop_reason, run.swept = "", "", ""
    reopen(run, stopped)
    go_on(run)


def _end(run: Run, event: WorkflowCompleted) -> None:
    run.status_, run.outputs, run.reason, run.then = event.status, event.outputs, event.reason, event.then


def _abort(run: Run, event: WorkflowAborted) -> None:
    run.status_, run.reason = "aborted", event.reason


def _warn(run: Run, event: BudgetWarned) -> None:
    run.warned.add(event.budget if event.step is None else f"{event.step}/{event.budget}")
    if event.budget == TIMEOUT and event.used >= event.limit:
        run.stopping, run.stop_reason = "timeout", f"timed out after {event.limit:g} s"


def _escalate(run: Run, event: GateEscalated) -> None:
    if event.child:
        run.copied.add(event.child)


def _accept(run: Run, event: CommandAccepted) -> None:
    _obey(run, event.command)


def _refuse(run: Run, event: CommandRefused) -> None:
    run.commands[event.id] = event.reason


def _note(_run: Run, _event: Event) -> None:
    """On the record, and nothing else."""


_FOLDS: dict[type, Callable[[Run, Any], None]] = {
    TaskStarted: _start,
    TaskCompleted: _complete,
    TaskFailed: _fail,
    TaskSkipped: _skip,
    LayerStarted: _layer,
    MapStarted: _map,
    StateUpdated: _update,
    WorkflowStarted: _begin,
    WorkflowPaused: _pause,
    WorkflowResumed: _resume,
    WorkflowCompleted: _end,
    WorkflowAborted: _abort,
    BudgetWarned: _warn,
    DecisionRequired: ask,
    DecisionMade: answer,
    RouteDecided: take_route,
    CommandAccepted: _accept,
    CommandRefused: _refuse,
    DagChanged: _grow,
    Checkpointed: _note,
    GateStarted: begin_gate,
    GateChecked: check_gate,
    GateEscalated: _escalate,
    ModelCalled: count_call,
    SpeculationStarted: _note,
    SpeculationUsed: _note,
    SpeculationDiscarded: _note,
}
"""By type, because this is the hottest line there is; a test checks that no event is missing."""
