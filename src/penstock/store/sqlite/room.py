"""Room for the thread that writes, beside an event loop that never rests.

Both share one interpreter lock. A loop that ticks without a pause lets go of it for an instant
only, and takes it again before the writer has woken up: unaided, a commit of ten milliseconds
takes ten seconds. So when something has waited too long, the loop sleeps a moment now and then.
"""

from __future__ import annotations

import asyncio
import time

from penstock.store.sqlite.writer import Writer

LAG = 0.010
"""Seconds that something may wait to be written before the loop makes room."""

GIVE_WAY = 0.00005
"""Seconds of room."""

PAUSE = 0.0005
"""Seconds between two rooms: a slow disk must not cost the loop more than a tenth of its time."""


class Room:
    __slots__ = ("_commits", "_loop", "_writer")

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that looks after the writer until everything is written."""
        self._commits = 0
        """How many there were when we last looked."""

    def wanted(self, loop: asyncio.AbstractEventLoop) -> None:
        """Something is on its way: see to it that it arrives."""
        if self._loop is not loop:
            self._loop = loop
            self._commits = self._writer.commits
            loop.call_later(LAG, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        writer = self._writer
        if not writer.behind:
            self._loop = None
        elif writer.commits != self._commits:
            self._commits = writer.commits
            loop.call_later(LAG, self._look, loop)
        else:
            time.sleep(GIVE_WAY)
            loop.call_later(PAUSE, self._look, loop)
