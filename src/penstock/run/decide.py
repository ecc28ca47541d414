"""What follows from a fact: one fact in, one batch of events out.

Pure on purpose. It never reads a clock, never awaits, never logs, never draws a random
number; engines do that. The events it returns are already folded into the run it was
given. It runs once per fact; replay never calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from penstock.ids import StepId
from penstock.policy import retry as retry_policy
from penstock.run import accept, asking, choosing, gating, inputs, orphans, points
from penstock.run.advance import advance
from penstock.run.choosing import fingerprint
from penstock.run.commands import Decide
from penstock.run.completing import complete
from penstock.run.emit import emit
from penstock.run.ending import end
from penstock.run.events import (
    BudgetWarned,
    CommandAccepted,
    Event,
    GateStarted,
    ModelCalled,
    TaskCompleted,
    TaskFailed,
    WorkflowPaused,
    WorkflowResumed,
    WorkflowStarted,
)
from penstock.run.evolve import TIMEOUT
from penstock.run.facts import (
    BackoffElapsed,
    CallPrepared,
    ChildEscalated,
    CommandReceived,
    DecisionExpired,
    Fact,
    GateFinished,
    InputAsked,
    InputDropped,
    ItemsCounted,
    ModelsAsked,
    OutputsCollected,
    ProcessLeaving,
    Replanned,
    RunReopened,
    RunRequested,
    StorageStalled,
    TaskOrphaned,
    TaskRaised,
    TaskReturned,
    TieBroken,
    TimeRanOut,
)
from penstock.run.maps import close_map, counted
from penstock.run.ready import enqueue
from penstock.run.state import BACKOFF, Run, place

UNCERTAIN = (
    "it may have taken effect, so it is not repeated (`effect: idempotent` or `on_orphan: rerun` allow it)"
)


def decide(run: Run, fact: Fact, now: float) -> list[Event]:
    """Everything that follows from `fact`, in order, already folded into `run`."""
    batch: list[Event] = []
    if type(fact) is TaskReturned:
        if fact.calls:
            _note_calls(run, run.graph.ids[fact.step], fact.calls, now, batch)
        if fact.item is None and fact.step not in run.graph.gates:  # most facts are of this kind
            complete(run, fact, fact.output, now, batch)
            advance(run, now, batch)
            return batch
    match fact:
        case TaskReturned():
            if fact.step in run.graph.gates:
                _begin_gate(run, fact, now, batch)
            else:
                _returned(run, fact, now, batch)
        case TaskRaised():
            _note_calls(run, run.graph.ids[fact.step], fact.calls, now, batch)
            _raised(run, fact, now, batch)
        case ItemsCounted():
            counted(run, fact, now, batch)
        case BackoffElapsed():
            _elapsed(run, fact)
        case CommandReceived():
            if run.ended:
                return batch  # its last event stays its last
            accept.command(run, fact, now, batch)
            if isinstance(fact.command, Decide):
                _decided(run, fact, now, batch)
        case OutputsCollected():
            if run.complete and not run.ended:
                end(run, fact, now, batch)
            return batch
        case RunRequested():
            event = WorkflowStarted(
                run.seq + 1, now, run.graph.workflow.name, run.graph.hash, fact.inputs, fact.engine,
                fact.parent, fact.durations, fact.allowance,
            )  # fmt: skip
            emit(run, batch, event)
        case ProcessLeaving():
            if not run.ended:
                emit(run, batch, WorkflowPaused(run.seq + 1, now, fact.reason, "process"))
        case StorageStalled():
            _stalled(run, fact.reason, now, batch)
        case RunReopened():
            event_ = WorkflowResumed(
                run.seq + 1, now, fact.reason, fact.cause, fact.reopened, fact.overrides, fact.inputs,
                fact.allowance,
            )  # fmt: skip
            emit(run, batch, event_)
            for i, state in run.maps.items():
                if state.count >= 0:
                    enqueue(run, i)
        case TaskOrphaned():
            orphans.ask(run, fact, now, batch)
        case TimeRanOut():
            if not run.ended and not run.stopping:
                emit(run, batch, BudgetWarned(run.seq + 1, now, TIMEOUT, fact.limit, fact.limit))
        case _:
            _adapt(run, fact, now, batch)
    advance(run, now, batch)
    return batch


def _adapt(
    run: Run,
    fact: CallPrepared
    | GateFinished
    | TieBroken
    | ModelsAsked
    | DecisionExpired
    | Replanned
    | ChildEscalated
    | InputAsked
    | InputDropped,
    now: float,
    batch: list[Event],
) -> None:
    """What engines report of approvals, gates, ties, deadlines, planners and questions of tasks."""
    match fact:
        case CallPrepared(harmless=True):
            _start_unasked(run, fact)
        case CallPrepared():
            asking.approve(run, fact, now, batch)
            if fact.item is not None and fact.step in run.maps:
                enqueue(run, fact.step)
                close_map(run, fact.step, now, batch)
        case GateFinished():
            if gating.finished(run, fact, now, batch):
                _returned(run, _passed(fact), now, batch)
            elif fact.item is not None and fact.step in run.maps:
                close_map(run, fact.step, now, batch)
        case TieBroken():
            choosing.tie_broken(run, fact, now, batch)
        case ModelsAsked():
            if not run.ended:
                _note_calls(run, fact.step, fact.calls, now, batch)
        case DecisionExpired():
            asking.expired(run, fact, now, batch)
        case Replanned():
            points.replanned(run, fact, now, batch)
        case ChildEscalated():
            gating.copied(run, fact, now, batch)
        case InputAsked():
            inputs.asked(run, fact, now, batch)
        case InputDropped():
            inputs.dropped(run, fact)
        case _:
            assert_never(fact)


def _note_calls(
    run: Run, step: StepId | None, calls: Sequence[Mapping[str, Any]], now: float, batch: list[Event]
) -> None:
    for call in calls:
        emit(run, batch, ModelCalled(run.seq + 1, now, step, call))


def _begin_gate(run: Run, fact: TaskReturned, now: float, batch: list[Event]) -> None:
    """A result counts only when its gate has been passed; until then it is kept safe."""
    step = run.graph.ids[fact.step]
    event = GateStarted(
        run.seq + 1, now, step, fact.iteration, fact.item, fact.attempt, fact.output, "", fact.usage
    )
    emit(run, batch, event)


def _start_unasked(run: Run, fact: CallPrepared) -> None:
    """Nobody needs to be asked: the task may start as soon as there is a slot."""
    at = place(fact.step, fact.item)
    wanted = at in run.preparing
    run.preparing.discard(at)
    if run.stopping or run.ended or not wanted or not asking.still_to_start(run, fact):
        return
    run.unasked.add(at)
    if fact.item is not None and fact.item in run.maps[fact.step].backoff:
        run.maps[fact.step].fired.append(fact.item)
    enqueue(run, fact.step)


def _passed(fact: GateFinished) -> TaskReturned:
    return TaskReturned(fact.step, fact.output, fact.iteration, fact.item, fact.attempt)


def _decided(run: Run, fact: CommandReceived, now: float, batch: list[Event]) -> None:
    """What an accepted answer means for the task it is about."""
    if batch and isinstance(batch[0], CommandAccepted):
        output = asking.answer(run, fact, now, batch)
        if output is not None:
            _returned(run, output, now, batch)
    for i in [i for i, state in run.maps.items() if state.count >= 0]:
        close_map(run, i, now, batch)  # its last open item may just have been decided


def _returned(run: Run, fact: TaskReturned, now: float, batch: list[Event]) -> None:
    i, graph = fact.step, run.graph
    step = graph.ids[i]
    if fact.item is not None:
        event = TaskCompleted(
            run.seq + 1, now, step, fact.output, fact.iteration, fact.item, fact.attempt, None, "",
            fingerprint(fact.output) if i in graph.looped else "", fact.usage,
        )  # fmt: skip
        emit(run, batch, event)
        close_map(run, i, now, batch)
        return
    complete(run, fact, fact.output, now, batch)


def _raised(run: Run, fact: TaskRaised, now: float, batch: list[Event]) -> None:
    i = fact.step
    step = run.graph.workflow.steps[i]
    policy = step.retry or run.graph.workflow.config.retry or retry_policy.ONCE
    again: float | None = None
    error, kind = fact.error, fact.kind
    spent = fact.attempt - _base(run, i, fact.item)
    if retry_policy.ambiguous(kind=fact.kind, effect=fact.effect, on_orphan=step.on_orphan):
        error += f"; {UNCERTAIN}"
    elif retry_policy.retries(policy, attempt=spent, kind=fact.kind, name=fact.name):
        if run.halted:
            kind, error = "cancelled", f"{error}; not tried again: {run.halted}"
        elif fact.item is None or run.maps[i].failed is None:
            seed = f"{run.id}/{step.id}.{fact.iteration}.{fact.item}"
            again = retry_policy.delay(policy, attempt=spent, seed=seed, asked=fact.retry_after)
    event = TaskFailed(
        run.seq + 1, now, step.id, error, kind, fact.name, fact.iteration, fact.item, fact.attempt,
        again, fact.trace, fact.usage,
    )  # fmt: skip
    emit(run, batch, event)
    if fact.item is not None:
        close_map(run, i, now, batch)


def _base(run: Run, i: int, item: int | None) -> int:
    """Attempts that do not count against `retry`: those before a `retry_step`, or that a gate refused."""
    base = run.attempt_base.get(i, 0) if item is None else run.maps[i].base
    tried = run.tried.get(place(i, item))
    return max(base, tried[-1]["attempt"]) if tried else base


def _elapsed(run: Run, fact: BackoffElapsed) -> None:
    i = fact.step
    if fact.item is None:
        if run.phase[i] == BACKOFF and run.attempts.get(i, 1) == fact.attempt:
            enqueue(run, i)
    elif i in run.maps and run.maps[i].backoff.get(fact.item) == fact.attempt:
        run.maps[i].fired.append(fact.item)
        enqueue(run, i)


def _stalled(run: Run, reason: str, now: float, batch: list[Event]) -> None:
    """Trouble with the journal pauses the run; its end lifts that pause and no other."""
    if run.ended:
        return  # its end is decided; it only has to be written
    if reason and "storage" not in run.pauses:
        emit(run, batch, WorkflowPaused(run.seq + 1, now, f"storage: {reason}", "storage"))
    elif not reason and "storage" in run.pauses:
        emit(run, batch, WorkflowResumed(run.seq + 1, now, "storage is back", "storage"))
