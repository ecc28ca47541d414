"""How a candidate stands, in words and figures for people. Never anything that a key could be read from."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

import msgspec
from msgspec import Struct

from penstock.models.base import Listing, ModelError, Provider
from penstock.models.errors import FaultKind
from penstock.models.members import Member
from penstock.models.tiers import Tiers
from penstock.policy import buckets, bulkhead, health, throttle
from penstock.policy.buckets import ONE

SHOWN: Final = 5
"""Models that are named where one is not there."""


class ModelReport(Struct, frozen=True, kw_only=True):
    name: str
    tiers: tuple[str, ...]
    origin: str = ""
    """Where it comes from, if not from a configuration."""
    lane: int
    status: str
    """`well`, `busy`, `limited`, `recovering`, `open` or `off`."""
    why: str = ""
    breaker: str
    trips: int = 0
    free_in: float | None = None
    """Seconds until it may be worth asking; None where it is now, or never."""
    probe_in: float | None = None
    success: float
    """Share of the last calls, 0 to 1."""
    calls: int
    """How many were looked at."""
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    ema: float | None = None
    score: float
    throttled: float = 0.0
    """Share of calls that are kept back here."""
    in_flight: int = 0
    """In this process."""
    elsewhere: int = 0
    """In other processes."""
    limit: int
    left: Mapping[str, tuple[float, float]] = {}
    """What is left of each bucket, and its limit."""
    first_byte: float
    """Seconds that it has for its first byte."""

    def plain(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class Tested(Struct, frozen=True, kw_only=True):
    """What came of asking one candidate."""

    name: str
    ok: bool = False
    seconds: float = 0.0
    kind: FaultKind | None = None
    """What went wrong; None also where it could not even be asked."""
    message: str = ""
    cost: float | None = None
    label: str = ""

    def plain(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def report(member: Member, tiers: Tiers, *, now: float) -> ModelReport:
    state, seat = member.state, member.seat
    shut = member.why_shut(now)
    limited = buckets.why_not(state.bucket, ONE, now=now)
    full = bulkhead.why_not(state.bulkhead, member.under_way(now))
    off = member.why_off(now)
    phase = state.breaker.phase
    status = (
        "off" if off
        else "open" if phase == "open"
        else "recovering" if phase != "closed"
        else "limited" if limited
        else "busy" if full
        else "well"
    )  # fmt: skip
    usual = health.percentiles(state.health, now=now) or (None, None, None)
    at = member.free_at(ONE, now=now)
    probe = state.breaker.probe_at
    named = tuple(name for name, seats in tiers.order if member.name in seats)
    last = member.name in (*tiers.backups, tiers.last_resort)
    other = ("last resort",) if last else ("embeddings",) if member.name in tiers.embeddings else ()
    return ModelReport(
        name=member.name,
        tiers=named or other,
        origin=seat.origin,
        lane=seat.lane,
        status=status,
        why=off or shut or limited or full,
        breaker=phase,
        trips=state.breaker.trips,
        free_in=at - now if now < at < float("inf") else None,
        probe_in=max(0.0, probe - now) if phase == "open" and probe is not None else None,
        success=health.success(state.health, now=now),
        calls=len(state.health.outcomes),
        p50=usual[0],
        p95=usual[1],
        p99=usual[2],
        ema=state.health.ema,
        score=health.score(state.health, now=now),
        throttled=throttle.chance(state.throttle, now=now),
        in_flight=member.in_flight,
        elsewhere=member.under_way(now) - member.in_flight,
        limit=min(state.bulkhead.most, int(state.bulkhead.limit)),
        left={
            name: (buckets.left(meter, now=now), meter.limit) for name, meter in state.bucket.meters.items()
        },
        first_byte=member.first_byte(now=now),
    )


async def instead(provider: Provider, model: str) -> str:
    """What to set where there is no such model: those that its provider offers, the closest first."""
    try:
        names = list(await provider.offered()) if isinstance(provider, Listing) else []
    except ModelError as error:
        if error.fault.kind == "not_found":
            return "nor is there a list of models: is its URL right?"
        names = []
    what = "name another in [models.tiers] of penstock.toml"
    if not names:
        return what
    some = get_close_matches(model, names, n=SHOWN, cutoff=0.0)
    return f"it offers {', '.join(some)}{' …' if len(names) > len(some) else ''}: {what}"
