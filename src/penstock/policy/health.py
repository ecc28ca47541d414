"""How well a model has been doing lately, in one figure and in detail.

A sliding window of outcomes per model. The figure is for choosing between candidates that may all
be called; whether one may be called at all is the breaker's business. A model that nobody has
asked for a while scores a little higher, not because it is better but to find out.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, sqrt
from typing import ClassVar, Final

from msgspec.structs import replace

from penstock.policy.moments import Timed

SUCCESS: Final = 0.6
LATENCY: Final = 0.2
FRESHNESS: Final = 0.2
"""Weights of the score; together 1."""

KEPT: Final = 100
"""Outcomes in the window ..."""
WINDOW: Final = 600.0
"""... none older than this many seconds."""

SMOOTHING: Final = 0.2
"""Of the moving average: the weight of the newest answer."""

TYPICAL: Final = 2.0
"""Seconds of an answer that scores half for latency, where there is nothing to compare with."""

STALE: Final = 300.0
"""Seconds without an outcome after which freshness is half."""

PRIOR: Final = 2.0
"""Successes that are assumed before there is anything to count."""

LEAST: Final = 0.5
MOST: Final = 60.0
"""Seconds, the bounds of the first-byte timeout."""


class Outcome(Timed, frozen=True, array_like=True):
    MOMENTS: ClassVar[frozenset[str]] = frozenset({"at"})

    at: float
    ok: bool
    seconds: float = 0.0
    first_byte: float = 0.0
    """Seconds; 0 where no byte arrived."""


class Health(Timed, frozen=True):
    outcomes: tuple[Outcome, ...] = ()
    """The oldest first."""
    ema: float | None = None
    """Seconds an answer takes: a moving average over successes."""


UNKNOWN: Final = Health()


def observed(
    health: Health, *, ok: bool, now: float, seconds: float = 0.0, first_byte: float = 0.0
) -> Health:
    """Add an outcome that says something about the model. Bad requests and cancelled calls say nothing."""
    live = _live(health, now)[-(KEPT - 1) :]
    ema = health.ema
    if ok:
        ema = seconds if ema is None else ema + SMOOTHING * (seconds - ema)
    return replace(health, outcomes=(*live, Outcome(now, ok, seconds, first_byte)), ema=ema)


def success(health: Health, *, now: float) -> float:
    """The share of calls that succeeded. Unknown is good: a model is believed until it fails."""
    live = _live(health, now)
    return (sum([one.ok for one in live]) + PRIOR) / (len(live) + PRIOR)


def percentiles(health: Health, *, now: float) -> tuple[float, float, float] | None:
    """p50, p95 and p99 of the seconds that successful answers took; None without any."""
    times = sorted(one.seconds for one in _live(health, now) if one.ok)
    if not times:
        return None
    return _quantile(times, 0.5), _quantile(times, 0.95), _quantile(times, 0.99)


def freshness(health: Health, *, now: float) -> float:
    """0 for a model that was just observed, towards 1 with the age of what is known: try it again."""
    if not health.outcomes:
        return 1.0
    age = max(0.0, now - health.outcomes[-1].at)
    return age / (age + STALE)


def score(health: Health, *, now: float, typical: float = TYPICAL) -> float:
    """0 to 1. `typical` is what an answer takes among the candidates compared with, in seconds."""
    quick = 1.0 if health.ema is None else typical / (typical + health.ema) if typical > 0 else 0.0
    return SUCCESS * success(health, now=now) + LATENCY * quick + FRESHNESS * freshness(health, now=now)


def first_byte_timeout(health: Health, *, now: float, least: float = LEAST, most: float = MOST) -> float:
    """Seconds to wait for the first byte before another candidate is tried.

    A multiple of the slowest first byte that is usual for this model: a wide one while little is
    known, a narrow one later. Where loading a model may take long, `least` should say so.
    """
    seen = sorted([one.first_byte for one in _live(health, now) if one.ok and one.first_byte > 0])
    if not seen:
        return most
    factor = 3.0 + 17.0 / sqrt(len(seen))
    return max(least, min(most, factor * _quantile(seen, 0.99)))


def system_health(capacities: Iterable[tuple[float, bool]]) -> float:
    """The share of the configured capacity that is not open, 0 to 1.

    Takes a capacity and whether its breaker is open, for each candidate. Nothing configured is 0:
    no call can be served.
    """
    total = usable = 0.0
    for capacity, is_open in capacities:
        total += capacity
        usable += 0.0 if is_open else capacity
    return usable / total if total > 0 else 0.0


def _live(health: Health, now: float) -> tuple[Outcome, ...]:
    outcomes = health.outcomes
    if not outcomes or outcomes[0].at > now - WINDOW:
        return outcomes
    return tuple(one for one in outcomes if one.at > now - WINDOW)


def _quantile(ordered: list[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed."""
    return ordered[max(0, min(len(ordered), ceil(share * len(ordered))) - 1)]
