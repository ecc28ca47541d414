"""What a run waits for besides its tasks: moments, and chores of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.run.facts import Fact


class Timers:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tell: Callable[[Fact], None],
        crash: Callable[[Exception], None],
    ) -> None:
        self._loop = loop
        self._tell = tell
        self._crash = crash
        self._timers: set[asyncio.TimerHandle] = set()
        self._chores: set[asyncio.Task[None]] = set()

    def later(self, delay: float, fact: Fact) -> None:
        """Report a fact after so many seconds."""

        def ring() -> None:
            self._timers.discard(handle)
            self._tell(fact)

        handle = self._loop.call_later(delay, ring)
        self._timers.add(handle)

    def chore(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Something of our own that has to wait for someone."""

        def done(task: asyncio.Task[None]) -> None:
            self._chores.discard(task)
            error = None if task.cancelled() else task.exception()
            if isinstance(error, Exception):
                self._crash(error)

        chore = self._loop.create_task(work)
        self._chores.add(chore)
        chore.add_done_callback(done)
        return chore

    def clear(self) -> None:
        """Nothing is reported any more; chores go on."""
        for handle in self._timers:
            handle.cancel()
        self._timers.clear()

    def close(self) -> None:
        self.clear()
        for chore in self._chores:
            chore.cancel()
