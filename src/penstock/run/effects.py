"""What the core asks an engine to do. Imperative; derived from events and state, never stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from penstock.ids import DecisionId, StepId
from penstock.run.commands import Abort
from penstock.run.events import (
    BudgetWarned,
    CommandAccepted,
    DecisionMade,
    DecisionRequired,
    Event,
    GateChecked,
    GateEscalated,
    GateStarted,
    LayerStarted,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
    WorkflowAborted,
    WorkflowCompleted,
)
from penstock.run.evolve import TIMEOUT
from penstock.run.questions import AGAIN, GIVEN
from penstock.run.state import BACKOFF, RUNNING, Run, place


class _Effect(Struct, frozen=True, gc=False):
    pass


class StartTask(_Effect, frozen=True, gc=False):
    step: int
    iteration: int
    item: int | None
    attempt: int
    seq: int
    """The event that owes it: a `write` may begin only when this is durable."""


class ExpandMap(_Effect, frozen=True, gc=False):
    """Evaluate the `for_each` of a step and report how many items there are."""

    step: int
    iteration: int


class StartTimer(_Effect, frozen=True, gc=False):
    """Report `BackoffElapsed` after `delay` seconds, or at `until`, in seconds since the epoch."""

    step: int
    iteration: int
    item: int | None
    attempt: int
    delay: float
    until: float | None = None
    """Of a wait that began in another process: what is left of it counts."""


class CancelTasks(_Effect, frozen=True, gc=False):
    """Cancel everything that runs; each task still reports how it ended."""

    reason: str


class PrepareCall(_Effect, frozen=True, gc=False):
    """Evaluate the arguments of a task that a person must approve, and report the exact call."""

    step: int
    iteration: int
    item: int | None
    attempt: int


class CheckGate(_Effect, frozen=True, gc=False):
    """Make the checks of a gate on the result that event `seq` carries, after `delay` seconds."""

    step: int
    iteration: int
    item: int | None
    attempt: int
    seq: int
    delay: float = 0.0


class BreakTie(_Effect, frozen=True, gc=False):
    """Ask a tie-breaker for one of these targets."""

    step: int
    iteration: int
    candidates: tuple[StepId, ...]


class StartDeadline(_Effect, frozen=True, gc=False):
    """Report `DecisionExpired` at this time, in seconds since the epoch."""

    decision: DecisionId
    at: float


class AskDecider(_Effect, frozen=True, gc=False):
    """Let a model answer a decision point. Its answer comes as a command."""

    decision: DecisionId


class Replan(_Effect, frozen=True, gc=False):
    """Ask the planner for steps that serve a requirement."""

    decision: DecisionId
    requirement: str
    feeds: str


class RememberFailure(_Effect, frozen=True, gc=False):
    """Keep what is to be learnt from a gate that gave up."""

    id: str
    example: Mapping[str, Any]


class HandInput(_Effect, frozen=True, gc=False):
    """Give whoever asked a question of this digest its answer: `content`, or None when they get none."""

    digest: str
    content: Mapping[str, Any] | None


class CollectOutputs(_Effect, frozen=True, gc=False):
    """Evaluate the workflow's outputs and report them."""


class EndRun(_Effect, frozen=True, gc=False):
    """The last event has been written; let go of everything."""


Effect = (
    StartTask
    | ExpandMap
    | StartTimer
    | CancelTasks
    | PrepareCall
    | CheckGate
    | BreakTie
    | StartDeadline
    | AskDecider
    | Replan
    | RememberFailure
    | HandInput
    | CollectOutputs
    | EndRun
)


def effects(run: Run, events: Sequence[Event]) -> list[Effect]:
    """What a batch asks for, in order. `run` is as the batch left it."""
    asked: list[Effect] = []
    index, maps = run.graph.index, run.graph.for_each
    event: Any  # its type is asked once, by identity: this is the hot path
    for event in events:
        kind = type(event)
        if kind is TaskStarted:
            i = index[event.step]
            if maps and event.item is None and i in maps:
                asked.append(ExpandMap(i, event.iteration))
            else:
                asked.append(StartTask(i, event.iteration, event.item, event.attempt, event.seq))
        elif kind is TaskCompleted or kind is LayerStarted:
            continue
        elif kind is TaskFailed and event.retry_in is not None:
            i = index[event.step]
            asked.append(StartTimer(i, event.iteration, event.item, event.attempt, event.retry_in))
        elif kind is WorkflowCompleted or kind is WorkflowAborted:
            asked.append(EndRun())
        else:
            asked += _seldom(run, event)
    if run.graph.outputs and not run.ended and run.complete:
        asked.append(CollectOutputs())
    return asked


