"""Runs remembered for as long as the process lives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors import Conflict, Owned, StoreError, UnknownRun
from penstock.ids import RunId
from penstock.run.events import Event
from penstock.store import batches
from penstock.store.base import NewRun, Pinned, RunRecord, Watcher
from penstock.store.local import LocalCheckpoints, LocalExamples, LocalMail


class MemoryJournal:
    """A list. Taken is kept: nothing here survives a crash, so nothing is worth waiting for."""

    __slots__ = ("events", "new", "owned", "reason", "status")

    lasting = False

    def __init__(self, new: NewRun, events: Sequence[Event] = ()) -> None:
        self.new = new
        self.events: list[Event] = list(events)
        self.owned = True
        self.status, self.reason = "", ""

    @property
    def durable(self) -> int:
        return len(self.events)

    def watch(self, watcher: Watcher) -> None:
        """Nothing ever happens."""

    def append(self, events: Sequence[Event]) -> None:
        self.events.extend(events)

    def note(self, status: str, reason: str, *, now: bool = False) -> None:  # noqa: ARG002 - it is always now
        self.status, self.reason = status, reason

    async def sync(self) -> None:
        return

    def release(self) -> None:
        self.owned = False


class MemoryStore:
    lasting = False

    def __init__(self) -> None:
        self._journals: dict[RunId, MemoryJournal] = {}
        self.mail = LocalMail()
        self.checkpoints = LocalCheckpoints()
        self.examples = LocalExamples()

    async def create(self, new: NewRun, events: Sequence[Event]) -> MemoryJournal:
        if new.run in self._journals:
            raise Conflict(new.run, 0)
        history: Sequence[Event] = ()
        if new.fork_of is not None:
            history = self._journal(new.fork_of).events[: new.fork_at]
        journal = self._journals[new.run] = self.journal(new, history)
        journal.append(events)
        return journal

    def journal(self, new: NewRun, history: Sequence[Event]) -> MemoryJournal:
        return MemoryJournal(new, history)

    async def reopen(self, run: RunId) -> MemoryJournal:
        journal = self._journal(run)
        if journal.owned:
            raise Owned(run, "this process")
        journal.owned = True
        return journal

    async def load(self, run: RunId, *, after: int = 0) -> Sequence[Event]:
        return self._journal(run).events[after:]

    async def output(self, run: RunId, seq: int) -> Any:
        events = self._journal(run).events
        if not 0 < seq <= len(events):
            raise StoreError(f"run {run} has no event {seq}")
        return batches.output_of(events[seq - 1])[0]

    async def definition(self, run: RunId) -> Pinned:
        new = self._journal(run).new
        return Pinned(workflow=new.workflow, children=new.children, source=new.source)

    async def runs(
        self, *, limit: int = 100, before: RunId | None = None, **where: Any
    ) -> Sequence[RunRecord]:
        records = [_record(journal) for journal in reversed(self._journals.values())]
        if before is not None:
            ids = [record.run for record in records]
            records = records[ids.index(before) + 1 :] if before in ids else []
        wanted = [record for record in records if all(getattr(record, k) == v for k, v in where.items())]
        return wanted[:limit]

    async def close(self) -> None:
        self._journals.clear()

    def _journal(self, run: RunId) -> MemoryJournal:
        try:
            return self._journals[run]
        except KeyError:
            raise UnknownRun(run) from None


def _record(journal: MemoryJournal) -> RunRecord:
    new, events = journal.new, journal.events
    summary = batches.summary(events)
    return RunRecord(
        run=new.run,
        workflow=new.workflow.name,
        hash=new.hash,
        status=journal.status or summary.status,
        reason=journal.reason or summary.reason,
        started=events[0].at if events else 0.0,
        ended=summary.ended,
        events=len(events),
        parent=new.parent,
        source=new.source,
        fork_of=new.fork_of,
        fork_at=new.fork_at,
        owner="this process" if journal.owned else "",
    )
