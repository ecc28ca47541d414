"""What one run writes to a Postgres store. Taken batches are on their way; `durable` says what arrived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.ids import RunId
from penstock.run.events import Event
from penstock.store import batches
from penstock.store.base import Watcher
from penstock.store.postgres.connections import text
from penstock.store.postgres.jobs import Job, Segment
from penstock.store.postgres.writer import STATUS, columns

if TYPE_CHECKING:
    from penstock.store.postgres.store import PostgresStore


class PostgresJournal:
    lasting = True
    __slots__ = ("_status", "_store", "_watcher", "claim", "delivered", "durable", "gone", "key", "run")

    def __init__(self, store: PostgresStore, run: RunId, key: int, last: int, claim: str) -> None:
        self.run = run
        self.key = key
        self.durable = last
        self.claim = claim
        self.gone = False
        self.delivered: set[str] = set()
        """Commands handed to whoever drives the run, while their answers are not durable."""
        self._store = store
        self._watcher: Watcher | None = None
        self._status: tuple[str, str] | None = None

    def watch(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def append(self, events: Sequence[Event]) -> None:
        line, blobs = batches.encode(events)
        self._store.writer.put(Segment(self, events[0].seq, events[-1].seq, line, blobs, self._status))
        self._status = None

    def note(self, status: str, reason: str, *, now: bool = False) -> None:
        self._status = None if now else (status, text(reason))
        if now:
            values = columns([(self.run, self.claim, status, text(reason))])
            self._store.writer.put(Job([(STATUS, values)]))

    async def sync(self) -> None:
        await self._store.write([])

    def release(self) -> None:
        if self._store.disown(self):
            sql = "DELETE FROM leases WHERE run = %s AND claim = %s"
            self._store.writer.put(Job([(sql, (self.run, self.claim))], optional=True))

    # --- from the writer ---

    def arrived(self, last: int) -> None:
        self.durable = last
        self._store.moved(self.run)
        if self._watcher is not None:
            self._watcher.arrived(last)

    def lost(self) -> None:
        self.gone = True
        self._store.disown(self)
        if self._watcher is not None:
            self._watcher.lost()

    def stalled(self, reason: str) -> None:
        if self._watcher is not None:
            self._watcher.stalled(reason)
