"""Who is served, who waits and who is turned away when there is more to do than room to do it.

What counts is saturation: free slots, and how full and how old the queue is. Not how many
providers are down: a single one with room enough serves everybody. The queue is bounded in length
and every place in it has a deadline, so that nobody waits for an answer that comes too late.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from penstock.policy.moments import Timed

Priority = Literal["high", "medium", "low"]
_RANK: Final = {"high": 0, "medium": 1, "low": 2}

LONGEST: Final = 100
"""Places in the queue."""

PATIENCE: Final = 30.0
"""Seconds a call waits in it at most, unless its own deadline is earlier."""

SHED_AT: Final = 0.5
SERVE_AT: Final = 0.4
"""Saturation at which calls of low priority are turned away, and at which they are let in again."""


class Waiting(Timed, frozen=True):
    MOMENTS: ClassVar[frozenset[str]] = frozenset({"since", "deadline"})

    call: str
    priority: Priority
    since: float
    deadline: float


class Queue(Timed, frozen=True, kw_only=True):
    waiting: tuple[Waiting, ...] = ()
    """In the order in which they will be served."""
    shedding: bool = False
    longest: int = LONGEST
    patience: float = PATIENCE


class Offered(Struct, frozen=True, kw_only=True):
    """What becomes of a call."""

    verdict: Literal["serve", "queue", "shed"]
    reason: str = ""
    displaced: str = ""
    """The call that lost its place to this one. It is shed."""


EMPTY: Final = Queue()


def saturation(queue: Queue, *, free: int, now: float) -> float:
    """0 while there is room; then how full the queue is or how long its oldest has waited, up to 1."""
    if free > len(queue.waiting):
        return 0.0
    full = len(queue.waiting) / queue.longest if queue.longest else 1.0
    oldest = max((now - one.since for one in queue.waiting), default=0.0)
    return min(1.0, max(full, oldest / queue.patience if queue.patience > 0 else 1.0))


def offer(
    queue: Queue, call: str, priority: Priority, *, free: int, now: float, deadline: float | None = None
) -> tuple[Queue, Offered]:
    """A call arrives, and so many slots are free. The queue should have been `swept` just before.

    Nobody is overtaken by a call that is not more important.
    """
    queue = _judged(queue, free=free, now=now)
    if priority == "low" and queue.shedding:
        return queue, Offered(verdict="shed", reason="saturated, and its priority is low")
    ahead = sum(1 for one in queue.waiting if _RANK[one.priority] <= _RANK[priority])
    if free > ahead:
        return queue, Offered(verdict="serve")
    until = min(now + queue.patience, now + queue.patience if deadline is None else deadline)
    if until <= now:
        return queue, Offered(verdict="shed", reason="its deadline has passed")
    displaced = ""
    waiting = queue.waiting
    if len(waiting) >= queue.longest:
        if not waiting or _RANK[waiting[-1].priority] <= _RANK[priority]:
            return queue, Offered(verdict="shed", reason=f"{len(waiting)} calls wait already")
        displaced = waiting[-1].call
        waiting = waiting[:-1]
    place = Waiting(call, priority, now, until)
    waiting = (*waiting[:ahead], place, *waiting[ahead:])
    after = _judged(replace(queue, waiting=waiting), free=free, now=now)
    return after, Offered(verdict="queue", displaced=displaced)


def swept(queue: Queue, *, now: float) -> tuple[Queue, tuple[str, ...]]:
    """Take out the calls whose deadline has passed, and say which."""
    late = tuple(one.call for one in queue.waiting if one.deadline <= now)
    if not late:
        return queue, ()
    return replace(queue, waiting=tuple(one for one in queue.waiting if one.deadline > now)), late


def served(queue: Queue, *, now: float, call: str = "") -> tuple[Queue, str]:
    """A slot is free: the call whose turn it is, or none. Sweep first.

    `call` is one that waits and has the turn, where those before it could not use that slot.
    """
    if not queue.waiting:
        return _judged(queue, free=1, now=now), ""
    call = call or queue.waiting[0].call
    return _judged(left(queue, call), free=0, now=now), call


def left(queue: Queue, call: str) -> Queue:
    """A call gave up waiting: cancelled, or its caller went away."""
    return replace(queue, waiting=tuple(one for one in queue.waiting if one.call != call))


def retry_after(queue: Queue, *, per_second: float, least: float = 1.0) -> float:
    """Seconds to tell a caller that was turned away: until the queue is likely to have room."""
    if per_second <= 0:
        return max(least, queue.patience)
    return max(least, min(queue.patience, (len(queue.waiting) + 1) / per_second))


def _judged(queue: Queue, *, free: int, now: float) -> Queue:
    """Switch shedding on or off. Between the two marks it stays as it is: it must not flutter."""
    at = saturation(queue, free=free, now=now)
    shedding = at > SERVE_AT if queue.shedding else at >= SHED_AT
    return queue if shedding == queue.shedding else replace(queue, shedding=shedding)
