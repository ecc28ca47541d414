"""The time that policies are told, and the waiting for it.

Moments are seconds since the boot, and the clock goes on while the machine sleeps: setting the wall
clock moves none of them. The wall clock is for logs, and for what was written before a reboot.
"""

from __future__ import annotations

import asyncio
import time
from functools import cache
from pathlib import Path
from typing import Any, Protocol

_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    @property
    def boot(self) -> str:
        """Which boot the moments count from."""
        ...

    def now(self) -> float: ...

    def wall(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    async def wait(self, future: asyncio.Future[Any], seconds: float) -> None:
        """Until the future is done, or so long. Does not raise, and does not cancel it."""
        ...


class BootClock:
    """The machine's own."""

    @property
    def boot(self) -> str:
        return boot_id()

    def now(self) -> float:
        return time.monotonic() if _SINCE_BOOT is None else time.clock_gettime(_SINCE_BOOT)

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait(self, future: asyncio.Future[Any], seconds: float) -> None:
        await asyncio.wait((future,), timeout=max(0.0, seconds))


@cache
def boot_id() -> str:
    """What the system calls it; elsewhere the minute in which it was, by the wall clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"about {round((time.time() - time.monotonic()) / 60.0)}"
