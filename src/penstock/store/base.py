"""The port between runs and what remembers them.

A journal takes whole batches, in order, and never makes the caller wait: what it has taken
is on its way, what `durable` names has arrived. A batch is kept entirely or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from penstock.ids import RunId
from penstock.run.events import Event
from penstock.workflow.spec import Workflow


class RunRecord(Struct, frozen=True, kw_only=True):
    """What a list of runs shows."""

    run: RunId
    workflow: str
    hash: str
    status: str
    started: float
    ended: float | None = None
    events: int = 0
    parent: RunId | None = None
    reason: str = ""


class Journal(Protocol):
    """The one writer of one run."""

    @property
    def durable(self) -> int:
        """The number of the last event that would survive a crash."""
        ...

    def append(self, events: Sequence[Event]) -> None:
        """Take one batch. Never blocks, never fails for reasons of storage."""
        ...

    async def sync(self) -> None:
        """Return when everything taken so far is durable."""
        ...


class Store(Protocol):
    """Every run there is, readable by anyone."""

    async def create(self, run: RunId, workflow: Workflow, *, hash: str, parent: RunId | None) -> Journal:
        """Begin a run. `Conflict` when the id is taken."""
        ...

    async def load(self, run: RunId, *, after: int = 0) -> Sequence[Event]:
        """Its events in order, from `after + 1` on. `UnknownRun` when there is none."""
        ...

    async def definition(self, run: RunId) -> Workflow:
        """The version of the workflow that this run is pinned to."""
        ...

    async def runs(self, *, limit: int = 100, **where: Any) -> Sequence[RunRecord]:
        """The newest runs first."""
        ...

    async def close(self) -> None: ...
