"""The core alone, moved one fact at a time: what an engine would report is said by the test.

After every fact the run is made again from its events; a fold that differs fails the test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import msgspec

import penstock as ps
from penstock.ids import CommandId, RunId, StepId
from penstock.policy import approval
from penstock.run.commands import Command, Decide
from penstock.run.decide import decide
from penstock.run.effects import (
    CheckGate,
    CollectOutputs,
    Effect,
    ExpandMap,
    PrepareCall,
    StartDeadline,
    StartTask,
    StartTimer,
    asks,
    effects,
    owed,
)
from penstock.run.events import CommandAccepted, CommandRefused, DecisionRequired, Event
from penstock.run.facts import (
    BackoffElapsed,
    CallPrepared,
    CommandReceived,
    DecisionExpired,
    Fact,
    GateFinished,
    ItemsCounted,
    OutputsCollected,
    RunReopened,
    RunRequested,
    TaskRaised,
    TaskReturned,
)
from penstock.run.replay import replay
from penstock.run.restore import restore
from penstock.run.state import Run
from penstock.workflow.graph import Graph

ID = RunId("run")


class Core:
    """A run without an engine."""

    def __init__(self, flow: ps.Workflow, *, graph: Graph | None = None) -> None:
        self.graph = graph or flow.graph
        self.run: Any = Run(ID, self.graph)
        self.events: list[Event] = []
        self.todo: list[Effect] = []
        """What was asked for and has not been answered."""
        self.now = 100.0
        self._sent = 0

    @classmethod
    def of(cls, flow: ps.Workflow) -> Self:
        core = cls(flow)
        core.tell(RunRequested({}))
        return core

    def tell(self, fact: Fact) -> list[Event]:
        batch = decide(self.run, fact, self.now)
        self.events += batch
        self.todo += effects(self.run, batch)
        self.todo += asks(self.run)
        assert replay(ID, self.graph, self.events).encoded() == self.run.encoded()
        return batch

    def taken_up(self, *, kept: bool = False) -> Core:
        """The run in another process: from its events, or from a fold that was kept."""
        again = Core.__new__(Core)
        again.graph, again.events, again.todo, again._sent = self.graph, list(self.events), [], self._sent
        again.now = self.now
        if kept:
            snapshot = msgspec.json.decode(self.run.encoded())
            again.run = restore(ID, self.graph, snapshot)
            assert again.run.encoded() == self.run.encoded()
        else:
            again.run = replay(ID, self.graph, self.events)
        due = owed(again.run)
        again.tell(RunReopened("taken up"))
        again.todo += due
        return again

    # --- answers of an engine ---

    def prepared(self, step: str, item: int | None = None, **args: Any) -> DecisionRequired:
        """A call is ready to be shown; returns the question that follows."""
        batch = self.tell(self._call(self._take(PrepareCall, step, item), args))
        found = [event for event in batch if isinstance(event, DecisionRequired)]
        return found[0]

    def _call(self, effect: Any, args: Mapping[str, Any]) -> CallPrepared:
        named = self.run.graph.workflow.steps[effect.step]
        at = (effect.iteration, effect.item, effect.attempt)
        digest = approval.digest(
            run=ID, step=named.id, iteration=effect.iteration, item=effect.item, uses=named.uses, args=args
        )
        return CallPrepared(effect.step, {"uses": named.uses, "args": dict(args)}, digest, *at)

    def returned(self, step: str, output: Any = None, item: int | None = None, **more: Any) -> list[Event]:
        effect = self._take(StartTask, step, item)
        return self.tell(TaskReturned(effect.step, output, effect.iteration, item, effect.attempt, **more))

    def raised(self, step: str, item: int | None = None, error: str = "no", **more: Any) -> list[Event]:
        effect = self._take(StartTask, step, item)
        at = (effect.iteration, item, effect.attempt)
        return self.tell(TaskRaised(effect.step, error, more.pop("kind", "error"), "", *at, **more))

    def counted(self, step: str, items: Sequence[Any]) -> None:
        effect = self._take(ExpandMap, step, None)
        self.tell(ItemsCounted(effect.step, list(items), effect.iteration))

    def checked(self, step: str, *found: str, item: int | None = None, output: Any = None) -> list[Event]:
        """The checks of a gate, each `passed`, `failed` or `unavailable`, with a word of explanation."""
        effect = self._take(CheckGate, step, item)
        checks = tuple(
            {"name": f"check {n}", "status": one.split(":")[0], "detail": one.partition(":")[2], "ms": 1.0}
            for n, one in enumerate(found)
        )
        at = (effect.iteration, item, effect.attempt)
        return self.tell(GateFinished(effect.step, checks, output, *at, {"n": 1}))

    def elapse(self) -> None:
        """Let every timer that is set ring."""
        timers = [effect for effect in self.todo if isinstance(effect, StartTimer)]
        for timer in timers:
            self.todo.remove(timer)
            self.now += timer.delay
            self.tell(BackoffElapsed(timer.step, timer.iteration, timer.item, timer.attempt))

    def expire(self) -> None:
        """Nobody answers in time."""
        deadline = next(effect for effect in self.todo if isinstance(effect, StartDeadline))
        self.todo.remove(deadline)
        self.now = deadline.at
        self.tell(DecisionExpired(deadline.decision))

    def collected(self, **outputs: Any) -> None:
        assert any(isinstance(effect, CollectOutputs) for effect in self.todo)
        self.tell(OutputsCollected(outputs))

    def _take(self, kind: type, step: str, item: int | None) -> Any:
        i = self.run.graph.index[StepId(step)]
        for effect in self.todo:
            if isinstance(effect, kind) and effect.step == i and getattr(effect, "item", None) == item:  # type: ignore[union-attr]
                self.todo.remove(effect)
                return effect
        raise AssertionError(f"nobody asked for {kind.__name__} of {step}, {item}; asked: {self.todo}")

    # --- people ---

    def send(self, command: Command, id: str = "", **fact: Any) -> str:
        """Why it was refused; empty when it was accepted, `again` when it was not heard."""
        self._sent += 1
        command = msgspec.structs.replace(command, id=CommandId(id or f"c{self._sent}"))
        for event in self.tell(CommandReceived(command, **fact)):
            if isinstance(event, CommandRefused):
                return event.reason
            if isinstance(event, CommandAccepted):
                return ""
        return "again"

    def answer(self, verb: str, question: DecisionRequired | None = None, **more: Any) -> str:
        """Answer a question, or the only one there is; then let what was allowed begin."""
        asked = question or self.question
        outputs = more.pop("outputs", {})
        id = more.pop("id", "")
        said = self.send(Decide(decision=asked.decision, verb=verb, **more), id, outputs=outputs)
        self.elapse()
        return said

    # --- looking ---

    @property
    def question(self) -> DecisionRequired:
        (only,) = self.run.decisions.values()
        found: DecisionRequired = only
        return found

    def status(self, step: str) -> str:
        status: str = self.run.step_status(self.run.graph.index[StepId(step)])
        return status

    def of_kind(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def asked(self, kind: type) -> list[Any]:
        return [effect for effect in self.todo if isinstance(effect, kind)]

    def started(self) -> list[tuple[str, int, int | None, int]]:
        """Every start: step, iteration, item, attempt."""
        from penstock.run.events import TaskStarted

        return [(e.step, e.iteration, e.item, e.attempt) for e in self.of_kind(TaskStarted)]
