"""A process that grows and grows while a run goes on: one warning, with what can be done about it.

It is told the time and asks how large the process is; whoever drives a run decides when to look.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from penstock.ids import RunId

MUCH = 100_000_000
"""Bytes of growth since a run began that are worth a word."""

PAUSE = 1.0
"""Seconds between looks."""

_STATM = Path("/proc/self/statm")

_log = logging.getLogger("penstock.engine")


def resident() -> int:
    """Bytes of this process in memory; elsewhere than on Linux the most it ever had, or 0 if nobody knows."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return _most()


def _most() -> int:
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class Lately:
    """How large the process was within the last moment: of many short runs only one has to look."""

    def __init__(self, size: Callable[[], int] = resident, now: Callable[[], float] = time.monotonic) -> None:
        self._size = size
        self._now = now
        self._until = -math.inf
        self._seen = 0

    def __call__(self) -> int:
        if self._now() >= self._until:
            self._seen, self._until = self._size(), self._now() + PAUSE
        return self._seen


class Growth:
    """Of the process, since a run began."""

    __slots__ = ("_before", "_lasting", "_run", "_size", "due")

    def __init__(self, run: RunId, now: float, *, lasting: bool, size: Callable[[], int] = resident) -> None:
        self._run = run
        self._lasting = lasting
        self._size = size
        self._before = size()
        self.due = now + PAUSE
        """When to look next; never again after the warning."""

    def look(self, now: float) -> None:
        """Warn if the process has grown by much."""
        self.due = now + PAUSE
        size = self._size()
        if size - self._before > MUCH:
            self.due = math.inf
            _log.warning(warning(self._run, size - self._before, size, lasting=self._lasting))


def warning(run: RunId, growth: int, size: int, *, lasting: bool) -> str:
    """What to say about it, and what to do."""
    ways = [
        "keep fewer messages and finished tasks (retention.messages, retention.tasks)",
        "let steps return references or the names of files instead of large outputs",
    ]
    if not lasting:
        ways.append(
            "remember runs in a durable store (sqlite:///… or postgresql://…), which holds outputs for it"
        )
    return (
        f"the process has grown by {growth / 1e6:,.0f} MB since run {run} began, to {size / 1e6:,.0f} MB; "
        f"if the run is the reason: {'; '.join(ways)}"
    )
