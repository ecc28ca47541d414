"""The one connection that writes to a SQLite file, and the thread that it belongs to.

Jobs come in without anyone waiting; all that have gathered are committed together (one
fsync for the lot), and only then are their owners told. When the disk says no, the writer
keeps what it has, says why, and tries again until the disk says yes: nothing is dropped.

Waking a thread and being woken by it takes as long as a commit to a fast disk. So while
commits are quick, the event loop may make them itself (`here`). The first one that is slow, in
someone's way or refused goes to the thread, and so do the next: no loop waits twice.
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.errors import StoreError
from penstock.ids import RunId

MOST = 2_000
"""Rows in one INSERT: more would pass SQLite's limit on parameters."""

AGAIN = 0.25
"""Seconds between tries while the disk refuses."""

PATIENCE = 10.0
"""Seconds that closing waits for the disk."""

BEAT = 2.0
"""Seconds between heartbeats."""

QUICK = 0.001
"""Seconds that a commit may take to be one that an event loop can make itself."""

TRUST = 2
"""Quick commits in a row before a loop makes the next."""

WHILE = 50
"""Commits of the thread before a loop that was busy is trusted again."""

TURNS = 96
"""Commits that a loop makes before the thread tidies up the log: one that is written from its beginning
again need not grow, and a commit that makes no file grow is a third cheaper."""

MANY = 256
"""Jobs that are too many for a loop to write at once."""

Statement = tuple[str, Sequence[Any]]

_TROUBLE = frozenset(
    (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PROTOCOL,
    )
)
"""What is wrong with the disk or with other processes, and not with a statement."""

_STATUS = "UPDATE runs SET status = ?, reason = ?, ended = ? WHERE key = ?"
_HELD = "SELECT 1 FROM leases WHERE run = ? AND claim = ?"
_APPEND = f"INSERT INTO events SELECT ?, ?, ? WHERE EXISTS ({_HELD})"


class Author(Protocol):
    """Whoever wrote a segment. Told on the writer's thread."""

    run: RunId
    key: int
    claim: str
    gone: bool

    def arrived(self, last: int) -> None: ...

    def lost(self) -> None:
        """Someone else drives the run now: the lease is theirs, or the row is there already."""


class Segment:
    """A batch of one run. All that one commit adds to a run becomes one row."""

    __slots__ = ("author", "first", "last", "line", "status")

    def __init__(
        self, author: Author, first: int, last: int, line: bytes, status: tuple[str, str] | None = None
    ) -> None:
        self.author = author
        self.first = first
        self.last = last
        self.line = line
        self.status = status
        """How the run stands from this batch on, and why; None when that has not changed."""


class Job:
    """Statements that belong together, and who wants to know."""

    __slots__ = ("done", "failed", "patient", "statements")

    def __init__(
        self,
        statements: Sequence[Statement],
        done: Callable[[list[list[Any]]], None] | None = None,
        failed: Callable[[Exception], None] | None = None,
        *,
        patient: bool = True,
    ) -> None:
        self.statements = statements
        self.done = done
        self.failed = failed
        self.patient = patient
        """Whether it waits for a disk that refuses; otherwise it is told at once."""
        """Told when the statements themselves are wrong; trouble with the disk is waited for instead."""


