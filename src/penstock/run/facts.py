"""What an engine, a person or a clock reports. Facts carry step indices: they never leave the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from penstock.errors import Problem
from penstock.ids import DecisionId, RunId, StepId
from penstock.run.commands import Command
from penstock.workflow.spec import Effect, Step


class _Fact(Struct, frozen=True, gc=False):
    pass


class RunRequested(_Fact, frozen=True, gc=False):
    """Someone wants the workflow run with these (checked) inputs."""

    inputs: Mapping[str, Any]
    engine: str = "native"
    parent: RunId | None = None
    durations: Mapping[StepId, float] = {}
    allowance: Mapping[str, float] = {}
    """What the parent has left of its budgets."""


class TaskReturned(_Fact, frozen=True, gc=False):
    step: int
    output: Any
    iteration: int = 1
    item: int | None = None
    attempt: int = 1
    usage: Mapping[str, float] | None = None
    """What a child run used, by the names of a budget."""
    calls: tuple[Mapping[str, Any], ...] = ()
    """Calls of models, for the record."""


class TaskRaised(_Fact, frozen=True, gc=False):
    step: int
    error: str
    kind: str = "error"
    name: str = ""
    iteration: int = 1
    item: int | None = None
    attempt: int = 1
    effect: Effect = "write"
    """Decides whether an ambiguous ending (a timeout) may be retried."""
    trace: str = ""
    retry_after: float = 0.0
    """Seconds before which another attempt is pointless, where whoever was asked says so."""
    usage: Mapping[str, float] | None = None
    """What a child run used all the same."""
    calls: tuple[Mapping[str, Any], ...] = ()
    """Calls of models, for the record."""


class ItemsCounted(_Fact, frozen=True, gc=False):
    """The `for_each` list of an opened map has been evaluated."""

    step: int
    items: list[Any]
    iteration: int = 1


class BackoffElapsed(_Fact, frozen=True, gc=False):
    step: int
    iteration: int = 1
    item: int | None = None
    attempt: int = 1
    """The attempt that failed."""


class OutputsCollected(_Fact, frozen=True, gc=False):
    """The workflow's outputs were evaluated after the last step ended."""

    outputs: Mapping[str, Any]
    errors: Mapping[str, str] = {}


class CommandReceived(_Fact, frozen=True, gc=False):
    command: Command
    problems: tuple[Problem, ...] = ()
    """What the engine found wrong with it that the core cannot know (an unknown tool, say)."""
    outputs: Mapping[int, Any] = {}
    """Outputs of ended steps that an injection reads; for `accept`, the result itself."""
    guarded: tuple[StepId, ...] = ()
    """Injected steps that a person must approve because of what they call."""


class TimeRanOut(_Fact, frozen=True, gc=False):
    """The run's own timeout passed."""

    limit: float


class StorageStalled(_Fact, frozen=True, gc=False):
    """Nothing can be written, and why; empty when it can again."""

    reason: str


class ProcessLeaving(_Fact, frozen=True, gc=False):
    """The process that drives the run is about to end; someone else may go on."""

    reason: str


class RunReopened(_Fact, frozen=True, gc=False):
    """A process has taken up a run that nobody drove, or forked one."""

    reason: str
    cause: str = "process"
    """`process` or `fork`."""
    reopened: tuple[StepId, ...] = ()
    overrides: Mapping[StepId, Mapping[str, Any]] = {}
    inputs: Mapping[str, Any] | None = None
    allowance: Mapping[str, float] | None = None
    """Of an attempt that goes on from the last one: what the parent has left of its budgets."""


class TaskOrphaned(_Fact, frozen=True, gc=False):
    """A task had been started when its process died. Whether it took effect nobody knows."""

    step: int
    iteration: int = 1
    item: int | None = None
    attempt: int = 1
    call: Mapping[str, Any] = {}
    """What it had called: `uses`, and `args` where they can still be said."""


class CallPrepared(_Fact, frozen=True, gc=False):
    """What a task that needs approval would call, exactly."""

    step: int
    call: Mapping[str, Any]
    """`uses` and `args`, as a person may see them."""
    digest: str
    iteration: int = 1
    item: int | None = None
    attempt: int = 1
    error: str = ""
    """Why it cannot be said; then there is no call."""
    kind: str = "error"
    harmless: bool = False
    """Nobody needs to be asked about it after all."""
    takes: Mapping[str, Any] = {}
    """The schema of what may be changed in it."""
    effect: Effect | None = None
    """Of what would be called."""


class GateFinished(_Fact, frozen=True, gc=False):
    """The checks of a gate were made, as far as they could be."""

    step: int
    checks: tuple[Mapping[str, Any], ...]
    output: Any
    iteration: int = 1
    item: int | None = None
    attempt: int = 1
    args: Mapping[str, Any] = {}
    """What the task was called with: its shape is remembered when the gate gives up."""
    takes: Mapping[str, Any] = {}
    """The schema of what may be changed in them."""
    effect: Effect | None = None
    """Of what was called."""


class TieBroken(_Fact, frozen=True, gc=False):
    """A tie-breaker answered, or why it did not."""

    step: int
    target: str = ""
    confidence: float = 0.0
    reasoning: str = ""
    error: str = ""
    iteration: int = 1


class ModelsAsked(_Fact, frozen=True, gc=False):
    """Models were asked for the run itself: about a route, or whether it goes on."""

    calls: tuple[Mapping[str, Any], ...]
    step: StepId | None = None


class DecisionExpired(_Fact, frozen=True, gc=False):
    """The deadline of a decision passed."""

    decision: DecisionId


class Replanned(_Fact, frozen=True, gc=False):
    """A planner proposes steps for a requirement, or says why it cannot."""

    decision: DecisionId
    steps: tuple[Step, ...] = ()
    error: str = ""
    feeds: str = ""
    problems: tuple[Problem, ...] = ()
    outputs: Mapping[int, Any] = {}
    guarded: tuple[StepId, ...] = ()
    """Steps that a person must approve because of what they call."""


class ChildEscalated(_Fact, frozen=True, gc=False):
    """A gate of a child run called for a person."""

    step: int
    child: str
    reason: str
    iteration: int = 1
    item: int | None = None
    unrecoverable: bool = False


class InputAsked(_Fact, frozen=True, gc=False):
    """A running task needs something that only a person knows, and waits for it."""

    step: int
    message: str
    schema: Mapping[str, Any]
    """What an answer must look like."""
    digest: str
    """Of the task and the question: an answer is bound to it."""
    iteration: int = 1
    item: int | None = None
    attempt: int = 1
    by: str = ""
    """Whose words these are: a server, or a function."""
    url: str = ""
    """Set when the person has to go there instead of answering."""


class InputDropped(_Fact, frozen=True, gc=False):
    """Whoever asked does not wait for the answer any more, though the task goes on."""

    digest: str


Fact = (
    RunRequested
    | TaskReturned
    | TaskRaised
    | ItemsCounted
    | BackoffElapsed
    | OutputsCollected
    | CommandReceived
    | TimeRanOut
    | StorageStalled
    | ProcessLeaving
    | RunReopened
    | TaskOrphaned
    | CallPrepared
    | GateFinished
    | TieBroken
    | ModelsAsked
    | DecisionExpired
    | Replanned
    | ChildEscalated
    | InputAsked
    | InputDropped
)
