"""Events for whoever watches. Watching never slows or changes the run.

The stream keeps the last `KEPT` events. Publishing appends and wakes; it never waits, and
costs the same for one subscriber or a thousand. A subscriber that falls further behind
than that is told how many events it missed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from msgspec import Struct

from penstock.run.events import Event

KEPT = 10_000

Observer = Callable[[Event], None]


class Gap(Struct, frozen=True):
    """Events that this subscriber was too slow for. `events(after=…)` reads them again."""

    after: int
    missed: int


class Stream:
    __slots__ = ("_closed", "_observers", "_recent", "_waiting", "last")

    def __init__(self, *, after: int = 0, kept: int = KEPT) -> None:
        self._recent: deque[Event] = deque(maxlen=kept)
        self._waiting: list[asyncio.Future[None]] = []
        self._observers: list[Observer] = []
        self._closed = False
        self.last = after

    def publish(self, events: Sequence[Event]) -> None:
        self._recent.extend(events)
        self.last = events[-1].seq
        if self._observers:
            self._tell(events)
        if self._waiting:
            self._wake()

    def observe(self, observer: Observer) -> None:
        """Call `observer` with every event from now on. What it raises is its own affair."""
        self._observers.append(observer)

    def close(self) -> None:
        """No more events will come."""
        self._closed = True
        self._wake()

    async def follow(self, *, after: int) -> AsyncIterator[Event | Gap]:
        """Every event past `after`, as they come, until the run ends."""
        while True:
            if self.last > after:
                first = self._recent[0].seq if self._recent else self.last + 1
                if first > after + 1:
                    yield Gap(after, first - after - 1)
                    after = first - 1
                    continue
                # By position from the end: the deque moves while the subscriber is away.
                event = self._recent[after - self.last]
                after = event.seq
                yield event
            elif self._closed:
                return
            else:
                waiter = asyncio.get_running_loop().create_future()
                self._waiting.append(waiter)
                await waiter

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _tell(self, events: Sequence[Event]) -> None:
        for observer in self._observers:
            for event in events:
                with contextlib.suppress(Exception):
                    observer(event)
