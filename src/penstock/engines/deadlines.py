"""One timer for all timeouts.

Tasks with the same allowance run out in the order they began, so each allowance keeps its
tasks in a dict by insertion: beginning and ending a task are one dict operation each, and a
finished task leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    def __init__(self, loop: asyncio.AbstractEventLoop, expired: Callable[[Key], None]) -> None:
        self._loop = loop
        self._expired = expired
        self._lanes: dict[float, dict[Key, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next = math.inf

    def begin(self, key: Key, seconds: float) -> dict[Key, float]:
        """`expired(key)` is called in `seconds`, unless the key is taken out of the returned lane first."""
        lane = self._lanes.get(seconds)
        if lane is None:
            lane = self._lanes[seconds] = {}
        lane[key] = due = self._loop.time() + seconds
        if due < self._next:
            self._set(due)
        return lane

    def running(self) -> list[Key]:
        """Everything that has begun and not ended, the first to begin first within each allowance."""
        return [key for lane in self._lanes.values() for key in lane]

    def close(self) -> None:
        self._lanes.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._next = math.inf

    def _set(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._ring)
        self._next = due

    def _ring(self) -> None:
        """Report what has run out, and sleep until the next one might."""
        self._timer, self._next = None, math.inf
        # The loop may call a hair early (clock resolution); that still counts as due.
        now = self._loop.time() + 1e-3
        late: list[Key] = []
        nearest: float | None = None
        for seconds in list(self._lanes):
            lane = self._lanes[seconds]
            for key, due in lane.items():
                if due > now:
                    nearest = due if nearest is None else min(nearest, due)
                    break
                late.append(key)
            for key in late:
                lane.pop(key, None)
        if nearest is not None:
            self._set(nearest)
        for key in late:
            self._expired(key)
