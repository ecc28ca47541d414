"""The one shape of everything callable: a tool.

A tool has an id, an effect class and JSON in and out. Whether a Python function, a built-in
or a program on the other end of a pipe answers is not visible from here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from penstock.ids import RunId, StepId, ToolId
from penstock.workflow.spec import Effect


@dataclass(frozen=True, slots=True)
class Inquiry:
    """Something that only a person knows, asked in the middle of a call."""

    message: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    """What the answer must look like: an object of plain values."""
    url: str = ""
    """Set when the person has to go there instead, e.g. to log in."""
    by: str = ""
    """Who asks: its words are its own, and nobody has checked them."""


@dataclass(frozen=True, slots=True)
class Answer:
    action: Literal["accept", "decline", "cancel"]
    """`cancel`: nobody waits for an answer any more."""
    content: Mapping[str, Any] | None = None
    """What was filled in; only with `accept`."""


async def _nobody(_inquiry: Inquiry) -> Answer:
    return Answer("decline")


@dataclass(frozen=True, slots=True)
class Task:
    """Which execution this is. A tool that declares a parameter of this type is given it."""

    run: RunId
    step: StepId
    iteration: int
    item: int | None
    attempt: int
    waiting: Callable[[], AbstractContextManager[object]] = field(
        default=nullcontext, compare=False, repr=False
    )
    """Entered while a person is waited for: that time does not count against the task's."""
    ask: Callable[[Inquiry], Awaitable[Answer]] = field(default=_nobody, compare=False, repr=False)
    """Puts a question before a person. It may take as long as people take."""

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this piece of work, also after a crash."""
        item = "" if self.item is None else f".{self.item}"
        return f"{self.run}/{self.step}.{self.iteration}{item}"


class Consent(Protocol):
    """What a person has to agree to before a tool is called."""

    @property
    def difference(self) -> str:
        """From what was approved to what it is now; empty when there is none any more."""
        ...

    def give(self) -> None:
        """A person has seen the difference, and agrees."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    id: ToolId
    call: Callable[..., Any]
    """Takes the arguments by name."""
    effect: Effect = "write"
    blocking: bool = False
    """A plain function: it is called in a thread."""
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=dict)
    output_schema: Mapping[str, Any] = field(default_factory=dict)
    wants_task: str = ""
    """The name of the parameter that is given the `Task`."""
    duration: float | None = None
    """Expected seconds, where known."""
    convert: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Checks the arguments and turns JSON into what the hints ask for; raises `ValueError`."""
    asks: str = ""
    """The rule by which a person approves each call, whatever a workflow says about it."""
    timeout: float | None = None
    """Seconds for a call whose caller sets no limit."""
    consent: Consent | None = None
    """Set when it is not what was approved: a person has to agree to what it is now."""


class Sketch(NamedTuple):
    """What is known of a tool before anybody has looked whether it can be called."""

    id: str
    description: str
    input_schema: Mapping[str, Any]
    about: str = ""
    """What its server says it is for."""


class Catalog(Protocol):
    """Where tools are found."""

    @property
    def version(self) -> int:
        """Another one when tools came or went, or one has become another or was approved as it is now."""
        ...

    def find(self, uses: str, *, folder: str | None = None, changed: bool = False) -> Tool:
        """The tool of this id, or `UnknownTool`.

        With `changed`, also one that is not what was approved, for whoever asks a person first.
        """
        ...

    def of(self, function: Callable[..., Any], uses: str) -> Tool:
        """The tool that a function given in Python is."""
        ...

    def ids(self) -> Sequence[str]: ...

    def sketches(self) -> Sequence[Sketch]:
        """All that may be called, as it is described: cheap where there are thousands, in any thread."""
        ...
