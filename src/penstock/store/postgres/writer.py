"""The one task that writes to a Postgres database.

Jobs come in without anyone waiting; all that have gathered are committed together, and only
then are their owners told. When the server is gone, the writer keeps what it has, says why,
and tries again until it is back. Whether a commit arrived whose answer was lost need not be
known: every statement may be given twice, and a row of events that is there already is ours
when it holds our bytes. A row that is not there, and cannot be put there, was fenced off by
the lease: someone else drives the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any

import psycopg

from penstock.errors import StoreError
from penstock.ids import RunId
from penstock.store.postgres.connections import AGAIN, LOST, Connection, words
from penstock.store.postgres.jobs import Author, Job, Segment, Statement

MOST = 16 * 1024 * 1024
"""Bytes of events after which a group is full."""

BEAT = 2.0
"""Seconds between heartbeats."""

SILENCE = 5.0
"""Seconds without an answer after which the server counts as stalled."""

CLOSING = 30.0
"""Seconds that closing waits for a server that is gone while it has not got everything that counts."""

BRIEFLY = 0.5
"""Seconds that it waits when nothing is left that counts."""

_log = logging.getLogger("penstock.store")

_EVENTS = """
    WITH held AS (
        SELECT run, claim FROM leases WHERE run = ANY(%b::text[]) FOR SHARE
    )
    INSERT INTO events (id, last, batches)
    SELECT id, last, batches
      FROM unnest(%b::text[], %b::text[], %b::bigint[], %b::bigint[], %b::bytea[])
           AS mine (run, claim, id, last, batches)
      JOIN held USING (run, claim)
        ON CONFLICT (id) DO NOTHING RETURNING id
"""
"""Whoever wants to take a run over waits until we have committed, and then sees what we wrote."""

STATUS = """
    UPDATE runs SET status = mine.status, reason = mine.reason,
           ended = CASE WHEN mine.status IN ('succeeded', 'failed', 'partial', 'aborted')
                        THEN clock_timestamp() END
      FROM unnest(%b::text[], %b::text[], %b::text[], %b::text[]) AS mine (run, claim, status, reason)
      JOIN leases USING (run, claim)
     WHERE runs.run = mine.run
"""

_OURS = """
    SELECT id FROM events JOIN unnest(%b::bigint[], %b::bytea[]) AS mine (id, batches) USING (id)
     WHERE events.batches = mine.batches
"""

_BLOBS = "INSERT INTO blobs SELECT * FROM unnest(%b::text[], %b::bytea[]) ON CONFLICT DO NOTHING"
_USES = """
    INSERT INTO blob_uses
    SELECT key, hash FROM unnest(%b::text[], %b::text[], %b::bigint[], %b::text[])
           AS mine (run, claim, key, hash)
      JOIN leases USING (run, claim)
        ON CONFLICT DO NOTHING
