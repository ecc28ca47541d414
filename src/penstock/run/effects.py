"""What the core asks an engine to do. Imperative; derived from events and state, never stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from penstock.ids import StepId
from penstock.run.commands import Abort
from penstock.run.events import (
    BudgetWarned,
    CommandAccepted,
    DecisionMade,
    Event,
    LayerStarted,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
    WorkflowAborted,
    WorkflowCompleted,
)
from penstock.run.evolve import TIMEOUT
from penstock.run.state import BACKOFF, RUNNING, Run


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
    """Report `BackoffElapsed` after `delay` seconds."""

    step: int
    iteration: int
    item: int | None
    attempt: int
    delay: float


class CancelTasks(_Effect, frozen=True, gc=False):
    """Cancel everything that runs; each task still reports how it ended."""

    reason: str


class CollectOutputs(_Effect, frozen=True, gc=False):
    """Evaluate the workflow's outputs and report them."""


class EndRun(_Effect, frozen=True, gc=False):
    """The last event has been written; let go of everything."""


Effect = StartTask | ExpandMap | StartTimer | CancelTasks | CollectOutputs | EndRun


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
        elif kind is DecisionMade and event.verb == "retry" and event.step is not None:
            asked.append(_again(run, event))
        elif _stops(event):
            asked.append(CancelTasks(run.stop_reason))
        elif kind is WorkflowCompleted or kind is WorkflowAborted:
            asked.append(EndRun())
    if not run.open and run.graph.outputs and not run.ended:
        asked.append(CollectOutputs())
    return asked


def _again(run: Run, event: DecisionMade) -> StartTimer:
    """The wait before a task that someone decided to repeat: none."""
    i = run.graph.index[event.step or StepId("")]
    attempt = run.attempts.get(i, 1) if event.item is None else run.maps[i].backoff[event.item]
    return StartTimer(i, event.iteration, event.item, attempt, 0.0)


def _stops(event: Event) -> bool:
    if isinstance(event, CommandAccepted):
        return isinstance(event.command, Abort)
    return isinstance(event, BudgetWarned) and event.budget == TIMEOUT


def owed(run: Run) -> list[StartTask | ExpandMap | StartTimer]:
    """The tasks, lists and timers that a rebuilt run still waits for: nobody reported on them."""
    asked: list[StartTask | ExpandMap | StartTimer] = []
    if run.ended or run.status_ == "pending":
        return asked
    for i, phase in enumerate(run.phase):
        iteration, attempt = run.iterations.get(i, 1), run.attempts.get(i, 1)
        if i in run.maps:
            state = run.maps[i]
            if state.count < 0:
                asked.append(ExpandMap(i, iteration))
            asked += [StartTask(i, iteration, item, n, run.seq) for item, n in state.running.items()]
            asked += [StartTimer(i, iteration, item, n, 0.0) for item, n in state.backoff.items()]
        elif phase == RUNNING:
            asked.append(StartTask(i, iteration, None, attempt, run.seq))
        elif phase == BACKOFF:
            asked.append(StartTimer(i, iteration, None, attempt, 0.0))
    return asked