class Writer:
    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        *,
        name: str,
        seal: Callable[[bytes], bytes],
        beat: Callable[[], Statement | None],
        stalled: Callable[[str], None],
    ) -> None:
        self._connect = connect
        self._name = name
        self._seal = seal
        self._beat = beat
        self._stalled = stalled
        self._jobs: deque[Segment | Job] = deque()
        self._work: list[Segment | Job] = []
        """Taken out of `_jobs` and not yet written. Whoever has the turn may touch it."""
        self._turn = threading.Lock()
        """To commit: the thread, or a loop."""
        self._bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """There is something to do; False: there will be nothing any more."""
        self._rung = False
        self._quick = 0
        """Commits in a row that took no time to speak of."""
        self._hurried = False
        """Whether the connection gives up at once when someone is in its way, and leaves the log as it is."""
        self._untidy = False
        """Whether the log should be emptied into the file."""
        self.commits = 0
        self._beaten = time.monotonic()
        self._closed = False
        self._db: sqlite3.Connection | None = None
        self._thread: threading.Thread | None = None

    @property
    def behind(self) -> bool:
        """Whether anything is not written yet."""
        return bool(self._jobs or self._work)

    def put(self, job: Segment | Job) -> None:
        """Hand a job to the thread. Never blocks."""
        self.leave(job)
        self.wake()

    def leave(self, job: Segment | Job) -> None:
        """Leave a job without waking anyone; `here` or `wake` has to follow."""
        if self._closed:
            raise StoreError(f"{self._name} was closed")
        self._jobs.append(job)

    def wake(self) -> None:
        if not self._rung:
            self._rung = True
            self._bell.put(True)
        if self._thread is None:  # whoever only reads needs no writer
            self._thread = threading.Thread(target=self._run, name="penstock-writer", daemon=True)
            self._thread.start()

    def here(self) -> bool:
        """Commit on this thread what has gathered. False: that would take long, `wake` has to follow."""
        if self._closed or self._quick < TRUST or not self._turn.acquire(blocking=False):
            return False
        try:
            self._gather()
            if not self._work:
                return True
            if self._db is None or len(self._work) > MANY:
                return False
            try:
                self._hurry(self._db, hurry=True)
                told = self._append(self._db) or self._attempt(self._db, self._work)
            except Exception:  # noqa: BLE001 - whatever it is, the thread meets it as well and deals with it
                _rollback(self._db)
                self._quick = 0
                return False
            self._work = []
        finally:
            self._turn.release()
        if self.commits % TURNS == 0:
            self._untidy = True
            self.wake()
        for tell in told:
            tell()
        return True

    def distrust(self) -> None:
        """The loop has much else to do: what waits for it is written late. The thread goes on for a while."""
        self._quick = -WHILE

    def close(self) -> None:
        """Write what is left, then stop. A disk that still refuses is not waited for any longer."""
        self._closed = True
        if self._thread is not None:
            self._bell.put(False)
            self._thread.join(PATIENCE)

    def _run(self) -> None:
        going = True
        while going:
            with contextlib.suppress(queue.Empty):
                # With no run to keep alive there is no reason to wake before there is something to write.
                going = self._bell.get(timeout=BEAT if self._beat() else None)
            self._rung = False  # before the look: who comes later rings again
            with self._turn:
                self._gather()
                if time.monotonic() - self._beaten >= BEAT and (statement := self._beat()):
                    self._work.append(Job([statement]))
                    self._beaten = time.monotonic()
                if self._work:
                    self._commit(self._work)
                    self._work = []
                if self._untidy and self._db is not None:
                    self._untidy = False
                    with contextlib.suppress(sqlite3.Error):  # another time
                        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        if self._db is not None:
            self._db.close()

    def _gather(self) -> None:
        """Take what has come. Each job is always in one of the two, or else it might be overlooked."""
        jobs, work = self._jobs, self._work
        while jobs:
            work.append(jobs[0])
            jobs.popleft()

    def _hurry(self, db: sqlite3.Connection, *, hurry: bool) -> None:
        """A loop must not wait for other processes, nor tidy up the log; the thread may."""
        if self._hurried != hurry:
            db.execute(f"PRAGMA busy_timeout = {0 if hurry else 5000}")
            db.execute(f"PRAGMA wal_autocheckpoint = {0 if hurry else 1000}")
            self._hurried = hurry

    def _commit(self, jobs: list[Segment | Job]) -> None:
        """Commit all of it. What is itself wrong is taken out; trouble with the disk is waited for."""
        waiting = False
        while jobs:
            try:
                if self._db is None:
                    self._db = self._connect()
                self._hurry(self._db, hurry=False)
                told = self._attempt(self._db, jobs)
            except _Wrong as wrong:
                _rollback(self._db)
                jobs = [job for job in jobs if job is not wrong.job]
                if wrong.job.failed is not None:
                    wrong.job.failed(wrong.error)
            except _Lost as lost:
                _rollback(self._db)
                for author in lost.authors:
                    author.lost()
            except Exception as error:  # noqa: BLE001 - whatever it is, nothing taken may be dropped
                _rollback(self._db)
                if busy(error):
                    continue  # another process writes; SQLite itself has waited for a while
                jobs = _tell_the_impatient(jobs, f"{self._name} cannot be written: {error}")
                if not waiting:
                    waiting = True
                    self._stalled(str(error))
                if jobs:
                    time.sleep(AGAIN)
            else:
                if waiting:
                    self._stalled("")
                for tell in told:
                    tell()
                return
        if waiting:
            self._stalled("")

    def _attempt(self, db: sqlite3.Connection, jobs: list[Segment | Job]) -> list[Callable[[], None]]:
        db.execute("BEGIN IMMEDIATE")
        told: list[Callable[[], None]] = []
        runs: dict[Author, list[Segment]] = {}
        for job in jobs:
            if isinstance(job, Segment):
                if not job.author.gone:
                    runs.setdefault(job.author, []).append(job)
                continue
            told += self._flush(db, runs)  # a job may rely on what was taken before it
            results = []
            try:
                for sql, values in job.statements:
                    results.append(db.execute(sql, values).fetchall())
            except (sqlite3.Error, UnicodeError, OverflowError) as error:
                if _passes(error):
                    raise
                raise _Wrong(job, error) from error
            if job.done is not None:
                told.append(_tell(job.done, results))
        told += self._flush(db, runs)
        began = time.perf_counter()
        db.commit()
        self._committed(time.perf_counter() - began)
        return told

    def _append(self, db: sqlite3.Connection) -> list[Callable[[], None]]:
        """What one run alone adds, in one statement and its own transaction; nothing when there is more."""
        segments = _of_one_run(self._work)
        if not segments:
            return []
        author, last = segments[0].author, segments[-1].last
        row = (author.key << 32 | segments[0].first, last, self._seal(b"".join(s.line for s in segments)))
        began = time.perf_counter()
        if not db.execute(_APPEND, (*row, author.run, author.claim)).rowcount:
            raise _Lost([author])
        self._committed(time.perf_counter() - began)
        return [_tell(author.arrived, last)]

    def _committed(self, took: float) -> None:
        self._quick = self._quick + 1 if took < QUICK else 0
        self.commits += 1

    def _flush(self, db: sqlite3.Connection, runs: dict[Author, list[Segment]]) -> list[Callable[[], None]]:
        """Write what has been gathered."""
        if not runs:
            return []
        self._insert(db, runs)
        _mark(db, runs)
        told = [_tell(author.arrived, segments[-1].last) for author, segments in runs.items()]
        runs.clear()
        return told

    def _insert(self, db: sqlite3.Connection, runs: dict[Author, list[Segment]]) -> None:
        """One statement for all rows: each one gives the GIL away, and getting it back is slow."""
        lost = [author for author in runs if not db.execute(_HELD, (author.run, author.claim)).fetchone()]
        if lost:
            raise _Lost(lost)
        rows = [
            (
                author.key << 32 | segments[0].first,
                segments[-1].last,
                self._seal(b"".join(segment.line for segment in segments)),
            )
            for author, segments in runs.items()
        ]
        try:
            for at in range(0, len(rows), MOST):
                part = rows[at : at + MOST]
                marks = ",".join(["(?,?,?)"] * len(part))
                values = [value for row in part for value in row]
                db.execute(f"INSERT INTO events (id, last, batches) VALUES {marks}", values)  # noqa: S608 - only question marks
        except sqlite3.IntegrityError:
            there = {
                row[0] for row in rows if db.execute("SELECT 1 FROM events WHERE id = ?", row[:1]).fetchone()
            }
            raise _Lost(
                [author for author, its in runs.items() if author.key << 32 | its[0].first in there]
            ) from None


