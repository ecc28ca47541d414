"""Calls that wait for room: bounded, each with a deadline, the more important ones first."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Final, Protocol

from penstock.models.calls import Call, Turn
from penstock.models.clocks import Clock
from penstock.policy import shedding
from penstock.policy.shedding import EMPTY, Offered, Queue

LEAST: Final = 0.01
"""Seconds between two looks of one call."""


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


class _Place:
    """Where one call waits, and what it is told."""

    __slots__ = ("bell", "call", "told", "turn", "until")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.told = False
        self.turn: Turn | None = None
        self.bell: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Rung when there is something to see: it was told, is the first now, or should look sooner."""
        self.until = float("-inf")
        """When it looks if nobody rings."""

    def ring(self) -> None:
        if not self.bell.done():
            self.bell.set_result(None)


class Line:
    """The calls that wait for the same candidates.

    The first one looks when something may have changed, for all behind it: they sleep.
    """

    def __init__(self, clock: Clock, door: Door) -> None:
        self._clock = clock
        self._door = door
        self.queue: Queue = EMPTY
        self._places: dict[str, _Place] = {}
        self._first = ""
        self._draining = False

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
        place = self._places[call.id] = _Place(call)
        deadline = next(one.deadline for one in self.queue.waiting if one.call == call.id)
        began = self._clock.now()
        try:
            self.drain()
            while not place.told:
                now = self._clock.now()
                if now >= deadline:
                    return None
                place.bell = asyncio.get_running_loop().create_future()
                place.until = max(now + LEAST, min(deadline, self._wake_at(call)))
                await self._clock.wait(place.bell, place.until - now)
                if not place.bell.done():
                    self._door.look()
                    self.drain()
        except asyncio.CancelledError:
            if place.turn is not None:
                self._door.released(place.turn)
            raise
        else:
            return place.turn
        finally:
            call.waited += self._clock.now() - began
            self._places.pop(call.id, None)
            self.queue = shedding.left(self.queue, call.id)
            self._ring()

    def _wake_at(self, call: Call) -> float:
        """When it should look by itself: only the first does, and those who wait for something else."""
        return self._door.wake_at(call) if call.choosy or call.id == self._first else float("inf")

    def drain(self) -> None:
        """Let in whoever may go, in order, and send away those for whom nobody will come free."""
        if self._draining:  # whoever is let in may learn of other processes: that is no second round
            return
        self._draining = True
        try:
            self._sweep(self._clock.now())
            for waiting in self.queue.waiting:
                place = self._places[waiting.call]
                turn = self._door.enter(place.call)
                at = self._door.wake_at(place.call)
                if turn is not None or at == float("-inf"):
                    self.queue, _ = shedding.served(self.queue, now=self._clock.now(), call=waiting.call)
                    self._tell(waiting.call, turn)
                    continue
                if at < place.until:  # what it waits for has become something else
                    place.ring()
                if not place.call.choosy:
                    break  # nor may anyone behind it
        finally:
            self._draining = False
            self._ring()

    def _sweep(self, now: float) -> None:
        self.queue, late = shedding.swept(self.queue, now=now)
        for id in late:
            self._tell(id, None)

    def _tell(self, id: str, turn: Turn | None) -> None:
        place = self._places.pop(id)
        place.told, place.turn = True, turn
        place.ring()

    def _ring(self) -> None:
        """Somebody else may be the first now, and has to see for itself."""
        first = self.queue.waiting[0].call if self.queue.waiting else ""
        if first != self._first:
            self._first = first
            if first in self._places:
                self._places[first].ring()


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
