"""Whether a candidate may be called: closed, open, half open, and a slow start after that.

Pure: a breaker is a value, and time is an argument. Two things are kept apart that are often one:
how long user traffic stays away (the cooldown, which grows), and how often a cheap probe looks
whether the provider is back (every few seconds, which does not). Answers of calls that began
before the last change of phase count for nothing: fifty calls in flight when a provider dies are
one failure, not fifty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from penstock.policy.moments import Timed

Phase = Literal["closed", "open", "half_open", "slow_start"]
Cause = Literal["failure", "timeout", "rate_limit"]

BASES: Final[Mapping[Cause, float]] = {"failure": 30.0, "rate_limit": 120.0, "timeout": 60.0}
"""Seconds of the first wait, where the provider gave none."""

FACTOR: Final = 1.5
LONGEST: Final = 600.0
"""Seconds. A cap on what we compute ourselves, not on what a provider asks for."""

LONGEST_HINT: Final = 86_400.0

IN_A_ROW: Final = 3
"""Failures that open a closed breaker."""

IN_SLOW_START: Final = 2

WINDOW: Final = 20
"""Outcomes looked back at: half of them failed, and at least this many ..."""
ENOUGH: Final = 10
"""... were seen, opens it too. That is how a provider is found that fails every other time."""

SLOW_START: Final = 10
"""Outcomes until a breaker that has just closed is trusted like any other."""

PROBE_EVERY: Final = 2.0
PROBE_AT_MOST: Final = 5.0
"""Seconds between probes, at first and after some time."""

LEASE: Final = 120.0
"""Seconds a canary may take. Then its process is taken for dead, and the slot is free."""


class Breaker(Timed, frozen=True, kw_only=True):
    MOMENTS: ClassVar[frozenset[str]] = frozenset({"opened", "until", "probe_at", "canary_until"})

    phase: Phase = "closed"
    epoch: int = 0
    """Goes up with every change of phase that matters. Of two copies the higher one is the truth."""
    cause: Cause = "failure"
    opened: float | None = None
    until: float | None = None
    """Open: user traffic stays away until then, unless a probe succeeds first."""
    probe_at: float | None = None
    """Open: when a probe is due. None when a probe could tell nothing."""
    trips: int = 0
    """Openings since it was last trusted: the exponent of the cooldown."""
    misled: int = 0
    """How many of them followed a probe that had succeeded: such a probe is asked less often."""
    vouched: bool = False
    """Whether a probe let the canary in, rather than time."""
    canary: str = ""
    """The call that has the one slot of a half-open breaker."""
    canary_until: float | None = None
    row: int = 0
    """Failures in a row."""
    recent: int = 0
    """The last outcomes as bits, the newest lowest; 1 is a failure."""
    seen: int = 0
    """How many of those bits are outcomes. In slow start: how far it is."""


class Ticket(Struct, frozen=True):
    """What a call that was let in brings back with its outcome."""

    call: str
    epoch: int
    canary: bool = False


CLOSED: Final = Breaker()


def cooldown(cause: Cause, *, repeats: int, hint: float | None = None) -> float:
    """Seconds to stay away. A provider's own word wins over the table; the cap is not for it."""
    if hint is not None and hint > 0:
        return min(hint, LONGEST_HINT)
    return min(BASES[cause] * FACTOR ** min(repeats, 32), LONGEST)


# --- before a call ---


def why_not(breaker: Breaker, *, now: float) -> str:
    """Why a call would not be let in; empty when it would."""
    if breaker.phase in ("closed", "slow_start"):
        return ""
    if breaker.phase == "open" and breaker.until is not None and now < breaker.until:
        return f"open after {_CAUSES[breaker.cause]} for another {breaker.until - now:.0f} s"
    if _taken(breaker, now):
        return "half open, and its one slot is taken"
    return ""


_CAUSES: Final[Mapping[Cause, str]] = {
    "failure": "failures",
    "timeout": "timeouts",
    "rate_limit": "a rate limit",
}


def enter(breaker: Breaker, call: str, *, now: float, lease: float = LEASE) -> tuple[Breaker, Ticket | None]:
    """Let a call in, or not: a slot that is taken is not waited for.

    Of a breaker that is not closed, the call is the canary. It should be one that has a fallback.
    """
    if breaker.phase in ("closed", "slow_start"):
        return breaker, Ticket(call, breaker.epoch)
    if why_not(breaker, now=now):
        return breaker, None
    half = breaker if breaker.phase == "half_open" else _half_open(breaker)
    taken = replace(half, epoch=half.epoch + 1, canary=call, canary_until=now + lease)
    return taken, Ticket(call, taken.epoch, canary=True)


def free_at(breaker: Breaker, *, now: float) -> float:
    """When it is worth asking again: for a Retry-After."""
    if not why_not(breaker, now=now):
        return now
    moments = (breaker.until if breaker.phase == "open" else breaker.canary_until, breaker.probe_at)
    return max(now, min(moment for moment in moments if moment is not None))


def _taken(breaker: Breaker, now: float) -> bool:
    return bool(breaker.canary) and breaker.canary_until is not None and now < breaker.canary_until


# --- after a call ---