def _of_one_run(jobs: Sequence[Segment | Job]) -> list[Segment]:
    """The jobs, when all of them are batches of the same run and nothing else changes; otherwise none."""
    plain = [job for job in jobs if isinstance(job, Segment) and not job.status and not job.author.gone]
    alone = len(plain) == len(jobs) and all(segment.author is plain[0].author for segment in plain)
    return plain if alone else []


def _mark(db: sqlite3.Connection, runs: dict[Author, list[Segment]]) -> None:
    """Say how runs stand, in the commit that makes it so."""
    for author, segments in runs.items():
        status = next((segment.status for segment in reversed(segments) if segment.status), None)
        if status is not None:
            ended = time.time() if status[0] in ("succeeded", "failed", "partial", "aborted") else None
            db.execute(_STATUS, (*status, ended, author.key))


class _Wrong(Exception):
    """A job that no patience will help."""

    def __init__(self, job: Job, error: Exception) -> None:
        super().__init__(str(error))
        self.job = job
        self.error = error


class _Lost(Exception):
    """Runs that someone else drives now."""

    def __init__(self, authors: Sequence[Author]) -> None:
        super().__init__(f"{len(authors)} runs")
        self.authors = authors


def _tell_the_impatient(jobs: list[Segment | Job], why: str) -> list[Segment | Job]:
    """Those who would rather know than wait are told; the others stay."""
    left: list[Segment | Job] = []
    for job in jobs:
        if isinstance(job, Job) and not job.patient and job.failed is not None:
            job.failed(StoreError(why))
        else:
            left.append(job)
    return left


def _passes(error: Exception) -> bool:
    """Whether waiting may help."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _TROUBLE


def busy(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _rollback(db: sqlite3.Connection | None) -> None:
    if db is not None:
        with contextlib.suppress(sqlite3.Error):
            db.rollback()


def _tell(listen: Callable[[Any], None], what: Any) -> Callable[[], None]:
    return lambda: listen(what)
