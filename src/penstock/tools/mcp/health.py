"""How a server is doing: what its last real outcome was, and when it may be started again.

Pure: values and functions of `now`. A server that answers pings and fails every call is not
healthy, so nothing here is ever asked; it is told how calls and starts went.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

FIRST: Final = 0.5
"""Seconds of rest after the second failure in a row; the first is followed by a start at once."""

LONGEST: Final = 30.0


@dataclass(frozen=True, slots=True)
class Health:
    state: Literal["unknown", "ok", "failing"] = "unknown"
    failures: int = 0
    """In a row."""
    error: str = ""
    """The last failure, in words; kept while the server is failing."""
    at: float = 0.0
    """When the last outcome came."""
    not_before: float = 0.0
    """No start before this moment."""


def succeeded(*, now: float) -> Health:
    """A call was answered. That a tool reports an error is an answer too."""
    return Health("ok", at=now)


def failed(health: Health, error: str, *, now: float) -> Health:
    """A start failed, or a connection broke."""
    failures = health.failures + 1
    rest = 0.0 if failures == 1 else min(FIRST * 2.0 ** min(failures - 2, 16), LONGEST)
    return Health("failing", failures, error, now, now + rest)


def unanswered(health: Health, error: str, *, now: float) -> Health:
    """A call ran out of time. The server may only be slow: no rest follows from it."""
    return Health("failing", health.failures, error, now, health.not_before)


def rest(health: Health, *, now: float) -> float:
    """Seconds until the next start is allowed."""
    return max(0.0, health.not_before - now)
