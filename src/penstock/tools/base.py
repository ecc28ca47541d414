"""The one shape of everything callable: a tool.

A tool has an id, an effect class and JSON in and out. Whether a Python function, a built-in
or a program on the other end of a pipe answers is not visible from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.ids import RunId, StepId, ToolId
from penstock.workflow.spec import Effect


@dataclass(frozen=True, slots=True)
class Task:
    """Which execution this is. A tool that declares a parameter of this type is given it."""

    run: RunId
    step: StepId
    iteration: int
    item: int | None
    attempt: int

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this piece of work, also after a crash."""
        item = "" if self.item is None else f".{self.item}"
        return f"{self.run}/{self.step}.{self.iteration}{item}"


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


class Catalog(Protocol):
    """Where tools are found."""

    def find(self, uses: str, *, folder: str | None = None) -> Tool:
        """The tool of this id, or `UnknownTool`."""
        ...

    def of(self, function: Callable[..., Any], uses: str) -> Tool:
        """The tool that a function given in Python is."""
        ...

    def ids(self) -> Sequence[str]: ...
