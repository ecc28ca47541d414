"""Whether a failed task is tried again, and after how long.

The jitter is drawn from the task's own identity instead of a random source: two runs
spread apart, and the same run waits the same time wherever it is replayed.
"""

from __future__ import annotations

from math import inf
from zlib import crc32

from penstock.workflow.spec import Effect, Retry

LONGEST = 60.0
"""Seconds: doubling goes no further than this, or than the first wait if that is longer."""

PATIENCE = 300.0
"""Seconds: who asks for a longer wait than this is asked again after it all the same."""

NEVER = frozenset({"arguments", "cancelled", "expression", "orphaned", "output", "state", "unsupported"})
"""Kinds of failure that another attempt cannot change."""

ONCE = Retry()


def delay(retry: Retry, *, attempt: int, seed: str, asked: float = 0.0) -> float:
    """Seconds to wait after the given attempt failed, and no fewer than were `asked` for."""
    longest = max(LONGEST, retry.backoff)
    wait = min(retry.backoff * 2.0 ** min(attempt - 1, 32), longest)
    spread = crc32(f"{seed}#{attempt}".encode()) / 0xFFFFFFFF
    planned = min(wait * (1.0 + retry.jitter * (2.0 * spread - 1.0)), longest)
    if (
        not 0.0 < asked < inf
    ):  # infinity: waiting is said to change nothing, and `retry` wants it all the same
        return planned
    return max(planned, min(asked, PATIENCE) * (1.0 + retry.jitter * spread))


def retries(retry: Retry, *, attempt: int, kind: str, name: str) -> bool:
    """Whether this policy wants another attempt after one that ended in this way."""
    if attempt >= retry.max_attempts or kind in NEVER:
        return False
    return not retry.on or kind in retry.on or name in retry.on


def ambiguous(*, kind: str, effect: Effect, on_orphan: str) -> bool:
    """Whether the outside world may have changed although nobody heard back.

    A timed-out read can simply be repeated; a timed-out write may have happened.
    """
    return kind == "timeout" and effect in ("write", "destructive") and on_orphan != "rerun"
