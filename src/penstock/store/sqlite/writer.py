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
import logging
import queue
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from penstock.errors import StoreError
from penstock.ids import RunId
from penstock.run.state import ENDED
from penstock.store.sqlite.jobs import (
    Author,
    Job,
    Segment,
    Statement,
    of_one_run,
    tell_all,
    tell_the_impatient,
)

MOST = 2_000
"""Rows in one INSERT: more would pass SQLite's limit on parameters."""

AGAIN = 0.25
"""Seconds between tries while the disk refuses."""

PATIENCE = 10.0
"""Seconds that closing waits for a disk that refuses while something is left that counts."""

BRIEFLY = 0.5
"""Seconds between looks at how closing gets on."""

WAIT = 5.0
"""Seconds that SQLite itself waits for other processes."""

BEAT = 2.0
"""Seconds between heartbeats."""

QUICK = 0.001
"""Seconds that a commit may take to be one that an event loop can make itself."""

TRUST = 2
"""Quick commits in a row before a loop makes the next."""

WHILE = 50
"""Commits of the thread before a loop that was busy is trusted again."""

TURNS = 96
"""Commits before the thread tidies up the log: one that is written from its beginning again need not grow,
and a commit that makes no file grow is a third cheaper."""

LONG = 4_000_000
"""Bytes after which it does so earlier. Never in a commit, where whoever waits for it would wait for both."""

MANY = 256
"""Jobs that are too many for a loop to write at once."""

_log = logging.getLogger("penstock.store")

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
HELD = "SELECT 1 FROM leases WHERE run = ? AND claim = ?"
_APPEND = f"INSERT INTO events SELECT ?, ?, ? WHERE EXISTS ({HELD})"