def succeeded(breaker: Breaker, ticket: Ticket) -> Breaker:
    if ticket.epoch != breaker.epoch:
        return breaker
    if ticket.canary:
        return Breaker(
            phase="slow_start",
            epoch=breaker.epoch + 1,
            cause=breaker.cause,
            trips=breaker.trips,
            misled=breaker.misled,
            vouched=breaker.vouched,
        )
    counted = _counted(breaker, failed=False)
    if breaker.phase == "slow_start" and counted.seen >= SLOW_START:
        return Breaker(epoch=breaker.epoch, recent=counted.recent, seen=counted.seen)
    return counted


def failed(
    breaker: Breaker,
    ticket: Ticket,
    *,
    now: float,
    cause: Cause = "failure",
    hint: float | None = None,
    crowded: bool = False,
) -> Breaker:
    """Count a failure that says something about the provider's health.

    `crowded` is an overload while other calls were under way: the concurrency was too high, which
    is not yet an outage. It counts in the share, not in the row.
    """
    if ticket.epoch != breaker.epoch:
        return breaker
    if ticket.canary:
        return opened(breaker, now=now, cause=cause, hint=hint)
    counted = _counted(breaker, failed=True, crowded=crowded)
    limit = IN_SLOW_START if breaker.phase == "slow_start" else IN_A_ROW
    share = counted.recent.bit_count() * 2 >= counted.seen >= ENOUGH
    if counted.row >= limit or share:
        return opened(counted, now=now, cause=cause, hint=hint)
    return counted


def released(breaker: Breaker, ticket: Ticket) -> Breaker:
    """The call ended without telling anything: cancelled, rate limited, a bad request.

    A canary's slot is free again at once; nothing is counted.
    """
    if not ticket.canary or ticket.epoch != breaker.epoch:
        return breaker
    return replace(breaker, epoch=breaker.epoch + 1, canary="", canary_until=None)


def _counted(breaker: Breaker, *, failed: bool, crowded: bool = False) -> Breaker:
    recent = (breaker.recent << 1 | failed) & (1 << WINDOW) - 1
    row = 0 if not failed else breaker.row if crowded else breaker.row + 1
    return replace(breaker, recent=recent, seen=min(breaker.seen + 1, WINDOW), row=row)


# --- open, and back ---


def opened(breaker: Breaker, *, now: float, cause: Cause = "failure", hint: float | None = None) -> Breaker:
    """Open it now.

    After a rate limit no probe is sent: the deadline is the signal, and a probe would cost a request.
    """
    misled = breaker.misled + breaker.vouched
    wait = cooldown(cause, repeats=breaker.trips, hint=hint)
    first = min(PROBE_EVERY * 2.0 ** min(misled, 16), wait)
    return Breaker(
        phase="open",
        epoch=breaker.epoch + 1,
        cause=cause,
        opened=now,
        until=now + wait,
        probe_at=None if cause == "rate_limit" else now + first,
        trips=breaker.trips + 1,
        misled=misled,
    )


def probe_due(breaker: Breaker, *, now: float) -> bool:
    return breaker.phase == "open" and breaker.probe_at is not None and now >= breaker.probe_at


def probing(breaker: Breaker, *, now: float) -> Breaker:
    """A probe is on its way: nobody else needs to send one before the next is due."""
    since = 0.0 if breaker.opened is None else now - breaker.opened
    wait = min(PROBE_AT_MOST, max(PROBE_EVERY, since / 10.0)) * 2.0 ** min(breaker.misled, 16)
    return replace(breaker, probe_at=now + min(wait, LONGEST))


def probed(breaker: Breaker, *, ok: bool) -> Breaker:
    """A probe that succeeds lets one canary in. One that fails changes nothing."""
    return _half_open(breaker, vouched=True) if ok and breaker.phase == "open" else breaker


def _half_open(breaker: Breaker, *, vouched: bool = False) -> Breaker:
    return Breaker(
        phase="half_open",
        epoch=breaker.epoch + 1,
        cause=breaker.cause,
        opened=breaker.opened,
        trips=breaker.trips,
        misled=breaker.misled,
        vouched=vouched,
    )


def newer(mine: Breaker, theirs: Breaker) -> Breaker:
    """Which of two processes' copies to go on with."""
    return theirs if theirs.epoch > mine.epoch else mine


# --- failure domains ---


def doubted(breaker: Breaker) -> Breaker:
    """Something it depends on is down elsewhere: one canary at a time until it has shown that it is well."""
    return _half_open(breaker) if breaker.phase == "closed" else breaker


def suspects(breakers: Mapping[str, Breaker], domains: Mapping[str, str]) -> frozenset[str]:
    """Closed candidates to doubt: at least half of those that share their infrastructure are open.

    To be asked when one has opened, not at every call: a suspect that proves well stays trusted.
    Candidates without a domain stand alone. A rate limit says nothing about infrastructure.
    """
    members: dict[str, list[str]] = {}
    for name in breakers:
        if domain := domains.get(name, ""):
            members.setdefault(domain, []).append(name)
    found: set[str] = set()
    for names in members.values():
        down = [n for n in names if breakers[n].phase == "open" and breakers[n].cause != "rate_limit"]
        if down and len(down) * 2 >= len(names):
            found.update(name for name in names if breakers[name].phase == "closed")
    return frozenset(found)


def hastened(breaker: Breaker, *, now: float) -> Breaker:
    """A neighbour has come back: look at this one now instead of when its probe is due."""
    if breaker.phase != "open" or breaker.probe_at is None or breaker.probe_at <= now:
        return breaker
    return replace(breaker, probe_at=now)
