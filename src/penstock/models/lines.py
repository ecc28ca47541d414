"""Calls that wait for room: bounded, each with a deadline, the more important ones first."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Protocol

from penstock.models.calls import Call, Turn
from penstock.models.clocks import Clock
from penstock.policy import shedding
from penstock.policy.shedding import EMPTY, Offered, Queue


class Door(Protocol):
    """What the calls in a line wait for."""

    def enter(self, call: Call) -> Turn | None: ...

    def look(self) -> None:
        """See what other processes have found out."""
        ...

    def wake_at(self, call: Call) -> float:
        """When a call should look again by itself: infinity, others will tell it; minus that, in vain."""
        ...

    def released(self, turn: Turn) -> None:
        """The call was cancelled at the moment it was let in."""
        ...


class Line:
    """The calls that wait for the same candidates."""

    def __init__(self, clock: Clock, door: Door) -> None:
        self._clock = clock
        self._door = door
        self.queue: Queue = EMPTY
        self._places: dict[str, tuple[Call, asyncio.Future[Turn | None]]] = {}

    @property
    def idle(self) -> bool:
        """Nobody waits, and nobody needs to be turned away."""
        return not self._places and not self.queue.shedding

    def __len__(self) -> int:
        return len(self._places)

    def offer(self, call: Call, *, free: int) -> Offered:
        """Serve it, let it wait, or turn it away. Who loses its place to it is told."""
        now = self._clock.now()
        self._sweep(now)
        self.queue, offered = shedding.offer(
            self.queue, call.id, call.priority, free=free, now=now, deadline=call.deadline
        )
        if offered.displaced:
            self._tell(offered.displaced, None)
        return offered

    async def wait(self, call: Call) -> Turn | None:
        """A turn, or None when it has waited long enough, or in vain. The call has been offered."""
        future: asyncio.Future[Turn | None] = asyncio.get_running_loop().create_future()
        self._places[call.id] = (call, future)
        place = next(one for one in self.queue.waiting if one.call == call.id)
        began = self._clock.now()
        try:
            self.drain()
            while not future.done():
                now = self._clock.now()
                if now >= place.deadline:
                    return None
                await self._clock.wait(
                    future, max(0.001, min(place.deadline, self._door.wake_at(call)) - now)
                )
                if not future.done():
                    self._door.look()
                    self.drain()
            return future.result()
        except asyncio.CancelledError:
            if future.done() and (turn := future.result()) is not None:
                self._door.released(turn)
            raise
        finally:
            call.waited += self._clock.now() - began
            self._places.pop(call.id, None)
            self.queue = shedding.left(self.queue, call.id)

    def drain(self) -> None:
        """Let in whoever may go, in order, and send away those for whom nobody will come free."""
        self._sweep(self._clock.now())
        while self.queue.waiting:
            call, _ = self._places[self.queue.waiting[0].call]
            turn = self._door.enter(call)
            if turn is None and self._door.wake_at(call) > float("-inf"):
                return
            self.queue, first = shedding.served(self.queue, now=self._clock.now())
            self._tell(first, turn)

    def _sweep(self, now: float) -> None:
        self.queue, late = shedding.swept(self.queue, now=now)
        for id in late:
            self._tell(id, None)

    def _tell(self, id: str, turn: Turn | None) -> None:
        _, future = self._places.pop(id)
        if not future.done():
            future.set_result(turn)


class Lines:
    """One line for each set of candidates that calls ask for."""

    def __init__(self, clock: Clock, door: Door) -> None:
        self._clock = clock
        self._door = door
        self._lines: dict[Hashable, Line] = {}

    def get(self, key: Hashable) -> Line | None:
        return self._lines.get(key)

    def open(self, key: Hashable) -> Line:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(self._clock, self._door)
        return line

    @property
    def waiting(self) -> int:
        return sum(map(len, self._lines.values()))

    def drain(self) -> None:
        """Something has changed: whoever may go now, goes."""
        for key, line in list(self._lines.items()):
            if len(line):
                line.drain()
            elif line.idle:
                del self._lines[key]
