"""A run without an engine: the core alone, with every answer in an order of your choosing.

No loop, no threads, no time but the time that timers ask for. What a task comes to is in its
sketch; which of the things under way happens next is up to `pick`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from msgspec import UNSET

from penstock.errors import Problem
from penstock.ids import RunId, StepId
from penstock.run.commands import Command, InjectTasks
from penstock.run.decide import decide
from penstock.run.effects import (
    CancelTasks,
    CollectOutputs,
    Effect,
    EndRun,
    ExpandMap,
    StartTask,
    StartTimer,
    effects,
    owed,
)
from penstock.run.events import Event, MapStarted, TaskCompleted, TaskFailed
from penstock.run.facts import (
    BackoffElapsed,
    CommandReceived,
    Fact,
    ItemsCounted,
    OutputsCollected,
    RunReopened,
    RunRequested,
    TaskRaised,
    TaskReturned,
)
from penstock.run.replay import replay
from penstock.run.state import SUCCEEDED, Run
from penstock.testing.graphs import EXTRA
from penstock.testing.outcomes import expected
from penstock.testing.sketch import Fate, Node, Sketch, output_of
from penstock.workflow.graph import Graph

AWAY = 3600.0
"""Seconds that pass before a run is taken up again: whatever was waited for is over."""

Pick = Callable[[Sequence[Any]], Any]
"""Chooses one of several."""


def by_chance(seed: int) -> Pick:
    """Choices as good as random, and the same for the same seed."""
    return Random(seed).choice  # noqa: S311 - not a secret


class Simulation:
    """One run of a sketch, moved on one fact at a time."""

    def __init__(self, sketch: Sketch, graph: Graph, pick: Pick, *, id: str = "sim") -> None:
        self.sketch = sketch
        self.nodes: Mapping[str, Node] = {node.id: node for node in sketch.nodes}
        self.pick = pick
        self.now = 1000.0
        self.run = Run(RunId(id), graph)
        self.batches: list[list[Event]] = []
        self.states: list[bytes] = []
        """The run after each batch, encoded."""
        self.under_way: list[Effect] = []
        """What was asked for and has not been answered."""
        self.cancelled = False
        self.ended = False
        self._due: dict[int, float] = {}
        self._calls: Counter[tuple[int, int | None]] = Counter()
        self._outputs: dict[int, Any] = {}

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch]

    def begin(self) -> None:
        self.tell(RunRequested({"yes": True, "no": False}))

    def send(self, command: Command) -> None:
        problems: tuple[Problem, ...] = ()
        if isinstance(command, InjectTasks):
            unknown = [step.uses for step in command.steps if step.uses not in (EXTRA, "py:os:getcwd")]
            problems = tuple(Problem(f"unknown tool {uses!r}") for uses in unknown)
        self.tell(CommandReceived(command, problems))

    def move(self) -> bool:
        """Let one of the things under way happen. False when nothing is."""
        if not self.under_way:
            return False
        effect = self.pick(self.under_way)
        self.under_way.remove(effect)
        self.tell(self._answer(effect))
        return True

    def tell(self, fact: Fact) -> None:
        batch = decide(self.run, fact, self.now)
        if batch:
            self.batches.append(batch)
            self.states.append(self.run.encoded())
        for effect in effects(self.run, batch):
            self._ask(effect)

    def _ask(self, effect: Effect) -> None:
        match effect:
            case CancelTasks():
                self.cancelled = True
                self.under_way = [each for each in self.under_way if not isinstance(each, StartTimer)]
            case EndRun():
                self.ended = True
                self.under_way.clear()
            case StartTimer():
                self._due[id(effect)] = self.now + effect.delay
                self.under_way.append(effect)
            case _:
                self.under_way.append(effect)

    def rebuilt(self, keep: int, graph: Graph, pick: Pick, *, reopened: Sequence[str] = ()) -> Simulation:
        """The run made again from its first `keep` batches and taken up, with what it owes under way.

        Steps that are `reopened` run again, whether they had ended or were under way. A run that
        was stopped goes on; one that has ended otherwise stays ended unless something is reopened.
        """
        again = Simulation(self.sketch, graph, pick, id=self.run.id)
        again.batches = self.batches[:keep]
        again.now = again.batches[-1][-1].at + AWAY
        again.run = run = replay(self.run.id, graph, again.events)
        for event in again.events:
            again._remember(event)
        again.ended = run.ended and not reopened and not run.stopping
        if not again.ended:
            steps = tuple(map(StepId, reopened))
            due = [effect for effect in owed(run) if run.graph.ids[effect.step] not in reopened]
            again.tell(RunReopened("taken up", "fork" if reopened else "process", steps))
            for effect in due:
                again._ask(effect)
        return again

    def _remember(self, event: Event) -> None:
        """What a durable engine would have kept: outputs, and how often each task was called."""
        if isinstance(event, MapStarted):
            self._outputs[self.run.graph.index[event.step]] = [None] * event.count
        if isinstance(event, TaskFailed | TaskCompleted):
            i = self.run.graph.index[event.step]
            self._calls[i, event.item] += getattr(event, "kind", "") != "cancelled"
            if isinstance(event, TaskCompleted) and event.output is not UNSET:
                self._keep(i, event.item, event.output)

    def _answer(self, effect: Effect) -> Fact:
        match effect:
            case StartTask():
                return self._task(effect)
            case ExpandMap():
                node = self._node(effect.step)
                items = node.items if node and node.items is not None else ()
                self._outputs[effect.step] = [None] * len(items)
                return ItemsCounted(effect.step, list(range(len(items))), effect.iteration)
            case StartTimer():
                self.now = max(self.now, self._due.pop(id(effect)))
                return BackoffElapsed(effect.step, effect.iteration, effect.item, effect.attempt)
            case CollectOutputs():
                return OutputsCollected(self._collected())
            case _:
                msg = f"{effect} has no answer"
                raise TypeError(msg)

    def _task(self, effect: StartTask) -> Fact:
        self.now += self.pick((0.0, 0.25, 1.0))
        i, item = effect.step, effect.item
        if self.cancelled and self.pick((True, True, False)):
            return TaskRaised(i, "cancelled", "cancelled", "", effect.iteration, item, effect.attempt)
        self._calls[i, item] += 1
        node = self._node(i)
        if node is None:
            output: Any = None
        else:
            fate = node.fate if item is None or node.items is None else node.items[item]
            failure = _failure(node, fate, self._calls[i, item])
            if failure:
                error, kind = failure
                return TaskRaised(i, error, kind, "", effect.iteration, item, effect.attempt, node.effect)
            output = dict(expected(node.child).outputs) if node.child else output_of(node, fate)
        self._keep(i, item, output)
        return TaskReturned(i, output, effect.iteration, item, effect.attempt)

    def _keep(self, i: int, item: int | None, output: Any) -> None:
        if item is None:
            self._outputs[i] = output
        else:
            self._outputs[i][item] = output

    def _node(self, i: int) -> Node | None:
        """None: an injected step, which always succeeds."""
        return self.nodes.get(self.run.graph.ids[i])

    def _collected(self) -> dict[str, Any]:
        run = self.run
        values: dict[str, Any] = {}
        for name, _ in run.graph.outputs:
            i = run.graph.index[name]  # type: ignore[index]  # a sketch's outputs are named after its steps
            values[name] = self._outputs[i] if run.phase[i] == SUCCEEDED else None
        return values


def _failure(node: Node, fate: Fate, call: int) -> tuple[str, str] | None:
    """The error and its kind with which a call ends; None when it succeeds."""
    if node.child is not None:
        status = expected(node.child).status
        return None if status == "succeeded" else (f"child run ended {status}", "child")
    if call > fate.fails:
        return None
    return ("took too long", "timeout") if fate.hangs else (f"call {call} fails", "error")
