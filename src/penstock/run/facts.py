"""What an engine, a person or a clock reports. Facts carry step indices: they never leave the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from penstock.errors import Problem
from penstock.ids import RunId, StepId
from penstock.run.commands import Command
from penstock.workflow.spec import Effect


class _Fact(Struct, frozen=True, gc=False):
    pass


class RunRequested(_Fact, frozen=True, gc=False):
    """Someone wants the workflow run with these (checked) inputs."""

    inputs: Mapping[str, Any]
    engine: str = "native"
    parent: RunId | None = None
    durations: Mapping[StepId, float] = {}


class TaskReturned(_Fact, frozen=True, gc=False):
    step: int
    output: Any
    iteration: int = 1
    item: int | None = None
    attempt: int = 1


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
    """Outputs of ended steps that an injection's control expressions read."""


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


class TaskOrphaned(_Fact, frozen=True, gc=False):
    """A task had been started when its process died. Whether it took effect nobody knows."""

    step: int
    iteration: int = 1
    item: int | None = None
    attempt: int = 1
    tool: str = ""


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
)
