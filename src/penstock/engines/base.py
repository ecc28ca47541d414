"""The port of an engine, and what every engine gives back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from penstock.engines.stream import Gap, Observer
from penstock.errors import RunFailed
from penstock.ids import RunId, StepId
from penstock.run.commands import Command
from penstock.run.events import DecisionRequired, Event
from penstock.run.release import counts_as_failed
from penstock.run.state import PHASES, Run
from penstock.run.usage import used
from penstock.steps.base import Billed, Prepared
from penstock.store.base import Store
from penstock.workflow.spec import Step

if TYPE_CHECKING:
    from penstock.engines.native import NativeEngine


class StepResult(Struct, frozen=True, omit_defaults=True):
    """How one step ended."""

    status: str
    attempts: int = 1
    iterations: int = 1
    reason: str = ""


class Result(Struct, frozen=True):
    """How a run ended."""

    run_id: RunId
    status: str
    outputs: Mapping[str, Any]
    reason: str
    duration: float
    """Seconds from the first event to the last."""
    state: Run
    followed_by: RunId | None = None
    """The run that its workflow's `on_complete` or `on_failure` started."""
    retry_after: float = 0.0
    """Seconds after which to ask again what was unavailable; 0 when nobody said."""

    @property
    def unavailable(self) -> bool:
        """Whether it failed only because what it depends on did not answer: a model, a server of tools."""
        run = self.state
        kinds = {kind for i, (kind, _) in run.reasons.items() if counts_as_failed(run, i)}
        return not run.stopping and kinds - {"cancelled"} == {"unavailable"}

    @property
    def usage(self) -> Mapping[str, float]:
        """What it used, by the names of a budget."""
        return used(self.state)

    @property
    def ok(self) -> bool:
        return self.status == "succeeded"

    @property
    def counts(self) -> dict[str, int]:
        """How many steps ended in each way."""
        return {name: n for code, name in enumerate(PHASES) if (n := self.state.phase.count(code))}

    @property
    def steps(self) -> dict[StepId, StepResult]:
        return step_results(self.state)

    def check(self) -> Result:
        """This result, or `RunFailed` when the run did not succeed."""
        if not self.ok:
            raise RunFailed(self.run_id, self.status, self.reason)
        return self


def result_of(run: Run) -> Result:
    """How a run that has ended went."""
    return Result(run.id, run.status, run.outputs, run.reason, run.at - run.started_at, run)


def step_results(run: Run) -> dict[StepId, StepResult]:
    """Every step of a run and how it stands."""
    results = {}
    for i, step in enumerate(run.graph.ids):
        status = run.step_status(i)
        started = status not in ("waiting", "ready", "dormant", "skipped")
        attempts = run.attempts.get(i, 1 if started else 0)
        reason = run.reasons[i][1] if i in run.reasons else ""
        results[step] = StepResult(status, attempts, run.iterations.get(i, 1), reason)
    return results


class Tie(Struct, frozen=True):
    """A route that the rules leave open."""

    run: RunId
    step: StepId
    candidates: tuple[StepId, ...]
    """The only answers that count."""
    hint: str
    output: Any
    """What the step gave."""


class TieBreaker(Protocol):
    async def __call__(self, tie: Tie) -> Mapping[str, Any] | Billed:
        """`{"target": …, "confidence": 0…1, "reasoning": …}`, and what it cost where models were asked."""
        ...


class Decider(Protocol):
    async def __call__(self, question: DecisionRequired) -> Mapping[str, Any] | Billed:
        """`{"verb": one of the question's options, "message": …}`, and what it cost."""
        ...


class Planner(Protocol):
    async def __call__(self, run: Run, requirement: str) -> Sequence[Step]:
        """Steps that serve a requirement; they are checked like anyone's."""
        ...


class LiveRun(Protocol):
    """A run that an engine is driving, or has driven to its end."""

    @property
    def id(self) -> RunId: ...

    @property
    def state(self) -> Run: ...

    async def send(self, command: Command) -> Event:
        """The event that accepted the command. `CommandRejected` when it was refused."""
        ...

    def follow(self, *, after: int = 0) -> AsyncIterator[Event | Gap]: ...

    def observe(self, observer: Observer) -> None: ...

    async def result(self) -> Result: ...


class Handle(Protocol):
    """A run that goes on in this process."""

    @property
    def id(self) -> RunId: ...

    @property
    def state(self) -> Run: ...


class Runs(Protocol):
    """Runs and what drives them, as those see it who look at runs and take them up."""

    @property
    def store(self) -> Store: ...

    @property
    def engine(self) -> NativeEngine: ...

    async def at(self, id: str, seq: int | None = None) -> Run: ...

    async def resume(self, id: str) -> Handle: ...


class Engine(Protocol):
    name: str

    async def start(self, flow: Prepared, inputs: Mapping[str, Any], *, run: RunId) -> LiveRun: ...

    async def close(self) -> None: ...
