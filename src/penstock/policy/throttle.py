"""Client-side adaptive throttling: not asking a provider that would say no anyway.

After "Handling Overload" in Google's SRE book: the more of the last two minutes' requests were
rejected, the likelier is the next one turned away here, where that costs nothing. It does nothing
before half of them are rejected, and never turns all away: some must go through to see the end.
"""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec.structs import replace

from penstock.policy.moments import Timed

K: Final = 2.0
"""How many requests an accepted one pays for."""

WINDOW: Final = 120.0
SLOT: Final = 10.0
"""Seconds looked back at, and the parts in which they are forgotten."""

ENOUGH: Final = 10
"""Requests in the window before it acts: one rejected request out of one is no statistic."""

AT_MOST: Final = 0.9
"""The highest share turned away, so that a provider that has recovered is noticed."""


class Slot(Timed, frozen=True):
    MOMENTS: ClassVar[frozenset[str]] = frozenset({"since"})

    since: float
    requests: int
    accepts: int


class Throttle(Timed, frozen=True):
    slots: tuple[Slot, ...] = ()
    """The oldest first."""


FREE: Final = Throttle()


def counts(throttle: Throttle, *, now: float) -> tuple[int, int]:
    """Requests and accepts in the window."""
    live = [slot for slot in throttle.slots if slot.since > now - WINDOW]
    return sum(slot.requests for slot in live), sum(slot.accepts for slot in live)


def chance(throttle: Throttle, *, now: float) -> float:
    """How likely the next request is turned away, 0 to 0.9."""
    requests, accepts = counts(throttle, now=now)
    if requests < ENOUGH:
        return 0.0
    return min(AT_MOST, max(0.0, (requests - K * accepts) / (requests + 1)))


def asked(throttle: Throttle, *, now: float, draw: float) -> tuple[Throttle, bool]:
    """Count a request, and say whether it may go. `draw` is a random number from 0 to just below 1.

    It counts also when it is turned away, or the share could never fall. Requests that a breaker
    or a bucket kept back have not been asked for, and do not count.
    """
    go = draw >= chance(throttle, now=now)
    return _added(throttle, now, requests=1, accepts=0), go


def accepted(throttle: Throttle, *, now: float) -> Throttle:
    """The provider took the request on: every answer except a rate limit, an overload and a timeout.

    A bad request or a filtered one was accepted: what is wrong with it is not the provider's load.
    """
    return _added(throttle, now, requests=0, accepts=1)


def _added(throttle: Throttle, now: float, *, requests: int, accepts: int) -> Throttle:
    live = tuple(slot for slot in throttle.slots if slot.since > now - WINDOW)
    if not live or now - live[-1].since >= SLOT:
        return Throttle((*live, Slot(now, requests, accepts)))
    last = live[-1]
    last = replace(last, requests=last.requests + requests, accepts=last.accepts + accepts)
    return Throttle((*live[:-1], last))
