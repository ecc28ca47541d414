"""What one run writes to a SQLite store. Taken batches are on their way; `durable` names what has arrived."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any

from penstock.ids import RunId
from penstock.run.events import Event
from penstock.run.state import ENDED
from penstock.store import batches
from penstock.store.base import Watcher
from penstock.store.sqlite.jobs import Job, Segment
from penstock.store.sqlite.pen import HELD, RELEASE

if TYPE_CHECKING:
    from penstock.store.sqlite.store import SqliteStore

_STANDS = f"UPDATE runs SET status = ?, reason = ?, ended = ? WHERE key = ? AND EXISTS ({HELD})"  # noqa: S608 - only question marks
_BLOB = "INSERT OR IGNORE INTO blobs VALUES (?, ?)"
_BLOB_USE = "INSERT OR IGNORE INTO blob_uses VALUES (?, ?)"

LARGE = 64_000
"""Bytes of a batch that the event loop does not write itself."""

_SOON = 0.01
"""Seconds that a lease may outlive its run: the next commit takes it along, and nobody waits for that."""

_LONG = 0.005
"""Seconds that a turn of the loop may take before the thread is the quicker way."""


class SqliteJournal:
    lasting = True
    __slots__ = (
        "_context", "_due", "_loop", "_over", "_status", "_store", "_watcher", "claim", "delivered",
        "durable", "gone", "key", "run",
    )  # fmt: skip

    def __init__(self, store: SqliteStore, run: RunId, key: int, last: int, claim: str) -> None:
        self.run = run
        self.key = key
        self.claim = claim
        """Ours for as long as the lease says so. Another journal of the same run has another."""
        self.gone = False
        """Someone else drives the run: nothing of ours is written any more."""
        self.delivered: set[str] = set()
        """Commands handed out and not yet answered."""
        self.durable = last
        self._store = store
        self._watcher: Watcher | None = None
        self._status: tuple[str, str] | None = None
        self._over = False
        """Whether what was taken last is the end of the run."""
        self._due = 0.0
        """Since when `_write` has been waiting for the end of the loop's turn; 0 when it has not."""
        self._context = Context()
        """What comes of a commit has nothing to do with the step that happened to ask for it."""
        self._loop = asyncio.get_running_loop()

    def watch(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def append(self, events: Sequence[Event]) -> None:
        writer = self._store.writer
        line, blobs = batches.encode(events)
        for ref, body in blobs:
            writer.put(
                Job([(_BLOB, (ref, self._store.seal.seal(body, "blobs", ref))), (_BLOB_USE, (self.key, ref))])
            )
        writer.leave(Segment(self, events[0].seq, events[-1].seq, line, self._status))
        self._over = self._status is not None and self._status[0] in ENDED
        self._status = None
        if len(line) > LARGE:
            self._by_thread()
        elif not self._due:
            self._due = time.perf_counter()
            self._loop.call_soon(self._write, context=self._context)

    def _write(self) -> None:
        """At the end of the loop's turn, when everything that happens in it has been taken."""
        writer = self._store.writer
        if time.perf_counter() - self._due > _LONG:
            writer.distrust()
        self._due = 0.0
        if not writer.here():
            self._by_thread()

    def _by_thread(self) -> None:
        self._store.writer.wake()
        self._store.room.wanted(self._loop)

    def note(self, status: str, reason: str, *, now: bool = False) -> None:
        self._status = None if now else (status, reason)
        if now:
            ended = time.time() if status in ENDED else None
            values = (status, reason, ended, self.key, self.run, self.claim)
            self._store.writer.put(Job([(_STANDS, values)]))

    async def sync(self) -> None:
        await self._store.write([], patient=True)

    def release(self) -> None:
        if self._store.journals.get(self.run) is self:
            del self._store.journals[self.run]
            self._store.checkpoints.flush()  # for whoever takes it up next
            if self._over:
                return  # the commit of its end has let go of it
            self._store.writer.leave(Job([(RELEASE, (self.run, self.claim))], optional=True))
            if _running() is self._loop:
                self._loop.call_later(_SOON, self._store.writer.wake, context=self._context)
            else:
                self._store.writer.wake()

    def arrived(self, last: int) -> None:
        """On the writer's thread."""
        on_loop(self._loop, self._hear, last)

    def lost(self) -> None:
        """On the writer's thread."""
        if not self.gone:
            self.gone = True
            on_loop(self._loop, self._lose)

    def _lose(self) -> None:
        if self._store.journals.get(self.run) is self:
            del self._store.journals[self.run]
        if self._watcher is not None:
            self._watcher.lost()

    def _hear(self, last: int) -> None:
        self.durable = last
        if self._watcher is not None:
            self._watcher.arrived(last)

    def stalled(self, reason: str) -> None:
        """On the writer's thread."""
        if self._watcher is not None:
            on_loop(self._loop, self._watcher.stalled, reason)


def on_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *values: Any) -> None:
    """Call on the loop's thread; a loop that is closed has nobody left who cares."""
    if _running() is not loop:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(call, *values)
        return
    try:
        call(*values)
    except Exception as error:  # noqa: BLE001 - as the loop itself does: what one does not bear is not the others' trouble
        loop.call_exception_handler({"message": "while telling what is durable", "exception": error})


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
