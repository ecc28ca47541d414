"""Events for whoever watches. Watching never slows or changes the run.

The stream keeps the last `KEPT` events. Publishing appends; it never waits, and costs the
same for one subscriber or a thousand. Subscribers are woken together, a moment later, so that
a storm of events wakes them once. One that falls further behind than `KEPT` is told how many
events it missed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import islice

from msgspec import Struct

from penstock.run.events import Event

KEPT = 10_000
KEPT_LASTING = 1_000
"""Where a store has every event, fewer need to be kept at hand."""

MOMENT = 0.005
"""Seconds between an event and the waking of those who wait for it: nobody's eye is faster."""

Observer = Callable[[Event], None]
Past = Callable[[int], Awaitable[Sequence[Event]]]


class Gap(Struct, frozen=True):
    """Events that this subscriber was too slow for. `events(after=…)` reads them again."""

    after: int
    missed: int


class Stream:
    __slots__ = ("_alarm", "_closed", "_observers", "_recent", "_waiting", "last")

    def __init__(self, *, after: int = 0, kept: int = KEPT) -> None:
        self._recent: deque[Event] = deque(maxlen=kept)
        self._waiting: list[asyncio.Future[None]] = []
        self._observers: list[Observer] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._closed = False
        self.last = after

    def publish(self, events: Sequence[Event]) -> None:
        self._recent.extend(events)
        self.last = events[-1].seq
        if self._observers:
            self._tell(events)
        if self._waiting and self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(MOMENT, self._wake)

    def observe(self, observer: Observer) -> None:
        """Call `observer` with every event from now on. What it raises is its own affair."""
        self._observers.append(observer)

    def close(self) -> None:
        """No more events will come."""
        self._closed = True
        self._wake()

    async def follow(self, *, after: int, past: Past | None = None) -> AsyncIterator[Event | Gap]:
        """Every event past `after`, as they come, until the run ends.

        `past` gives the events that went by before this subscriber came.
        """
        first = self._recent[0].seq if self._recent else self.last + 1
        if past is not None and first > after + 1:
            for event in await past(after):
                yield event
                after = event.seq
        while True:
            if self.last > after:
                # A copy of what is there, from the end: the deque moves while the subscriber is away.
                start, after = after, self.last
                fresh = list(islice(reversed(self._recent), after - start))
                fresh.reverse()
                if missed := after - start - len(fresh):
                    yield Gap(start, missed)
                for event in fresh:
                    yield event
            elif self._closed:
                return
            else:
                await self.past(after)

    async def past(self, seq: int) -> None:
        """Return when there may be events past this one, or no more will come."""
        if self.last <= seq and not self._closed:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    def _wake(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _tell(self, events: Sequence[Event]) -> None:
        for observer in self._observers:
            for event in events:
                try:  # noqa: SIM105 - suppress() costs more than the call
                    observer(event)
                except (Exception, asyncio.CancelledError):  # noqa: BLE001, S110 - theirs, and hot
                    pass
