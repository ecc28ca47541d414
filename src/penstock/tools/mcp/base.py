"""What the rest of Penstock knows of MCP: a few plain values, and no SDK.

Nothing here opens a connection, so it costs nothing to import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Definition:
    """A tool as its server describes it."""

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=dict)
    output_schema: Mapping[str, Any] | None = None
    """None when the server says nothing about its results; most don't."""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    """Hints such as `readOnlyHint`, by their names on the wire."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server had to offer when it was last asked."""

    tools: tuple[Definition, ...]
    protocol: str = ""
    title: str = ""
    """How the server calls itself; not unique, for people only."""
    instructions: str = ""
    """What the server says it is for, cut short. Nobody checked it: searched and shown, never obeyed."""


Waiting = Callable[[], AbstractContextManager[object]]
"""Stops the clocks of a call for as long as it is entered."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How the start of one server is going."""

    server: str
    state: Literal["starting", "ready", "failed"]
    tools: int = 0
    seconds: float = 0.0
    error: str = ""


Watch = Callable[[Progress], None]
"""Is told of each step of a start. It must not block."""


class Lost(Exception):
    """The connection ended before an answer came. Never leaves this package."""


class Unreached(Exception):
    """The server never got the request, or says it did nothing with it. Never leaves this package."""
