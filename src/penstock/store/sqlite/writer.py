"""The one thread that writes to a SQLite file.

Jobs come in without anyone waiting; all that have gathered are committed together (one
fsync for the lot), and only then are their owners told. When the disk says no, the writer
keeps what it has, says why, and tries again until the disk says yes: nothing is dropped.
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

MOST = 2_000
"""Rows in one INSERT: more would pass SQLite's limit on parameters."""

AGAIN = 0.25
"""Seconds between tries while the disk refuses."""

BEAT = 2.0
"""Seconds between heartbeats."""

Statement = tuple[str, Sequence[Any]]

_STATUS = "UPDATE runs SET status = ?, reason = ?, ended = ? WHERE key = ?"
_HELD = "SELECT 1 FROM leases WHERE run = ? AND owner = ?"


class Segment:
    """A batch of one run. All that one commit adds to a run becomes one row."""

    __slots__ = ("arrived", "first", "key", "last", "line", "lost", "run", "status")

    def __init__(
        self,
        run: str,
        key: int,
        first: int,
        last: int,
        line: bytes,
        arrived: Callable[[int], None],
        lost: Callable[[], None],
        status: tuple[str, str] | None = None,
    ) -> None:
        self.status = status
        """How the run stands from this batch on, and why; None when that has not changed."""
        self.run = run
        self.key = key
        self.first = first
        self.last = last
        self.line = line
        self.arrived = arrived
        self.lost = lost
        """Told when someone else drives the run now: the lease is theirs, or the row is there already."""


class Job:
    """Statements that belong together, and who wants to know."""

    __slots__ = ("done", "failed", "statements")

    def __init__(
        self,
        statements: Sequence[Statement],
        done: Callable[[list[list[Any]]], None] | None = None,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        self.statements = statements
        self.done = done
        self.failed = failed
        """Told when the statements themselves are wrong; trouble with the disk is waited for instead."""


class Writer:
    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        *,
        seal: Callable[[bytes], bytes],
        owner: Callable[[], str],
        beat: Callable[[], Statement | None],
        stalled: Callable[[str], None],
    ) -> None:
        self._connect = connect
        self._seal = seal
        self._owner = owner
        self._beat = beat
        self._stalled = stalled
        self._jobs: queue.SimpleQueue[Segment | Job | None] = queue.SimpleQueue()
        self._beaten = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="penstock-writer", daemon=True)
        self._thread.start()
        self.put = self._jobs.put
        """Hand a job over. Never blocks."""

    def close(self) -> None:
        """Write what is left, then stop."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        db = self._connect()
        going = True
        while going:
            jobs: list[Segment | Job | None] = []
            with contextlib.suppress(queue.Empty):
                jobs.append(self._jobs.get(timeout=BEAT))
                while True:
                    jobs.append(self._jobs.get_nowait())
            going = None not in jobs
            work = [job for job in jobs if job is not None]
            if time.monotonic() - self._beaten >= BEAT and (statement := self._beat()):
                work.append(Job([statement]))
                self._beaten = time.monotonic()
            if work:
                self._commit(db, work)
        db.close()

    def _commit(self, db: sqlite3.Connection, jobs: list[Segment | Job]) -> None:
        """Commit all of it. What is itself wrong is taken out; trouble with the disk is waited for."""
        waiting = False
        while jobs:
            try:
                told = self._attempt(db, jobs)
            except _Wrong as wrong:
                _rollback(db)
                jobs = [job for job in jobs if job not in wrong.jobs]
                wrong.tell()
            except sqlite3.Error as error:
                _rollback(db)
                if busy(error):
                    continue  # another process writes; SQLite itself has waited for a while
                if not waiting:
                    waiting = True
                    self._stalled(str(error))
                time.sleep(AGAIN)
            else:
                if waiting:
                    self._stalled("")
                for tell in told:
                    tell()
                return

    def _attempt(self, db: sqlite3.Connection, jobs: list[Segment | Job]) -> list[Callable[[], None]]:
        db.execute("BEGIN IMMEDIATE")
        told: list[Callable[[], None]] = []
        runs: dict[int, list[Segment]] = {}
        for job in jobs:
            if isinstance(job, Segment):
                runs.setdefault(job.key, []).append(job)
                continue
            told += self._flush(db, runs)  # a job may rely on what was taken before it
            results = []
            try:
                for sql, values in job.statements:
                    results.append(db.execute(sql, values).fetchall())
            except (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError) as error:
                raise _Wrong([job], error) from error
            if job.done is not None:
                told.append(_tell(job.done, results))
        told += self._flush(db, runs)
        db.commit()
        return told

    def _flush(self, db: sqlite3.Connection, runs: dict[int, list[Segment]]) -> list[Callable[[], None]]:
        """Write what has been gathered."""
        if not runs:
            return []
        self._insert(db, runs)
        _mark(db, runs)
        told = [_tell(segments[-1].arrived, segments[-1].last) for segments in runs.values()]
        runs.clear()
        return told

    def _insert(self, db: sqlite3.Connection, runs: dict[int, list[Segment]]) -> None:
        """One statement for all rows: each one gives the GIL away, and getting it back is slow."""
        me = self._owner()
        lost = [
            segment
            for segments in runs.values()
            if not db.execute(_HELD, (segments[0].run, me)).fetchone()
            for segment in segments
        ]
        if lost:
            raise _Wrong(lost, Exception("the lease is another process's"))
        rows = [
            (key << 32 | segments[0].first, segments[-1].last, self._seal(b"".join(s.line for s in segments)))
            for key, segments in runs.items()
        ]
        try:
            for at in range(0, len(rows), MOST):
                part = rows[at : at + MOST]
                marks = ",".join(["(?,?,?)"] * len(part))
                values = [value for row in part for value in row]
                db.execute(f"INSERT INTO events (id, last, batches) VALUES {marks}", values)  # noqa: S608 - only question marks
        except sqlite3.IntegrityError as error:
            taken = [
                row[0] for row in rows if db.execute("SELECT 1 FROM events WHERE id = ?", row[:1]).fetchone()
            ]
            raise _Wrong([s for id in taken for s in runs[id >> 32]], error) from error


def _mark(db: sqlite3.Connection, runs: dict[int, list[Segment]]) -> None:
    """Say how runs stand, in the commit that makes it so."""
    for key, segments in runs.items():
        status = next((segment.status for segment in reversed(segments) if segment.status), None)
        if status is not None:
            ended = time.time() if status[0] in ("succeeded", "failed", "partial", "aborted") else None
            db.execute(_STATUS, (*status, ended, key))


class _Wrong(Exception):
    """Jobs that no patience will help."""

    def __init__(self, jobs: Sequence[Segment | Job], error: Exception) -> None:
        super().__init__(str(error))
        self.jobs = jobs
        self.error = error

    def tell(self) -> None:
        for job in self.jobs:
            if isinstance(job, Segment):
                job.lost()
            elif job.failed is not None:
                job.failed(self.error)


def busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _rollback(db: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.Error):
        db.rollback()


def _tell(listen: Callable[[Any], None], what: Any) -> Callable[[], None]:
    return lambda: listen(what)