class Writer:
    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        *,
        name: str,
        seal: Callable[..., bytes],
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
        self._resting = False
        """Whether the thread sleeps until it is woken."""
        self._quick = 0
        """Commits in a row that took no time to speak of."""
        self._hurried = False
        """Whether the connection gives up at once when someone is in its way."""
        self._log = 0
        """Bytes written since the log was last emptied into the file."""
        self._untidy = False
        """Whether it should be."""
        self.commits = 0
        self._beaten = time.monotonic()
        self._closed = False
        self._refused = ""
        """Why nothing can be written; empty when it can."""
        self._given_up = False
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

    def stay_awake(self) -> None:
        """There is something to look after: the thread must not sleep for ever."""
        if self._resting or self._thread is None:
            self.wake()

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
                told = self._append(self._db, self._work) or self._attempt(self._db, self._work)
            except Exception:  # noqa: BLE001 - whatever it is, the thread meets it as well and deals with it
                _rollback(self._db)
                self._quick = 0
                return False
            self._work = []
        finally:
            self._turn.release()
        if self._untidy:
            self.wake()
        for tell in told:
            tell()
        return True

    def distrust(self) -> None:
        """The loop has much else to do: what waits for it is written late. The thread goes on for a while."""
        self._quick = -WHILE

    def close(self) -> None:
        """Write what is left, then stop.

        A disk that refuses is waited for only when something is left that counts, with a word about
        what it is; `StoreError` when it goes on refusing.
        """
        self._closed = True
        if self._thread is None:
            return
        self._bell.put(False)
        deadline, told = time.monotonic() + PATIENCE, False
        while True:
            self._thread.join(BRIEFLY)
            if not self._thread.is_alive():
                return
            why, owed = self._refused, self._owed()
            if not why or (owed and time.monotonic() < deadline):
                if why and not told:
                    told = True
                    _log.warning("closing waits for %s (%s): %s", self._name, why, owed)
                continue
            self._given_up = True
            if owed:
                raise StoreError(f"{self._name} cannot be written ({why}): it never got {owed}")
            return

    def _owed(self) -> str:
        """What is not written yet and counts, for people."""
        jobs = [*self._work, *self._jobs.copy()]
        events: Counter[RunId] = Counter()
        for job in jobs:
            if isinstance(job, Segment) and not job.author.gone:
                events[job.author.run] += job.last - job.first + 1
        if events:
            return ", ".join(f"{count} events of run {run}" for run, count in events.items())
        asked = any(isinstance(job, Job) and job.statements and not job.optional for job in jobs)
        return "what was asked of it" if asked else ""

    def _run(self) -> None:
        going, quiet = True, False
        while going:
            # With no run to keep alive there is no reason to wake before there is something to write. Said
            # before the look at who is there: whoever comes later sees it, and wakes us.
            self._resting = quiet
            if quiet and self._beat():
                self._resting = False
            try:
                going, quiet = self._bell.get(timeout=None if self._resting else BEAT), False
            except queue.Empty:
                quiet = True
            self._rung = False  # before the look: who comes later rings again
            with self._turn:
                self._gather()
                if time.monotonic() - self._beaten >= BEAT and (statement := self._beat()):
                    self._work.append(Job([statement], optional=True))
                    self._beaten = time.monotonic()
                if self._work:
                    self._commit(self._work)
                    self._work = []
                if self._untidy and self._db is not None:
                    self._untidy, self._log = False, 0
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
        """A loop must not wait for other processes; the thread may."""
        if self._hurried != hurry:
            db.execute(f"PRAGMA busy_timeout = {0 if hurry else int(WAIT * 1000)}")
            self._hurried = hurry

    def _commit(self, jobs: list[Segment | Job]) -> None:
        """Commit all of it. What is itself wrong is taken out; trouble with the disk is waited for."""
        waiting = False
        while jobs and not self._given_up:
            try:
                if self._db is None:
                    self._db = self._connect()
                    self._db.execute("PRAGMA wal_autocheckpoint = 0")
                self._hurry(self._db, hurry=False)
                told = self._append(self._db, jobs) or self._attempt(self._db, jobs)
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
                self._refused = str(error)
                if busy(error):
                    continue  # another process writes; SQLite itself has waited for a while
                jobs = tell_the_impatient(jobs, f"{self._name} cannot be written: {error}")
                if not waiting:
                    waiting = True
                    self._stalled(str(error))
                if jobs:
                    time.sleep(AGAIN)
            else:
                self._refused = ""
                if waiting:
                    self._stalled("")
                for tell in told:
                    tell()
                return
        tell_all(jobs, f"{self._name} was closed: {self._refused}")
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
                    self._log += sum(len(value) for value in values if isinstance(value, bytes))
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

    def _append(self, db: sqlite3.Connection, jobs: Sequence[Segment | Job]) -> list[Callable[[], None]]:
        """What one run alone adds, in one statement and its own transaction; nothing when there is more."""
        segments = of_one_run(jobs)
        if not segments:
            return []
        author, last = segments[0].author, segments[-1].last
        first = segments[0].first
        body = self._seal(b"".join([s.line for s in segments]), "events", author.run, first)
        row = (author.key << 32 | first, last, body)
        self._log += len(row[2])
        began = time.perf_counter()
        try:
            kept = db.execute(_APPEND, (*row, author.run, author.claim)).rowcount
        except sqlite3.IntegrityError:
            kept = 0  # the row is there already
        if not kept:
            raise _Lost([author])
        self._committed(time.perf_counter() - began)
        return [_tell(author.arrived, last)]

    def _committed(self, took: float) -> None:
        self._quick = self._quick + 1 if took < QUICK else 0
        self.commits += 1
        if self.commits % TURNS == 0 or self._log > LONG:
            self._untidy = True

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
        lost = [author for author in runs if not db.execute(HELD, (author.run, author.claim)).fetchone()]
        if lost:
            raise _Lost(lost)
        rows = [
            (
                author.key << 32 | segments[0].first,
                segments[-1].last,
                self._seal(b"".join([s.line for s in segments]), "events", author.run, segments[0].first),
            )
            for author, segments in runs.items()
        ]
        self._log += sum(len(row[2]) for row in rows)
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


def _mark(db: sqlite3.Connection, runs: dict[Author, list[Segment]]) -> None:
    """Say how runs stand, in the commit that makes it so."""
    for author, segments in runs.items():
        status = next((segment.status for segment in reversed(segments) if segment.status), None)
        if status is not None:
            ended = time.time() if status[0] in ENDED else None
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
