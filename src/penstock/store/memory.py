"""Runs remembered for as long as the process lives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors import Conflict, UnknownRun
from penstock.ids import RunId
from penstock.run.events import Event, WorkflowAborted, WorkflowCompleted, WorkflowStarted
from penstock.store.base import RunRecord
from penstock.workflow.spec import Workflow


class MemoryJournal:
    """A list. Taken is kept: nothing here survives a crash, so nothing is worth waiting for."""

    __slots__ = ("events", "hash", "parent", "workflow")

    def __init__(self, workflow: Workflow, hash: str, parent: RunId | None) -> None:
        self.workflow = workflow
        self.hash = hash
        self.parent = parent
        self.events: list[Event] = []

    @property
    def durable(self) -> int:
        return len(self.events)

    def append(self, events: Sequence[Event]) -> None:
        self.events.extend(events)

    async def sync(self) -> None:
        return


class MemoryStore:
    def __init__(self) -> None:
        self._journals: dict[RunId, MemoryJournal] = {}

    async def create(
        self, run: RunId, workflow: Workflow, *, hash: str, parent: RunId | None = None
    ) -> MemoryJournal:
        if run in self._journals:
            raise Conflict(run, 0)
        journal = self._journals[run] = MemoryJournal(workflow, hash, parent)
        return journal

    async def load(self, run: RunId, *, after: int = 0) -> Sequence[Event]:
        return self._journal(run).events[after:]

    async def definition(self, run: RunId) -> Workflow:
        return self._journal(run).workflow

    async def runs(self, *, limit: int = 100, **where: Any) -> Sequence[RunRecord]:
        records = [_record(run, journal) for run, journal in reversed(self._journals.items())]
        wanted = [record for record in records if all(getattr(record, k) == v for k, v in where.items())]
        return wanted[:limit]

    async def close(self) -> None:
        self._journals.clear()

    def _journal(self, run: RunId) -> MemoryJournal:
        try:
            return self._journals[run]
        except KeyError:
            raise UnknownRun(run) from None


def _record(run: RunId, journal: MemoryJournal) -> RunRecord:
    events = journal.events
    first, last = (events[0], events[-1]) if events else (None, None)
    status, reason, ended = "running", "", None
    if isinstance(last, WorkflowCompleted):
        status, reason, ended = last.status, last.reason, last.at
    elif isinstance(last, WorkflowAborted):
        status, reason, ended = "aborted", last.reason, last.at
    return RunRecord(
        run=run,
        workflow=journal.workflow.name,
        hash=journal.hash,
        status=status if first is not None else "pending",
        started=first.at if isinstance(first, WorkflowStarted) else 0.0,
        ended=ended,
        events=len(events),
        parent=journal.parent,
        reason=reason,
    )
