"""The journal of a run that its store does not have yet.

A new run may begin with what only reads while the store is still writing that there is one: should
that be lost, so is the run, and nobody has heard of it. What comes of it waits at the
door until the store has the run, so there is nothing to write before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.run.events import Event
from penstock.store.base import Journal, Watcher


class Ahead:
    """Stands in for the journal that comes."""

    lasting = True
    durable = 0

    def __init__(self) -> None:
        self._journal: Journal | None = None
        self._over = asyncio.Event()

    def watch(self, watcher: Watcher) -> None:
        """Nothing arrives before the run itself has."""

    def append(self, events: Sequence[Event]) -> None:
        raise AssertionError(f"there is no run yet that {events} could be of")

    def note(self, status: str, reason: str, *, now: bool = False) -> None:
        """It is told with the run, and again later."""

    async def sync(self) -> None:
        await self._over.wait()
        if self._journal is not None:
            await self._journal.sync()

    def release(self) -> None:
        """Nobody else could have driven it."""

    def end(self, journal: Journal | None) -> None:
        """The store has the run; or it will never have it."""
        self._journal = journal
        self._over.set()
