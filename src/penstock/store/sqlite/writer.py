"""Who writes to a SQLite file, and when: a thread, or an event loop while that costs it nothing.

Jobs come in without anyone waiting; all that have gathered are committed together (one
fsync for the lot), and only then are their owners told. When the disk says no, the writer
keeps what it has, says why, and tries again until the disk says yes: nothing is dropped.

Waking a thread and being woken by it takes as long as a commit to a fast disk. So while
commits are quick, the event loop may make them itself (`here`). The first one that is slow, in
someone's way or refused goes to the thread, and so do the next: no loop waits twice.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

from penstock.errors import StoreError
from penstock.ids import RunId
from penstock.store.sqlite.jobs import Job, Segment, Statement, tell_all, tell_the_impatient
from penstock.store.sqlite.pen import Lost, Pen, Wrong, busy

AGAIN = 0.25
"""Seconds between tries while the disk refuses."""

PATIENCE = 10.0
"""Seconds that closing waits for a disk that refuses while something is left that counts."""

BRIEFLY = 0.5
"""Seconds between looks at how closing gets on."""

BEAT = 2.0
"""Seconds between heartbeats."""

TRUST = 2
"""Quick commits in a row before a loop makes the next."""

WHILE = 50
"""Commits of the thread before a loop that was busy is trusted again."""

MANY = 256
"""Jobs that are too many for a loop to write at once."""

_log = logging.getLogger("penstock.store")


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
        self._beaten = time.monotonic()
        self._closed = False
        self._refused = ""
        """Why nothing can be written; empty when it can."""
        self._given_up = False
        self._pen: Pen | None = None
        self._thread: threading.Thread | None = None

    @property
    def commits(self) -> int:
        """How many there were."""
        return 0 if self._pen is None else self._pen.commits

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
        pen = self._pen
        if self._closed or pen is None or pen.quick < TRUST or not self._turn.acquire(blocking=False):
            return False
        try:
            self._gather()
            if not self._work:
                return True
            if len(self._work) > MANY:
                return False
            try:
                told = pen.write(self._work, hurry=True)
            except Exception:  # noqa: BLE001 - whatever it is, the thread meets it as well and deals with it
                pen.quick = 0
                return False
            self._work = []
        finally:
            self._turn.release()
        if pen.untidy:
            self.wake()
        for tell in told:
            tell()
        return True

    def distrust(self) -> None:
        """The loop has much else to do: what waits for it is written late. The thread goes on for a while."""
        if self._pen is not None:
            self._pen.quick = -WHILE

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
                if self._pen is not None and self._pen.untidy:
                    self._pen.tidy()
        if self._pen is not None:
            self._pen.close()

    def _gather(self) -> None:
        """Take what has come. Each job is always in one of the two, or else it might be overlooked."""
        jobs, work = self._jobs, self._work
        while jobs:
            work.append(jobs[0])
            jobs.popleft()

    def _commit(self, jobs: list[Segment | Job]) -> None:
        """Commit all of it. What is itself wrong is taken out; trouble with the disk is waited for."""
        waiting = False
        while jobs and not self._given_up:
            try:
                if self._pen is None:
                    self._pen = Pen(self._connect(), self._seal)
                told = self._pen.write(jobs, hurry=False)
            except Wrong as wrong:
                jobs = [job for job in jobs if job is not wrong.job]
                if wrong.job.failed is not None:
                    wrong.job.failed(wrong.error)
            except Lost as lost:
                for author in lost.authors:
                    author.lost()
            except Exception as error:  # noqa: BLE001 - whatever it is, nothing taken may be dropped
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
