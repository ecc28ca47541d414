"""Fold one event into the run. Replay is this and nothing else.

Never asks an expression, a policy or the definition for an opinion: what was decided is
in the event. Each event costs its step's out-degree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.ids import StepId
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
from penstock.run.state import (
    ASKING,
    BACKOFF,
    FAILED,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    WAITING,
    MapState,
    Run,
)
from penstock.workflow.graph import ALL_DONE, ANY_SUCCESS, extend

TIMEOUT = "timeout"
"""The budget whose end stops a run at once."""


def evolve(run: Run, event: Event) -> Run:
    """Fold one event into the run, in place, and return it."""
    if event.seq != run.seq + 1:
        msg = f"run {run.id} is at event {run.seq}; event {event.seq} does not follow"
        raise ValueError(msg)
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
        elif item == state.next:
            state.next += 1
        state.running[item] = event.attempt
        state.highest = max(state.highest, event.attempt)
        run.running += 1
        return
    phase = run.phase
    if phase[i] == BACKOFF:
        run.timers -= 1
    phase[i] = RUNNING
    if event.attempt != 1:
        run.attempts[i] = event.attempt
    else:
        run.openings += 1
    if i in run.graph.for_each:
        run.maps[i] = MapState(run.item_base.get(i, 0))
    else:
        run.running += 1


def _complete(run: Run, event: TaskCompleted) -> None:
    i = run.graph.index[event.step]
    if event.item is not None:
        state = run.maps[i]
        run.tasks.append(event.seq)
        if event.item in state.running:
            del state.running[event.item]
            run.running -= 1
        else:
            state.asking.pop(event.item, None)
        state.done += 1
        if i in run.graph.control or i in run.graph.sets:
            if state.outputs is None:
                state.outputs = [None] * state.count
            state.outputs[event.item] = event.output
        return
    if i in run.maps:
        _close_map(run, i)
    else:
        run.tasks.append(event.seq)
        if run.phase[i] == RUNNING:
            run.running -= 1
    run.phase[i] = SUCCEEDED
    run.ended_at[i] = event.seq
    run.open -= 1
    if event.control is not None:
        run.control[i] = event.control
    if i in run.graph.routers:
        run.unsettled.add(i)
    else:
        _release_succeeded(run, i)


def _fail(run: Run, event: TaskFailed) -> None:
    i = run.graph.index[event.step]
    run.tasks.append(event.seq)
    if event.item is not None:
        _fail_item(run, i, event.item, event)
        return
    if i in run.maps:
        _close_map(run, i)
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
        return
    run.phase[i] = FAILED
    run.ended_at[i] = event.seq
    run.open -= 1
    run.reasons[i] = (event.kind, event.error)
    if run.graph.workflow.steps[i].on_error == "continue":
        _release_succeeded(run, i)
        return
    run.failures += 1
    if run.first_failure < 0:
        run.first_failure = i
    if i in run.graph.routers:
        run.unsettled.add(i)
    else:
        _release_failed(run, i)


def _fail_item(run: Run, i: int, item: int, event: TaskFailed) -> None:
    state = run.maps[i]
    if item in state.running:
        del state.running[item]
        run.running -= 1
    elif item in state.backoff:
        del state.backoff[item]
        run.timers -= 1
    else:
        state.asking.pop(item, None)
    if event.retry_in is not None:
        state.backoff[item] = event.attempt
        run.timers += 1
        return
    if run.stopping and event.kind == "cancelled":
        return  # it did not fail; it was not let finish
    state.done += 1
    state.errors[item] = event.error
    if state.failed is None and run.graph.workflow.steps[i].on_item_error == "fail":
        state.failed = item


def _close_map(run: Run, i: int) -> None:
    state = run.maps.pop(i)
    run.timers -= len(state.backoff)
    run.item_base[i] = state.highest


def _skip(run: Run, event: TaskSkipped) -> None:
    i = run.graph.index[event.step]
    if run.phase[i] == BACKOFF:
        run.timers -= 1
    elif run.phase[i] == ASKING:
        _drop_questions(run, event.step)
    run.phase[i] = SKIPPED
    run.ended_at[i] = event.seq
    run.open -= 1
    run.reasons[i] = (event.kind, event.reason)
    if event.kind == "upstream_failed":
        _release_failed(run, i)
    else:
        _release_skipped(run, i)


def _release_succeeded(run: Run, i: int) -> None:
    pending, due, joins = run.pending, run.due, run.graph.joins
    for d in run.graph.dependents[i]:
        left = pending[d] = pending[d] - 1
        if not left or joins[d] == ANY_SUCCESS:
            due.append(d)


def _release_failed(run: Run, i: int) -> None:
    pending, due, joins = run.pending, run.due, run.graph.joins
    for d in run.graph.dependents[i]:
        left = pending[d] = pending[d] - 1
        run.blamed.setdefault(d, i)
        if not left or joins[d] not in (ANY_SUCCESS, ALL_DONE):
            due.append(d)  # the failure alone settles it; whatever else it needs


def _release_skipped(run: Run, i: int) -> None:
    pending, due = run.pending, run.due
    for d in run.graph.dependents[i]:
        left = pending[d] = pending[d] - 1
        run.passed_over.setdefault(d, i)
        if not left:
            due.append(d)


def _settle(run: Run, event: RouteDecided) -> None:
    """A router has chosen. The parts that re-open a loop body belong to adaptive control."""
    i = run.graph.index[event.step]
    run.unsettled.discard(i)
    if run.phase[i] == SUCCEEDED:
        _release_succeeded(run, i)
    else:
        _release_failed(run, i)
    if event.target is not None and event.target in run.graph.index:
        target = run.graph.index[event.target]
        run.phase[target] = WAITING
        run.due.append(target)


def _obey(run: Run, command: Command) -> None:
    run.commands[command.id] = ""
    match command:
        case Abort():
            run.stopping, run.stop_reason = "abort", command.reason or "aborted by command"
        case ModifyArgs():
            run.overrides.setdefault(run.graph.index[command.step], {}).update(command.args)
        case RetryStep():
            _retry(run, run.graph.index[command.step])
        case _:
            pass  # what follows from it comes as events of its own


def _retry(run: Run, first: int) -> None:
    """Open a failed step again, and everything that was skipped because it failed."""
    body = {first}
    stack = [first]
    dependents = run.graph.dependents
    while stack:
        for d in dependents[stack.pop()]:
            if d not in body and run.phase[d] == SKIPPED and run.reasons[d][0] == "upstream_failed":
                body.add(d)
                stack.append(d)
    _reopen(run, body)


def _reopen(run: Run, body: set[int]) -> None:
    """Let these steps run again as if they had never begun; ids of tasks stay unique."""
    steps = run.graph.workflow.steps
    for i in body:
        _undo(run, i)
    for i in body:
        _recount(run, i)
        _hold_back(run, i, body)
    failed = (i for i in run.reasons if run.phase[i] == FAILED and steps[i].on_error != "continue")
    run.first_failure = min(failed, default=-1)
    run.due.extend(sorted(body))


def _drop_questions(run: Run, step: StepId) -> None:
    """Nobody needs an answer about this step any more."""
    for id in [id for id, asked in run.decisions.items() if asked.step == step]:
        del run.decisions[id]


def _undo(run: Run, i: int) -> None:
    """Forget that a step ended, or was under way."""
    phase = run.phase[i]
    if phase in (RUNNING, BACKOFF, ASKING, SUCCEEDED, FAILED):
        run.attempt_base[i] = run.attempts[i] = run.attempts.get(i, 1)
    if phase >= SUCCEEDED:
        run.open += 1
    if i in run.maps:
        run.running -= len(run.maps[i].running)
        _close_map(run, i)
    elif phase == RUNNING:
        run.running -= 1
    elif phase == BACKOFF:
        run.timers -= 1
    if phase == FAILED and run.graph.workflow.steps[i].on_error != "continue":
        run.failures -= 1
    _drop_questions(run, run.graph.ids[i])
    run.phase[i] = WAITING
    run.ended_at[i] = 0
    run.queued[i] = 0
    run.reasons.pop(i, None)
    run.control.pop(i, None)
    run.unsettled.discard(i)


def _hold_back(run: Run, i: int, body: set[int]) -> None:
    """Let the dependents of a re-opened step wait for it again, unless they have begun."""
    for d in run.graph.dependents[i]:
        if d in body:
            continue
        if run.phase[d] == WAITING:
            run.queued[d] = 0
            _recount(run, d)
            run.due.append(d)  # it may be free to start all the same
        else:
            run.pending[d] += 1


def _recount(run: Run, i: int) -> None:
    """Count the needs of a re-opened step afresh."""
    run.blamed.pop(i, None)
    run.passed_over.pop(i, None)
    run.pending[i] = 0
    for need in run.graph.needs[i]:
        phase = run.phase[need]
        if phase < SUCCEEDED or need in run.unsettled:
            run.pending[i] += 1
        elif phase == FAILED and run.graph.workflow.steps[need].on_error != "continue":
            run.blamed.setdefault(i, need)
        elif phase == SKIPPED:
            kind = run.reasons[need][0]
            (run.blamed if kind == "upstream_failed" else run.passed_over).setdefault(i, need)


def _grow(run: Run, event: DagChanged) -> None:
    before = len(run.graph.ids)
    run.graph = extend(run.graph, event.added)
    run.injected.extend(event.added)
    added = len(run.graph.ids) - before
    run.phase.extend(bytes(added))
    run.queued.extend(bytes(added))
    run.pending.extend([0] * added)
    run.ended_at.extend([0] * added)
    run.open += added
    run.rank = None  # the order of starting has changed; it is made again, with the queue, when next needed
    for i in range(before, len(run.graph.ids)):
        _recount(run, i)
        run.due.append(i)
    for step, values in event.control.items():
        i = run.graph.index[step]
        run.control[i] = {**run.control.get(i, {}), **values}


# --- the events that come once or seldom ------------------------------------------------------


def _layer(run: Run, event: LayerStarted) -> None:
    run.layer = event.layer


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


def _pause(run: Run, event: WorkflowPaused) -> None:
    run.pauses.add(event.by)
    run.reason = event.reason


def _resume(run: Run, event: WorkflowResumed) -> None:
    was = run.status_
    run.pauses.discard(event.by)
    if event.by in ("process", "fork"):
        run.pauses.discard("storage")  # it was another process's trouble
    run.reason, run.status_ = "", "running"
    if run.stopping and was != "running":
        _unstop(run)
    if event.inputs is not None:
        run.inputs = event.inputs
    if event.reopened:
        _reopen(run, {run.graph.index[step] for step in event.reopened})
    for step, args in event.overrides.items():
        run.overrides.setdefault(run.graph.index[step], {}).update(args)


def _unstop(run: Run) -> None:
    """Take back a stop: what it cancelled or kept from starting is open again."""
    stopped = {
        i
        for i, (kind, reason) in run.reasons.items()
        if kind == "cancelled" or (run.phase[i] == SKIPPED and reason == run.stop_reason)
    }
    run.stopping, run.stop_reason, run.swept = "", "", False
    _reopen(run, stopped)


def _end(run: Run, event: WorkflowCompleted) -> None:
    run.status_, run.outputs, run.reason = event.status, event.outputs, event.reason


def _abort(run: Run, event: WorkflowAborted) -> None:
    run.status_, run.reason = "aborted", event.reason


def _warn(run: Run, event: BudgetWarned) -> None:
    if event.budget == TIMEOUT and event.used >= event.limit:
        run.stopping, run.stop_reason = "timeout", f"timed out after {event.limit:g} s"


def _ask(run: Run, event: DecisionRequired) -> None:
    run.decisions[event.decision] = event
    if event.step is None:
        return
    i = run.graph.index[event.step]
    if event.item is not None:
        state = run.maps[i]
        state.asking[event.item] = state.running.pop(event.item)
        run.running -= 1
    else:
        if run.phase[i] == RUNNING:
            run.running -= 1
        run.phase[i] = ASKING


def _answer(run: Run, event: DecisionMade) -> None:
    asked = run.decisions.pop(event.decision, None)
    if asked is None or asked.step is None or event.verb != "retry":
        return
    i = run.graph.index[asked.step]
    if asked.item is not None:
        state = run.maps[i]
        state.backoff[asked.item] = state.asking.pop(asked.item)
    else:
        run.phase[i] = BACKOFF
        run.attempts[i] = run.attempts.get(i, 1)
    run.timers += 1


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
    DecisionRequired: _ask,
    DecisionMade: _answer,
    RouteDecided: _settle,
    CommandAccepted: _accept,
    CommandRefused: _refuse,
    DagChanged: _grow,
    Checkpointed: _note,
    GateChecked: _note,
    GateEscalated: _note,
    ModelCalled: _note,
    SpeculationStarted: _note,
    SpeculationUsed: _note,
    SpeculationDiscarded: _note,
}
"""By type, because this is the hottest line there is; a test checks that no event is missing."""
