"""Which candidate answers a call, which ones stand by, and why the others do not.

First who may be called at all: breaker, bucket, bulkhead, throttle and cost. Then, tier by tier,
the better of two drawn by chance, weighed by health and by what it has left: always taking the
best one would send everybody to the same place. A dearer lane than allowed is never an
alternative, however bad the rest looks; neither is anything at all for a call that named its model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

Obstacle = Literal["pin", "tier", "lane", "disabled", "breaker", "bucket", "bulkhead", "throttle"]


class Candidate(Struct, frozen=True, kw_only=True):
    """A model of a provider, as configured."""

    name: str
    tier: int = 0
    """0 is preferred. An answer from a higher one is degraded."""
    lane: int = 0
    """What it costs: 0 is nothing, higher is dearer."""
    order: int = 0
    """Its place in the fallback chain, within its tier."""
    domain: str = ""
    """Infrastructure it shares with others."""


class Standing(Struct, frozen=True, kw_only=True):
    """How a candidate stands at this moment. An empty reason is no obstacle."""

    candidate: Candidate
    disabled: str = ""
    """A missing key, or one that was refused."""
    breaker: str = ""
    bucket: str = ""
    bulkhead: str = ""
    throttle: str = ""
    score: float = 1.0
    """Its health, 0 to 1."""
    left: float = 1.0
    """Its remaining capacity, 0 to 1: the scarcer of bucket and bulkhead."""

    @property
    def weight(self) -> float:
        return self.score * self.left


class Passed(Struct, frozen=True):
    """A candidate that may not be called, and why."""

    name: str
    obstacle: Obstacle
    reason: str


class Selection(Struct, frozen=True, kw_only=True):
    chain: tuple[str, ...] = ()
    """Who to call, and whom after that when it fails."""
    degraded: frozenset[str] = frozenset()
    """Those of the chain whose answer is of a lower tier than the call asked for."""
    passed: tuple[Passed, ...] = ()
    """Everyone else."""


def dearest(candidates: Iterable[Candidate], *, tier: int = 0, allowed: int | None = None) -> int:
    """The dearest lane a call may be served from.

    Without a word about it: the dearest among the candidates that were meant to answer it in the
    first place. Failing over must not cost more than working.
    """
    if allowed is not None:
        return allowed
    known = list(candidates)
    first = [one.lane for one in known if one.tier == tier]
    if first:
        return max(first)
    later = [one.tier for one in known if one.tier > tier]
    return max((one.lane for one in known if one.tier == min(later)), default=0) if later else 0


def obstacle(standing: Standing, *, tier: int = 0, lane: int | None = None, pin: str = "") -> Passed | None:
    """What keeps a candidate from being called, the most lasting reason first."""
    one = standing.candidate
    if pin and one.name != pin:
        return Passed(one.name, "pin", f"the call asks for {pin}")
    if not pin and one.tier < tier:
        return Passed(one.name, "tier", f"tier {one.tier}, and the call asks for tier {tier}")
    if lane is not None and one.lane > lane:
        return Passed(one.name, "lane", f"cost lane {one.lane}, and the call may use lanes up to {lane}")
    reasons: tuple[tuple[Obstacle, str], ...] = (
        ("disabled", standing.disabled),
        ("breaker", standing.breaker),
        ("bucket", standing.bucket),
        ("bulkhead", standing.bulkhead),
        ("throttle", standing.throttle),
    )
    return next((Passed(one.name, name, reason) for name, reason in reasons if reason), None)


def select(
    standings: Sequence[Standing],
    *,
    draws: tuple[float, float],
    tier: int = 0,
    allowed: int | None = None,
    pin: str = "",
) -> Selection:
    """The chain for one call. `draws` are two random numbers from 0 to just below 1.

    A pinned call has a chain of one or of none: another model is never put in its place. Its own
    lane is allowed, unless `allowed` says otherwise.
    """
    lane = allowed if pin else dearest((one.candidate for one in standings), tier=tier, allowed=allowed)
    passed: list[Passed] = []
    tiers: dict[int, list[Standing]] = {}
    for standing in standings:
        why = obstacle(standing, tier=tier, lane=lane, pin=pin)
        if why is None:
            tiers.setdefault(standing.candidate.tier, []).append(standing)
        else:
            passed.append(why)
    chain = [one.candidate for number in sorted(tiers) for one in _ordered(tiers[number], draws)]
    return Selection(
        chain=tuple(one.name for one in chain),
        degraded=frozenset(one.name for one in chain if one.tier > tier and not pin),
        passed=tuple(passed),
    )


def better_of_two(eligible: Sequence[Standing], draws: tuple[float, float]) -> Standing:
    """Two different ones, drawn evenly: the heavier is taken, of equals the earlier in the chain."""
    first = min(int(draws[0] * len(eligible)), len(eligible) - 1)
    if len(eligible) == 1:
        return eligible[first]
    second = min(int(draws[1] * (len(eligible) - 1)), len(eligible) - 2)
    second += second >= first
    return min(eligible[first], eligible[second], key=_heaviest)


def _ordered(eligible: Sequence[Standing], draws: tuple[float, float]) -> list[Standing]:
    """One tier: who was chosen, then the others as they stand in the configured chain.

    Those of equal place are tried by weight.
    """
    chosen = better_of_two(eligible, draws)
    rest = [one for one in eligible if one is not chosen]
    return [chosen, *sorted(rest, key=lambda one: (one.candidate.order, *_heaviest(one)))]


def _heaviest(standing: Standing) -> tuple[float, int, str]:
    return -standing.weight, standing.candidate.order, standing.candidate.name
