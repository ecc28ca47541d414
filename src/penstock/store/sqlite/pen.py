"""The one connection that writes to a SQLite file: what has gathered becomes one transaction.

Whoever uses it decides when to write and what to do when it cannot be done; nothing here waits or
tries again.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

from penstock.run.state import ENDED
from penstock.store.sqlite.jobs import Author, Job, Segment, of_one_run

MOST = 2_000
"""Rows in one INSERT: more would pass SQLite's limit on parameters."""

WAIT = 5.0
"""Seconds that SQLite itself waits for other processes."""

QUICK = 0.001
"""Seconds that a commit may take to be one that an event loop can make itself."""

TURNS = 96
"""Commits before the log is tidied up: one that is written from its beginning again need not grow,
and a commit that makes no file grow is a third cheaper."""

LONG = 4_000_000
"""Bytes after which that happens earlier. Never in a commit: whoever waits for it would wait for both."""

NORMAL = 1
"""As SQLite calls it: a commit is whole or not there at all, whatever happens, and the disk gets it later."""

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
RELEASE = "DELETE FROM leases WHERE run = ? AND claim = ?"
_APPEND = f"INSERT INTO events SELECT ?, ?, ? WHERE EXISTS ({HELD})"

Told = list[Callable[[], None]]
"""Who is to be told that what they wrote is there."""


class Wrong(Exception):
    """A job that no patience will help."""

    def __init__(self, job: Job, error: Exception) -> None:
        super().__init__(str(error))
        self.job = job
        self.error = error


class Lost(Exception):
    """Runs that someone else drives now."""

    def __init__(self, authors: Sequence[Author]) -> None:
        super().__init__(f"{len(authors)} runs")
        self.authors = authors


class Pen:
    def __init__(self, db: sqlite3.Connection, seal: Callable[..., bytes]) -> None:
        self._db = db
        self._seal = seal
        self._hurried = False
        """Whether the connection gives up at once when someone is in its way."""
        self._careful = db.execute("PRAGMA synchronous").fetchone()[0]
        """How SQLite is to see to it that a commit is on the disk, as it numbers such things."""
        self._careless = False
        """Whether it need not."""
        self._log = 0
        """Bytes written since the log was last emptied into the file."""
        self.commits = 0
        self.quick = 0
        """Commits in a row that took no time to speak of."""
        self.untidy = False
        """Whether the log should be emptied."""
        db.execute("PRAGMA wal_autocheckpoint = 0")

    def write(self, jobs: list[Segment | Job], *, hurry: bool) -> Told:
        """Commit all of it, or nothing and say why. Who is in a `hurry` does not wait for other processes."""
        try:
            self._hurry(hurry)
            self._care(jobs)
            return self._append(jobs) or self._attempt(jobs)
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.rollback()
            raise

    def tidy(self) -> None:
        self.untidy, self._log = False, 0
        with contextlib.suppress(sqlite3.Error):  # another time
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        self._db.close()

    def _hurry(self, hurry: bool) -> None:
        if self._hurried != hurry:
            self._db.execute(f"PRAGMA busy_timeout = {0 if hurry else int(WAIT * 1000)}")
            self._hurried = hurry

    def _care(self, jobs: Sequence[Segment | Job]) -> None:
        """What may be lost is not waited for: the disk gets it with the next commit that counts."""
        careless = all(isinstance(job, Job) and (job.optional or not job.statements) for job in jobs)
        if self._careless != careless:
            level = min(self._careful, NORMAL) if careless else self._careful
            self._db.execute(f"PRAGMA synchronous = {level}")
            self._careless = careless

    def _append(self, jobs: Sequence[Segment | Job]) -> Told:
        """What one run alone adds, in one statement and its own transaction; nothing when there is more."""
        segments = of_one_run(jobs)
        if not segments:
            return []
        author, last = segments[0].author, segments[-1].last
        row = self._row(author, segments)
        began = time.perf_counter()
        try:
            kept = self._db.execute(_APPEND, (*row, author.run, author.claim)).rowcount
        except sqlite3.IntegrityError:
            kept = 0  # the row is there already
        if not kept:
            raise Lost([author])
        self._committed(time.perf_counter() - began)
        return [_tell(author.arrived, last)]

    def _attempt(self, jobs: list[Segment | Job]) -> Told:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        told: Told = []
        runs: dict[Author, list[Segment]] = {}
        for job in jobs:
            if isinstance(job, Segment):
                if not job.author.gone:
                    runs.setdefault(job.author, []).append(job)
                continue
            told += self._flush(runs)  # a job may rely on what was taken before it
            results = self._results(job)
            if job.done is not None:
                told.append(_tell(job.done, results))
        told += self._flush(runs)
        began = time.perf_counter()
        db.commit()
        self._committed(time.perf_counter() - began)
        return told

    def _results(self, job: Job) -> list[list[Any]]:
        results = []
        try:
            for sql, values in job.statements:
                results.append(self._db.execute(sql, values).fetchall())
                self._log += sum(len(value) for value in values if isinstance(value, bytes))
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            if _passes(error):
                raise
            raise Wrong(job, error) from error
        return results

    def _committed(self, took: float) -> None:
        self.quick = self.quick + 1 if took < QUICK else 0
        self.commits += 1
        if self.commits % TURNS == 0 or self._log > LONG:
            self.untidy = True

    def _flush(self, runs: dict[Author, list[Segment]]) -> Told:
        """Write what has been gathered of runs."""
        if not runs:
            return []
        self._insert(runs)
        self._mark(runs)
        told = [_tell(author.arrived, segments[-1].last) for author, segments in runs.items()]
        runs.clear()
        return told

    def _insert(self, runs: dict[Author, list[Segment]]) -> None:
        """One statement for all rows: each one gives the GIL away, and getting it back is slow."""
        db = self._db
        lost = [author for author in runs if not db.execute(HELD, (author.run, author.claim)).fetchone()]
        if lost:
            raise Lost(lost)
        rows = [self._row(author, segments) for author, segments in runs.items()]
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
            raise Lost([author for author, row in zip(runs, rows, strict=True) if row[0] in there]) from None

    def _row(self, author: Author, segments: list[Segment]) -> tuple[int, int, bytes]:
        first = segments[0].first
        body = self._seal(b"".join([s.line for s in segments]), "events", author.run, first)
        self._log += len(body)
        return author.key << 32 | first, segments[-1].last, body

    def _mark(self, runs: dict[Author, list[Segment]]) -> None:
        """Say how runs stand, in the commit that makes it so. One that has ended is nobody's."""
        for author, segments in runs.items():
            status = next((segment.status for segment in reversed(segments) if segment.status), None)
            if status is not None:
                over = status[0] in ENDED
                self._db.execute(_STATUS, (*status, time.time() if over else None, author.key))
                if over:
                    self._db.execute(RELEASE, (author.run, author.claim))


def _passes(error: Exception) -> bool:
    """Whether waiting may help."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _TROUBLE


def busy(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _tell(listen: Callable[[Any], None], what: Any) -> Callable[[], None]:
    return lambda: listen(what)
