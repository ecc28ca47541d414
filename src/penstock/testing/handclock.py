"""A clock that goes when it is told to: for code that waits, and talks over real sockets meanwhile.

Sockets have clocks of their own, and do not go together with virtual time. Here only what asks this
clock waits for it: cooldowns, probes and queues take no time, and connections take their own.
"""

from __future__ import annotations

import asyncio
from typing import Any


class HandClock:
    def __init__(self, now: float = 1_000.0, *, wall: float = 1_700_000_000.0, boot: str = "boot-1") -> None:
        self.boot = boot
        self._now = now
        self._wall = wall
        self._alarms: list[tuple[float, asyncio.Future[None]]] = []
        self._changed: list[asyncio.Future[None]] = []

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._wall

    def advance(self, seconds: float) -> None:
        """Let time pass; a suspended machine's as well."""
        self._now += seconds
        self._wall += seconds
        for moment, alarm in self._alarms:
            if moment <= self._now and not alarm.done():
                alarm.set_result(None)
        self._alarms = [one for one in self._alarms if not one[1].done()]

    def step(self, seconds: float) -> None:
        """Set the wall clock: nobody's waiting changes."""
        self._wall += seconds

    def reboot(self, away: float) -> None:
        """A new boot, after the machine was off for so long."""
        self.boot = f"{self.boot}+"
        self._now = 5.0
        self._wall += away

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            await self._alarm(seconds)

    async def wait(self, future: asyncio.Future[Any], seconds: float) -> None:
        alarm = self._alarm(seconds)
        try:
            await asyncio.wait((future, alarm), return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()
            self._alarms = [one for one in self._alarms if one[1] is not alarm]

    async def asleep(self, number: int = 1) -> None:
        """Until so many wait for this clock."""
        while len(self._alarms) < number:
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._changed.append(changed)
            await changed

    def _alarm(self, seconds: float) -> asyncio.Future[None]:
        alarm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._alarms = [one for one in self._alarms if not one[1].done()]
        self._alarms.append((self._now + seconds, alarm))
        for one in self._changed:
            if not one.done():
                one.set_result(None)
        self._changed.clear()
        return alarm
