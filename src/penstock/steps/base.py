"""The port between engines and what steps do.

An engine decides *when* a task runs and for how long; a `Work` knows *what* it is. Engines
hand it a `Scene`: which task this is, its arguments, and the two things only an engine has
(threads, and a way to start child runs).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from penstock.ids import StepId
from penstock.policy import arguments
from penstock.policy.arguments import ANYTHING
from penstock.tools.base import Task, Tool
from penstock.workflow.graph import Graph
from penstock.workflow.spec import Effect, Step, Workflow

DEFAULT_TIMEOUT = 30.0
"""Seconds for a task whose step says nothing. Children and agents have no limit of their own."""


class Ended(Protocol):
    """What a child run comes to, as far as its parent cares."""

    @property
    def status(self) -> str: ...

    @property
    def reason(self) -> str: ...

    @property
    def outputs(self) -> Mapping[str, Any]: ...

    @property
    def usage(self) -> Mapping[str, float]: ...

    @property
    def unavailable(self) -> bool:
        """Whether it failed only because something that it depends on did not answer."""
        ...

    @property
    def retry_after(self) -> float:
        """Seconds after which to ask that again; 0 when nobody said."""
        ...


class Billed(NamedTuple):
    """An output, and what it cost. What fails costs, too: `TaskFailure` has one without an output."""

    output: Any
    usage: Mapping[str, float] | None = None
    """By the names of a budget, beyond what `calls` say."""
    calls: tuple[Mapping[str, Any], ...] = ()
    """Calls of models, for the record."""


UNBILLED = Billed(None)


class Host(Protocol):
    """What an engine offers to the work it runs."""

    async def in_thread(self, call: Callable[[], Any]) -> Any: ...

    async def child(self, task: Task, flow: Prepared, inputs: dict[str, Any]) -> Ended: ...


@dataclass(frozen=True, slots=True)
class Scene:
    task: Task
    args: dict[str, Any]
    host: Host
    attempts: str = ""
    """What a gate said of earlier attempts, fenced as data; empty for the first."""


Perform = Callable[[Scene], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Work:
    """How to do one step."""

    perform: Perform
    effect: Effect = "write"
    timeout: float | None = DEFAULT_TIMEOUT
    direct: Callable[..., Awaitable[Any]] | None = None
    """Set when the arguments by name are all it takes; saves building a scene."""
    duration: float | None = None
    """Expected seconds, where the tool says so."""
    effect_for: Callable[[Any], Effect] | None = None
    """The effect of one item, where it depends on the item."""
    shown: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    """The call (`uses` and `args`) that these arguments mean, where it is not the step's own."""
    amended: Callable[[dict[str, Any], Mapping[str, Any]], dict[str, Any]] | None = None
    """The arguments with what a person changed in the call as it was shown."""
    asks: Callable[[Mapping[str, Any]], bool] | None = None
    """Whether a person must approve this call, where it depends on the arguments."""
    check: Callable[[dict[str, Any]], object] | None = None
    """Raises the `TaskFailure` that it would come to with these arguments before anything is called."""
    takes: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """The schema of the call that these arguments mean, as it is shown; None when it takes anything."""
    ruled: str = ""
    """Why a person must approve it whatever the workflow says; empty when nobody must."""
    approved: Callable[[], None] | None = None
    """Told that a person has approved the call as it was shown."""

    def changes(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """The schema of what a person may change in the call that these arguments mean."""
        return ANYTHING if self.takes is None else arguments.changes(self.takes(args))

    def misgiven(self, args: Mapping[str, Any]) -> str:
        """What is wrong with new arguments, as far as they are not computed; empty when nothing is."""
        if self.takes is None or self.amended is not None:  # what is shown is not what it is given
            return ""
        return arguments.complaint(self.changes(args), args, expressions=True)


@dataclass(slots=True, eq=False)
class Prepared:
    """A workflow with everything it calls found and checked: ready to run, any number of times."""

    graph: Graph
    works: list[Work]
    source: str = ""
    """The file it came from, for messages and for pinning."""
    reducers: dict[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    work_for: Callable[[Any], Work] | None = None
    """Finds the work of an injected step, or raises `UnknownTool`."""
    ready: Callable[[Iterable[Step]], Awaitable[None]] | None = None
    """Asks the servers of what injected steps call what they offer, where nobody knows it yet."""
    durations: dict[StepId, float] = field(default_factory=dict)
    children: dict[str, Workflow] = field(default_factory=dict)
    """Every workflow it may call, directly or not, by name: a run pins them all."""
    find: Callable[[str], Tool] | None = None
    """Finds a tool that a gate's check names."""
    followers: dict[str, Callable[[], Prepared]] = field(default_factory=dict)
    """The workflows that run after it: `on_complete`, `on_failure`."""


def refused(why: str) -> Work:
    """The work of a step that cannot be done any more: to say so."""

    async def perform(_: Scene) -> Any:
        raise TaskFailure("error", why)

    return Work(perform=perform, effect="read")


class TaskFailure(Exception):
    """A task that failed in a way with a name of its own, and what it cost. Never leaves an engine."""

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        name: str = "",
        retry_after: float = 0.0,
        usage: Mapping[str, float] | None = None,
        calls: tuple[Mapping[str, Any], ...] = (),
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.name = name
        """Another name that `retry.on` may know it by."""
        self.retry_after = retry_after
        """Seconds before which another attempt is pointless."""
        self.bill = Billed(None, usage, calls)


def child_failure(what: str, child: Ended) -> TaskFailure:
    """How a step fails whose child run did. What is out of a child's reach is out of its parent's."""
    said = f"{what} run ended {child.status}: {child.reason}"
    if child.unavailable:
        after = child.retry_after
        return TaskFailure("unavailable", said, name="child", retry_after=after, usage=child.usage)
    return TaskFailure("child", said, usage=child.usage)