def asks(run: Run) -> list[Effect]:
    """What the core wants to know from the engine and no event tells of. Asked once."""
    wanted: list[Effect] = run.wanted
    run.wanted = []
    return wanted


def _seldom(run: Run, event: Event) -> list[Effect]:
    if _stops(run, event):
        return [CancelTasks(run.stop_reason)]
    match event:
        case GateStarted():
            i = run.graph.index[event.step]
            return [CheckGate(i, event.iteration, event.item, event.attempt, event.seq)]
        case GateChecked(then="recheck"):
            i = run.graph.index[event.step]
            seq = run.checking[place(i, event.item)][0]
            return [CheckGate(i, event.iteration, event.item, event.attempt, seq, event.retry_in)]
        case GateChecked(then="again"):
            i = run.graph.index[event.step]
            return [StartTimer(i, event.iteration, event.item, event.attempt, event.retry_in)]
        case GateEscalated() if event.example:
            return [RememberFailure(f"{run.id}:{event.seq}", event.example)]
        case DecisionRequired():
            return _question(event)
        case DecisionMade(kind="input", verb="withdrawn"):
            return []
        case DecisionMade(kind="input"):
            return [HandInput(event.digest, event.args or {} if event.verb in GIVEN else None)]
        case DecisionMade() if event.step is not None and event.verb in AGAIN:
            return _again(run, event, event.step)
        case _:
            return []


def _question(event: DecisionRequired) -> list[Effect]:
    if event.kind == "replan":
        return [Replan(event.decision, event.call["requirement"], event.call["feeds"])]
    asked: list[Effect] = []
    if event.kind == "ail" and event.call.get("decider") == "model":
        asked.append(AskDecider(event.decision))
    if event.deadline is not None:
        asked.append(StartDeadline(event.decision, event.deadline))
    return asked


def _again(run: Run, event: DecisionMade, step: StepId) -> list[Effect]:
    """The wait before a task that someone allowed to start: none."""
    i = run.graph.index[step]
    if event.item is not None:
        state = run.maps.get(i)
        if state is None or event.item not in state.backoff:
            return []
        return [StartTimer(i, event.iteration, event.item, state.backoff[event.item], 0.0)]
    if run.phase[i] != BACKOFF:
        return []
    return [StartTimer(i, event.iteration, None, run.attempts.get(i, 1), 0.0)]


def _stops(run: Run, event: Event) -> bool:
    if isinstance(event, CommandAccepted):
        return isinstance(event.command, Abort)
    if isinstance(event, DecisionMade):
        return run.stopping == "abort"
    return isinstance(event, BudgetWarned) and event.budget == TIMEOUT


Owed = StartTask | ExpandMap | StartTimer | CheckGate | StartDeadline | AskDecider | Replan


def owed(run: Run) -> list[Owed]:
    """The tasks, lists, timers and checks that a rebuilt run still waits for: nobody reported on them."""
    asked: list[Owed] = []
    if run.ended or run.status_ == "pending":
        return asked
    for i, phase in enumerate(run.phase):
        iteration, attempt = run.iterations.get(i, 1), run.attempts.get(i, 1)
        if i in run.maps:
            state = run.maps[i]
            if state.count < 0:
                asked.append(ExpandMap(i, iteration))
            asked += [_owed_task(run, i, iteration, item, n) for item, n in state.running.items()]
            asked += [_owed_wait(run, i, iteration, item, n) for item, n in state.backoff.items()]
        elif phase == RUNNING:
            asked.append(_owed_task(run, i, iteration, None, attempt))
        elif phase == BACKOFF:
            asked.append(_owed_wait(run, i, iteration, None, attempt))
    for question in run.decisions.values():
        asked += _question(question)  # type: ignore[arg-type]  # only of two kinds
    return asked


def _owed_wait(run: Run, i: int, iteration: int, item: int | None, attempt: int) -> StartTimer:
    return StartTimer(i, iteration, item, attempt, 0.0, run.resting_until.get(place(i, item)))


def _owed_task(run: Run, i: int, iteration: int, item: int | None, attempt: int) -> StartTask | CheckGate:
    """A task that was running, or one that had returned and whose gate was being checked."""
    found = run.checking.get(place(i, item))
    if found is not None:
        return CheckGate(i, iteration, item, attempt, found[0])
    return StartTask(i, iteration, item, attempt, run.seq)