"""

_WRONG = (psycopg.IntegrityError, psycopg.DataError, psycopg.errors.ProgramLimitExceeded, UnicodeError)
"""The fault of the statement. Anything else is the fault of the server, and passes."""

_AT_ONCE = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.ForeignKeyViolation,
)
"""Someone got in the way, and is through by now. Of events: a blob was swept away as it was used again."""


class _Rows:
    """What a group adds to its runs. Sealed once: bytes that are tried again are the same bytes."""

    def __init__(self, segments: Sequence[Segment], seal: Callable[..., bytes]) -> None:
        runs: dict[Author, list[Segment]] = {}
        blobs: dict[str, bytes] = {}
        uses: dict[tuple[Author, str], None] = {}
        statuses: dict[Author, tuple[str, str]] = {}
        for segment in segments:
            runs.setdefault(segment.journal, []).append(segment)
            for ref, body in segment.blobs:
                blobs[ref] = body
                uses[segment.journal, ref] = None
            if segment.status is not None:
                statuses[segment.journal] = segment.status
        self.journals = {
            journal.key << 32 | its[0].first: (journal, its[-1].last) for journal, its in runs.items()
        }
        self.runs = [journal.run for journal in runs]
        self.claims = [journal.claim for journal in runs]
        self.ids = list(self.journals)
        self.lasts = [last for _, last in self.journals.values()]
        self.bodies = [
            seal(b"".join([segment.line for segment in its]), "events", journal.run, its[0].first)
            for journal, its in runs.items()
        ]
        self.blobs = sorted((ref, seal(body, "blobs", ref)) for ref, body in blobs.items())
        self.uses = [(journal.run, journal.claim, journal.key, ref) for journal, ref in uses]
        self.statuses = [(journal.run, journal.claim, *status) for journal, status in statuses.items()]

    def statements(self) -> list[Statement]:
        found: list[Statement] = []
        if self.blobs:
            found += [(_BLOBS, columns(self.blobs)), (_USES, columns(self.uses))]
        if self.ids:
            values = (self.runs, self.runs, self.claims, self.ids, self.lasts, self.bodies)
            found.append((_EVENTS, values))
        if self.statuses:
            found.append((STATUS, columns(self.statuses)))
        return found


class _Group:
    """What is committed together."""

    def __init__(self, jobs: Sequence[Job], rows: _Rows) -> None:
        self.jobs = jobs
        self.rows = rows

    @property
    def counts(self) -> bool:
        return bool(self.rows.ids) or any(job.statements and not job.optional for job in self.jobs)

    def parts(self) -> Iterator[_Group]:
        """The same, one at a time. Events first: a run is let go only when they have arrived."""
        yield _Group([], self.rows)
        for job in self.jobs:
            yield _Group([job], _Rows([], bytes))


class Writer:
    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        *,
        seal: Callable[..., bytes],
        beat: Callable[[], Statement | None],
        stalled: Callable[[str], None],
    ) -> None:
        self._connect = connect
        self._seal = seal
        self._beat = beat
        self._tell_stalled = stalled
        self._jobs: deque[Segment | Job] = deque()
        self._groups: deque[_Group] = deque()
        """Being written. Kept here, so that a loop that ends in the middle loses nothing."""
        self._db: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._bell: asyncio.Event
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beaten = 0.0
        self.stalled = ""
        """Why nothing can be written; empty when it can."""
        self._closing = False

    def put(self, job: Segment | Job) -> None:
        """Hand a job over. Never blocks."""
        self._jobs.append(job)
        task = self._task
        if task is None or task.done() or self._loop is not asyncio.get_running_loop():
            self._start()
        self._bell.set()

    async def close(self) -> None:
        """Write what is left, then stop.

        A server that is gone is waited for only when something is left that counts, with a word about
        what it is; `StoreError` when it stays away too long.
        """
        self._closing = True
        if (self._jobs or self._groups) and (self._task is None or self._task.done()):
            self._start()
        if self._task is None or self._task.done():
            return
        self._bell.set()
        deadline, told = time.monotonic() + CLOSING, False
        while not (await asyncio.wait([self._task], timeout=BRIEFLY))[0]:
            if not self.stalled:
                continue  # slow, and there
            owed = self._owed()
            if owed and time.monotonic() < deadline:
                if not told:
                    told = True
                    _log.warning("closing waits for the server (%s): %s", self.stalled, owed)
                continue
            self._task.cancel()
            await asyncio.wait([self._task])
            self._give_up()
            if owed:
                raise StoreError(f"the server of the store is gone ({self.stalled}); it never got {owed}")

    def _give_up(self) -> None:
        """Tell whoever still waits for an answer that there will be none."""
        left = [*(job for group in self._groups for job in group.jobs), *self._jobs]
        self._groups.clear()
        self._jobs.clear()
        for job in left:
            if isinstance(job, Job) and job.failed is not None:
                guarded(partial(job.failed, StoreError(f"the store was closed: {self.stalled}")))

    def _owed(self) -> str:
        """What is not written yet and counts, for people."""
        events: Counter[RunId] = Counter()
        for job in self._jobs:
            if isinstance(job, Segment) and not job.journal.gone:
                events[job.journal.run] += job.last - job.first + 1
        for group in self._groups:
            for id, (journal, last) in group.rows.journals.items():
                events[journal.run] += last - (id & 0xFFFFFFFF) + 1
        if events:
            return ", ".join(f"{count} events of run {run}" for run, count in events.items())
        jobs = [job for job in self._jobs if isinstance(job, Job) and job.statements and not job.optional]
        return "what was asked of it" if jobs or any(group.counts for group in self._groups) else ""

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._bell = asyncio.Event()
        self._bell.set()
        self._task = self._loop.create_task(
            self._run(), name="penstock-writer", context=contextvars.Context()
        )

    async def _run(self) -> None:
        try:
            while True:
                if not (self._jobs or self._groups or self._closing):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(BEAT):
                            await self._bell.wait()
                self._bell.clear()
                self._gather()
                while self._groups:
                    await self._commit()
                if self._closing and not self._jobs:
                    return
        finally:
            self._drop()

    def _gather(self) -> None:
        """Make one group of what is waiting."""
        if time.monotonic() - self._beaten >= BEAT and (statement := self._beat()):
            self._jobs.append(Job([statement], optional=True))
            self._beaten = time.monotonic()
        jobs: list[Job] = []
        segments: list[Segment] = []
        authors: dict[int, Author] = {}
        size = 0
        while self._jobs and size < MOST:
            job = self._jobs[0]
            if isinstance(job, Job):
                jobs.append(job)
            elif not job.journal.gone:
                if authors.setdefault(job.journal.key, job.journal) is not job.journal:
                    break  # two writers of one run: the second is judged by what the first has written
                segments.append(job)
                size += job.size
            self._jobs.popleft()
        if jobs or segments:
            self._groups.append(_Group(jobs, _Rows(segments, self._seal)))

    # --- one group ---

    async def _commit(self) -> None:
        """Commit the first group, however long it takes."""
        group = self._groups[0]
        wait, longest = AGAIN
        again = True
        while True:
            silence = asyncio.get_running_loop().call_later(SILENCE, self._say, "the server does not answer")
            try:
                tell = await self._attempt(group)
                break
            except Exception as error:  # noqa: BLE001 - whatever it is, nothing may be dropped
                if isinstance(error, _WRONG) and group.jobs:
                    self._divide(error)
                    return
                if isinstance(error, _AT_ONCE):
                    continue
                self._drop()  # in whatever state it is
                if isinstance(error, LOST) and again:
                    again = False  # an idle connection that was cut is not yet a server that is gone
                    continue
                self._say(words(error))
            finally:
                silence.cancel()
            await asyncio.sleep(wait)
            wait = min(wait * 2, longest)
        self._groups.popleft()
        self._say("")
        for call in tell:
            guarded(call)

    def _divide(self, error: Exception) -> None:
        """Something in the group is wrong. Alone, it cannot take others with it."""
        group = self._groups.popleft()
        parts = list(group.parts())
        if len(group.jobs) == 1 and not group.rows.ids:
            if (failed := group.jobs[0].failed) is not None:
                guarded(lambda: failed(error))
            return
        self._groups.extendleft(reversed(parts))

    async def _attempt(self, group: _Group) -> list[Callable[[], None]]:
        """Write a group; returns whom to tell."""
        events = group.rows.statements()
        others = [(job, job.statements) for job in group.jobs]
        flat = [statement for _, statements in others for statement in statements]
        if self._db is None and (events or flat):
            self._db = await self._connect()
        for job in group.jobs:
            job.sent = True
        results = await self._execute(events + flat)  # events first: a job may let their run go
        tell: list[Callable[[], None]] = []
        at = len(events)
        for job, statements in others:
            mine, at = results[at : at + len(statements)], at + len(statements)
            if job.done is not None:
                tell.append(_call(job.done, mine))
        if events:
            kept = {row[0] for row in results[[sql for sql, _ in events].index(_EVENTS)]}
            if len(kept) < len(group.rows.ids):
                kept |= await self._ours(group.rows)
            arrivals = [
                _call(journal.arrived, last) if id in kept else journal.lost
                for id, (journal, last) in group.rows.journals.items()
            ]
            tell = arrivals + tell
        return tell

    async def _execute(self, statements: Sequence[Statement]) -> list[list[Any]]:
        """All of it or nothing, in one exchange with the server."""
        if not statements:
            return []
        db = self._db
        assert db is not None  # noqa: S101 - an attempt begins with it
        if len(statements) == 1:
            return [await _fetch(await db.execute(*statements[0], binary=True))]
        try:
            async with db.pipeline():
                await db.execute("BEGIN")
                cursors = [await db.execute(sql, values, binary=True) for sql, values in statements]
                await db.execute("COMMIT")
            return [await _fetch(cursor) for cursor in cursors]
        except Exception:
            if not db.closed and db.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                await db.execute("ROLLBACK")
            raise

    async def _ours(self, rows: _Rows) -> set[int]:
        """Rows that were there before, because we wrote them and never heard of it."""
        found = await self._execute([(_OURS, (rows.ids, rows.bodies))])
        return {row[0] for row in found[0]}

    # --- telling ---

    def _say(self, reason: str) -> None:
        if bool(reason) != bool(self.stalled):
            self.stalled = reason
            guarded(lambda: self._tell_stalled(reason))

    def _drop(self) -> None:
        if self._db is not None:
            self._db.pgconn.finish()
            self._db = None


def columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


async def _fetch(cursor: psycopg.AsyncCursor[Any]) -> list[Any]:
    return await cursor.fetchall() if cursor.description else []


def _call(listen: Callable[[Any], None], what: Any) -> Callable[[], None]:
    return lambda: listen(what)


def guarded(call: Callable[[], None]) -> None:
    """Tell someone; his trouble is not ours."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - as asyncio does with callbacks
        context = {"message": "a listener of the store raised", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)
