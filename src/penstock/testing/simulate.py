"""A run without an engine: the core alone, with every answer in an order of your choosing.

No loop, no threads, no time but the time that timers ask for. What a task comes to is in its
sketch; which of the things under way happens next is up to `pick`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any
from zlib import crc32

from msgspec import UNSET, Struct

from penstock.errors import Problem
from penstock.ids import CommandId, DecisionId, RunId, StepId
from penstock.run.commands import Command, Decide, InjectTasks
from penstock.run.decide import decide
from penstock.run.effects import (
    BreakTie,
    CancelTasks,
    CollectOutputs,
    Effect,
    EndRun,
    ExpandMap,
    HandInput,
    PrepareCall,
    StartTask,
    StartTimer,
    asks,
    effects,
    owed,
)
from penstock.run.events import DecisionRequired, Event, MapStarted, TaskCompleted, TaskFailed
from penstock.run.facts import (
    BackoffElapsed,
    CallPrepared,
    CommandReceived,
    Fact,
    InputAsked,
    ItemsCounted,
    OutputsCollected,
    RunReopened,
    RunRequested,
    TaskRaised,
    TaskReturned,
    TieBroken,
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


class Answer(Struct, frozen=True):
    """Someone is going to answer a question."""

    decision: DecisionId


class Simulation:
    """One run of a sketch, moved on one fact at a time.

    What tie-breakers and people say depends on who asks and when in the run, and on nothing else.
    """

    def __init__(
        self, sketch: Sketch, graph: Graph, pick: Pick, *, id: str = "sim", inquires: bool = False
    ) -> None:
        """With `inquires`, some tasks ask a person something before they go on."""
        self.sketch = sketch
        self.nodes: Mapping[str, Node] = {node.id: node for node in sketch.nodes}
        self.pick = pick
        self.now = 1000.0
        self.run = Run(RunId(id), graph)
        self.batches: list[list[Event]] = []
        self.states: list[bytes] = []
        """The run after each batch, encoded."""
        self.under_way: list[Effect | Answer] = []
        """What was asked for and has not been answered."""
        self.cancelled = False
        self.ended = False
        self._due: dict[int, float] = {}
        self._inquires_at_all = inquires
        self._inquired: set[str] = set()
        self._calls: Counter[tuple[int, int, int | None]] = Counter()
        self._outputs: dict[int, Any] = {}

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch]

    def begin(self) -> None:
        self.tell(RunRequested({"yes": True, "no": False}))

    def send(self, command: Command) -> None:
        problems: tuple[Problem, ...] = ()
        if isinstance(command, InjectTasks):
            known = (EXTRA, "py:os:getcwd")  # the core itself refuses the second
            unknown = [step.uses for step in command.steps if step.uses not in known]
            problems = tuple(Problem(f"unknown tool {uses!r}") for uses in unknown)
        self.tell(CommandReceived(command, problems))

    def move(self) -> bool:
        """Let one of the things under way happen. False when nothing is."""
        if not self.under_way:
            return False
        effect = self.pick(self.under_way)
        self.under_way.remove(effect)
        if isinstance(effect, StartTask) and self._inquires(effect):
            self.under_way.append(effect)  # it goes on, whether it is answered or not
        elif not isinstance(effect, Answer):
            self.tell(self._answer(effect))
        elif effect.decision in self.run.decisions:
            self.send(self._decision(self.run.decisions[effect.decision]))
        return True

    def tell(self, fact: Fact) -> None:
        batch = decide(self.run, fact, self.now)
        if batch:
            self.batches.append(batch)
            self.states.append(self.run.encoded())
        for effect in (*effects(self.run, batch), *asks(self.run)):
            self._ask(effect)
        if not self.ended:
            asked = (event.decision for event in batch if isinstance(event, DecisionRequired))
            self.under_way += map(Answer, asked)

    def _ask(self, effect: Effect) -> None:
        match effect:
            case CancelTasks():
                self.cancelled = True
                self.under_way = [each for each in self.under_way if not isinstance(each, StartTimer)]
            case EndRun():
                self.ended = True
                self.under_way.clear()
            case HandInput():
                pass  # what a task does with it is its own business
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
        again = Simulation(self.sketch, graph, pick, id=self.run.id, inquires=self._inquires_at_all)
        again.batches = self.batches[:keep]
        again.now = again.batches[-1][-1].at + AWAY
        again.run = run = replay(self.run.id, graph, again.events)
        for event in again.events:
            again._remember(event)
        again.ended = run.ended and not reopened and not run.stopping
        if not again.ended:
            steps = tuple(map(StepId, reopened))
            again_ = {run.graph.index[StepId(step)] for step in reopened}
            due = [effect for effect in owed(run) if getattr(effect, "step", -1) not in again_]
            again.tell(RunReopened("taken up", "fork" if reopened else "process", steps))
            for effect in due:
                again._ask(effect)
            again.under_way += [Answer(id) for id in run.decisions if Answer(id) not in again.under_way]
        return again

    def _remember(self, event: Event) -> None:
        """What a durable engine would have kept: outputs, and how often each task was called."""
        if isinstance(event, MapStarted):
            self._outputs[self.run.graph.index[event.step]] = [None] * event.count
        if isinstance(event, TaskFailed | TaskCompleted):
            i = self.run.graph.index[event.step]
            self._calls[i, event.iteration, event.item] += getattr(event, "kind", "") != "cancelled"
            if isinstance(event, TaskCompleted) and event.output is not UNSET:
                self._keep(i, event.item, event.output)

    def _inquires(self, effect: StartTask) -> bool:
        """Whether a task asks something before it goes on: some do, once."""
        i, place = effect.step, (effect.iteration, effect.item, effect.attempt)
        digest = f"{i} {place}"
        if (
            not self._inquires_at_all
            or digest in self._inquired
            or _number(self.run.graph.ids[i], effect.iteration, effect.item) % 6
        ):
            return False
        self._inquired.add(digest)
        self.tell(InputAsked(i, "How?", {"type": "object"}, digest, *place, by="test:call"))
        return True

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
            case BreakTie():
                return self._tie(effect)
            case PrepareCall():
                call = {"uses": "test:call", "args": {"got": {}}}
                return CallPrepared(
                    effect.step, call, "digest", effect.iteration, effect.item, effect.attempt
                )
            case _:
                msg = f"{effect} has no answer"
                raise TypeError(msg)

    def _task(self, effect: StartTask) -> Fact:
        self.now += self.pick((0.0, 0.25, 1.0))
        i, item = effect.step, effect.item
        if self.cancelled and self.pick((True, True, False)):
            return TaskRaised(i, "cancelled", "cancelled", "", effect.iteration, item, effect.attempt)
        self._calls[i, effect.iteration, item] += 1
        node = self._node(i)
        if node is None:
            output: Any = None
        else:
            fate = node.fate if item is None or node.items is None else node.items[item]
            failure = _failure(node, fate, self._calls[i, effect.iteration, item])
            if failure:
                error, kind = failure
                return TaskRaised(i, error, kind, "", effect.iteration, item, effect.attempt, node.effect)
            round_ = self.run.iteration(i)
            output = dict(expected(node.child).outputs) if node.child else output_of(node, fate, round_)
        self._keep(i, item, output)
        return TaskReturned(i, output, effect.iteration, item, effect.attempt)

    def _tie(self, effect: BreakTie) -> TieBroken:
        """A tie-breaker that nobody should trust."""
        names = effect.candidates
        number = _number(self.run.graph.ids[effect.step], effect.iteration)
        strange = ("nobody", self.run.graph.ids[effect.step], "end", "human", "", "__proto__", "${ next }")
        target, confidence, error = (
            (names[0], 0.9, ""),
            (names[-1], 1.0, ""),
            (names[number % len(names)], 0.7, ""),
            (strange[number % len(strange)], 1.0, ""),
            (names[-1], float("nan"), ""),
            (names[-1], float("inf"), ""),
            (names[0], 0.2, ""),
            ("", 0.0, "the tie-breaker failed"),
        )[number // 7 % 8]
        return TieBroken(effect.step, target, confidence, "so it is", error, effect.iteration)

    def _decision(self, asked: DecisionRequired) -> Decide:
        """What a person says: sensible most of the time."""
        number = _number(asked.step, asked.iteration, asked.item)
        if asked.kind == "route":
            targets = asked.schema["respond"]["properties"]["target"]["enum"]
            likely = targets[:-1] or targets  # the last is the end of everything
            verb, args = "respond", {"target": likely[number % len(likely)]}
        elif asked.kind == "input":
            verb, args = ("respond", "reject")[number // 6 % 2], None
        elif asked.kind == "approval":
            verb, args = ("approve", "approve", "edit", "skip", "reject")[number % 5], None
            args = {"got": {}} if verb == "edit" else None
        else:
            verb, args = asked.options[number % len(asked.options)], None
        id = CommandId(f"answer {asked.decision}")
        return Decide(id=id, decision=asked.decision, verb=verb, args=args, by="someone")

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


def _number(*about: Any) -> int:
    return crc32(repr(about).encode())


def _failure(node: Node, fate: Fate, call: int) -> tuple[str, str] | None:
    """The error and its kind with which a call ends; None when it succeeds."""
    if node.child is not None:
        status = expected(node.child).status
        return None if status == "succeeded" else (f"child run ended {status}", "child")
    if call > fate.fails:
        return None
    return ("took too long", "timeout") if fate.hangs else (f"call {call} fails", "error")
