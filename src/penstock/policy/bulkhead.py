"""How many calls may be under way to one candidate at once.

A bulkhead keeps one flooded provider from filling everything else. Its limit starts at what is
configured and then follows what the provider can take: one more after successes, half after an
overload. What once proved too much is not tried again for a while, and longer every time, so that
a provider with room for four sees a fifth now and then, not every other moment. All processes that
call a candidate share its limit, and each says how many calls it has under way.
"""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec.structs import replace

from penstock.policy.moments import Timed

LOCAL: Final = 10
HOSTED: Final = 50
"""Calls at once, where nothing is configured."""

HOLD: Final = 5.0
HOLD_AT_MOST: Final = 60.0
"""Seconds until the limit may grow beyond its ceiling again; doubled with every overload."""


GENTLE: Final = 10
"""Calls at once below which room is given one by one."""

STALE: Final = 3.0
"""Seconds after which a process that has said nothing more is taken to have no calls under way."""


class Flights(Timed, frozen=True):
    """What another process has under way, as it last said."""

    MOMENTS: ClassVar[frozenset[str]] = frozenset({"at"})

    holder: str
    calls: int
    at: float


class Bulkhead(Timed, frozen=True, kw_only=True):
    MOMENTS: ClassVar[frozenset[str]] = frozenset({"lowered_at", "hold_until", "grown_at"})

    most: int = HOSTED
    """As configured; the limit never goes beyond."""
    limit: float = HOSTED
    ceiling: float = HOSTED
    """Up to here the limit grows by one with every success; beyond it, slowly."""
    proven: int = 0
    """The most calls that were under way when one succeeded, since it last started."""
    lowered_at: float | None = None
    """Overloads of calls that began before are the same overload."""
    hold_until: float | None = None
    hold: float = HOLD
    grown_at: float | None = None
    flights: tuple[Flights, ...] = ()
    """Of every process that has told of any."""


def of_size(most: int) -> Bulkhead:
    return Bulkhead(most=most, limit=most, ceiling=most)


def room(bulkhead: Bulkhead, in_flight: int) -> int:
    """How many more calls may start."""
    return max(0, min(bulkhead.most, int(bulkhead.limit)) - in_flight)


def why_not(bulkhead: Bulkhead, in_flight: int) -> str:
    """Why a call may not start; empty when it may."""
    if room(bulkhead, in_flight):
        return ""
    return f"{in_flight} of {min(bulkhead.most, int(bulkhead.limit))} calls under way"


def sized(bulkhead: Bulkhead, most: int) -> Bulkhead:
    """With what is configured here, where another process may be configured otherwise."""
    if bulkhead.most == most:
        return bulkhead
    free = bulkhead.limit >= bulkhead.most
    return replace(
        bulkhead,
        most=most,
        limit=float(most if free else min(most, bulkhead.limit)),
        ceiling=float(most if free else min(most, bulkhead.ceiling)),
    )


def told(bulkhead: Bulkhead, holder: str, calls: int, *, now: float) -> Bulkhead:
    """A process says how many calls it has under way; those that fell silent are forgotten."""
    kept = tuple(one for one in bulkhead.flights if one.holder != holder and now - one.at < STALE)
    return replace(bulkhead, flights=(*kept, Flights(holder, calls, now)) if calls else kept)


def elsewhere(bulkhead: Bulkhead, holder: str, *, now: float) -> int:
    """Calls that other processes have under way."""
    return sum(one.calls for one in bulkhead.flights if one.holder != holder and now - one.at < STALE)


def restarted(bulkhead: Bulkhead) -> Bulkhead:
    """The slow start of a provider that has come back: one call, then one more with every success."""
    return replace(of_size(bulkhead.most), limit=1.0, flights=bulkhead.flights)


def succeeded(bulkhead: Bulkhead, *, in_flight: int, now: float, began: float | None = None) -> Bulkhead:
    """A call went well while so many were under way, itself included.

    The limit grows only where it was in use: an idle hour proves nothing. While there is little room, it
    grows by one in the time of one call: several answers that arrive together prove no more than one.
    """
    limit = bulkhead.limit
    if began is not None and limit < GENTLE and bulkhead.grown_at is not None and began < bulkhead.grown_at:
        in_flight = min(in_flight, int(limit) - 1)
    proven = max(bulkhead.proven, in_flight)
    if in_flight < int(limit) or limit >= bulkhead.most:
        return bulkhead if proven == bulkhead.proven else replace(bulkhead, proven=proven)
    if limit + 1.0 <= bulkhead.ceiling:
        return replace(bulkhead, limit=limit + 1.0, proven=proven, grown_at=now)
    if bulkhead.hold_until is not None and now < bulkhead.hold_until:
        return replace(bulkhead, proven=proven)
    grown = min(float(bulkhead.most), limit + 1.0 / max(1.0, limit))
    passed = proven > bulkhead.ceiling
    return replace(
        bulkhead,
        limit=grown,
        proven=proven,
        grown_at=now,
        ceiling=float(proven) if passed else bulkhead.ceiling,
        hold=HOLD if passed else bulkhead.hold,
    )


def overloaded(bulkhead: Bulkhead, *, began: float, now: float) -> Bulkhead:
    """The provider had too much to do. Halves the limit, once for all calls of the same moment."""
    if bulkhead.lowered_at is not None and began <= bulkhead.lowered_at:
        return bulkhead
    tried = int(bulkhead.limit)
    proven = min(bulkhead.proven, tried - 1)
    ceiling = max(1, proven or tried // 2)
    return replace(
        bulkhead,
        limit=float(max(1, min(tried // 2, ceiling))),
        ceiling=float(ceiling),
        proven=proven,
        lowered_at=now,
        hold_until=now + bulkhead.hold,
        hold=min(bulkhead.hold * 2.0, HOLD_AT_MOST),
    )
