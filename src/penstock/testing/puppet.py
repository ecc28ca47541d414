"""A run on the core alone, moved by naming its steps: `returns("a", 1)`, `raises("b")`.

Nothing happens that nobody asked for. After every fact the run is compared, to the last bit,
with the one that its events fold to and with the one that its snapshot restores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.ids import CommandId, DecisionId, RunId, StepId
from penstock.run.commands import Command, Decide
from penstock.run.decide import decide
from penstock.run.effects import BreakTie, Effect, PrepareCall, asks, effects
from penstock.run.events import (
    CommandRefused,
    DecisionRequired,
    Event,
    RouteDecided,
    TaskSkipped,
    TaskStarted,
    decode,
    encode,
)
from penstock.run.facts import (
    CallPrepared,
    CommandReceived,
    Fact,
    ItemsCounted,
    OutputsCollected,
    RunReopened,
    RunRequested,
    TaskRaised,
    TaskReturned,
    TieBroken,
)
from penstock.run.replay import replay
from penstock.run.restore import restore
from penstock.run.state import PHASES, Run
from penstock.workflow.graph import Graph, compile_graph
from penstock.workflow.spec import Condition, Config, Routing, Step, TieBreaker, Workflow


def step(id: str, *needs: str, **parts: Any) -> Step:
    """A step that calls something or other."""
    return Step(id=StepId(id), uses="t:x", needs=tuple(map(StepId, needs)), **parts)


def routing(*conditions: tuple[str, str], tie: tuple[str, ...] = (), **parts: Any) -> Routing:
    """A routing with these (expression, target) pairs, and a tie-breaker between the targets of `tie`."""
    made = tuple(Condition(expr, StepId(target)) for expr, target in conditions)
    asks = TieBreaker(enabled=True, valid_targets=tuple(map(StepId, tie))) if tie else None
    return Routing(conditions=made, tie_breaker=asks, **parts)


def puppet(*steps: Step, outputs: Mapping[str, Any] | None = None, **config: Any) -> Puppet:
    """A run of these steps that has just begun."""
    flow = Workflow(name="flow", steps=steps, outputs=outputs or {}, config=Config(**config))
    return Puppet(compile_graph(flow))


class Puppet:
    def __init__(self, graph: Graph, inputs: Mapping[str, Any] | None = None) -> None:
        self._graph = graph
        self.run = Run(RunId("r"), graph)
        self.events: list[Event] = []
        self.asked: list[Effect] = []
        """Every effect there was, in order."""
        self.now = 0.0
        self._sent = 0
        self.tell(RunRequested(inputs or {}))

    # --- moving it ---

    def returns(self, step: str, output: Any = None, *, item: int | None = None) -> None:
        i = self._index(step)
        self.tell(TaskReturned(i, output, self.run.iterations.get(i, 1), item, self._attempt(i, item)))

    def raises(self, step: str, error: str = "boom", *, item: int | None = None) -> None:
        i = self._index(step)
        place = (self.run.iterations.get(i, 1), item, self._attempt(i, item))
        self.tell(TaskRaised(i, error, "error", "", *place, "read"))

    def counts(self, step: str, items: list[Any]) -> None:
        i = self._index(step)
        self.tell(ItemsCounted(i, items, self.run.iterations.get(i, 1)))

    def breaks_tie(self, step: str, target: str = "", confidence: float = 1.0, **more: Any) -> None:
        i = self._index(step)
        iteration = more.pop("iteration", self.run.iterations.get(i, 1))
        self.tell(TieBroken(i, target, confidence, iteration=iteration, **more))

    def send(self, command: Command) -> str:
        """Why it was refused; empty when it was accepted."""
        self._sent += 1
        before = len(self.events)
        self.tell(CommandReceived(msgspec.structs.replace(command, id=CommandId(f"c{self._sent}"))))
        refused = [event for event in self.events[before:] if isinstance(event, CommandRefused)]
        return refused[0].reason if refused else ""

    def answer(self, verb: str, **args: Any) -> str:
        """Answer the only open question."""
        (question,) = self.run.decisions
        return self.send(Decide(decision=DecisionId(question), verb=verb, args=args or None, by="someone"))

    def prepares(self, step: str) -> None:
        """The call that a step waits to have approved is ready to be shown."""
        effect = [e for e in self.asked if isinstance(e, PrepareCall) and e.step == self._index(step)][-1]
        call = {"uses": "t:x", "args": {}}
        self.tell(CallPrepared(effect.step, call, "digest", effect.iteration, effect.item, effect.attempt))

    def collects(self, **outputs: Any) -> None:
        self.tell(OutputsCollected(outputs))

    def restarts(self, *reopened: str) -> None:
        """Another process takes the run up from what the journal has of it."""
        self.run = replay(self.run.id, self._graph, self._journalled())
        fact = RunReopened("taken up", "fork" if reopened else "process", tuple(map(StepId, reopened)))
        self.tell(fact)

    def tell(self, fact: Fact) -> None:
        self.now += 1.0
        batch = decide(self.run, fact, self.now)
        self.events += batch
        self.asked += effects(self.run, batch)
        self.asked += asks(self.run)
        self._compare()

    def _compare(self) -> None:
        encoded = self.run.encoded()
        folded = replay(self.run.id, self._graph, self._journalled())
        assert folded.encoded() == encoded, "replay comes to something else"  # noqa: S101 - this is a test
        restored = restore(self.run.id, self._graph, msgspec.json.decode(encoded))
        assert restored.encoded() == encoded, "a snapshot does not come back as it was"  # noqa: S101 - the same

    def _journalled(self) -> list[Event]:
        return [decode(encode(event)) for event in self.events]

    # --- looking at it ---

    @property
    def status(self) -> str:
        return self.run.status

    def __getitem__(self, step: str) -> str:
        """Where a step stands."""
        return PHASES[self.run.phase[self._index(step)]]

    def iteration(self, step: str) -> int:
        return self.run.iterations.get(self._index(step), 1)

    @property
    def running(self) -> list[str]:
        return [str(step) for step in self.run.graph.ids if self[step] == "running"]

    def started(self, step: str) -> list[int]:
        """The iterations in which a step was started."""
        starts = [e for e in self.events if isinstance(e, TaskStarted) and e.step == step]
        return [event.iteration for event in starts if event.item is None]

    @property
    def routes(self) -> list[RouteDecided]:
        return [event for event in self.events if isinstance(event, RouteDecided)]

    @property
    def taken(self) -> list[tuple[str, str | None, str]]:
        """Router, target and rule of each route."""
        return [(route.step, route.target, route.rule) for route in self.routes]

    def skip(self, step: str) -> tuple[str, str]:
        """Why a step was skipped last."""
        event = [e for e in self.events if isinstance(e, TaskSkipped) and e.step == step][-1]
        return event.kind, event.reason

    @property
    def questions(self) -> list[DecisionRequired]:
        """Every question that was asked."""
        return [event for event in self.events if isinstance(event, DecisionRequired)]

    @property
    def ties(self) -> list[tuple[str, ...]]:
        """What tie-breakers were asked."""
        return [effect.candidates for effect in self.asked if isinstance(effect, BreakTie)]

    def _index(self, step: str) -> int:
        return self.run.graph.index[StepId(step)]

    def _attempt(self, i: int, item: int | None) -> int:
        if item is not None:
            return self.run.maps[i].running[item]
        return self.run.attempts.get(i, 1)
