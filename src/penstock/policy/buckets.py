"""How much of what a provider counts is left: requests and tokens per window, and when it said no.

A bucket is per model and key. It is fed from response headers where they are credible, counts by
itself where there are none, and learns the real pace from refusals where the headers lie. Nothing
is ever taken that it does not have: what is left never falls below zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from penstock.policy.breaker import FACTOR, LONGEST_HINT, cooldown
from penstock.policy.moments import Timed

Dimension = Literal["requests", "tokens", "input_tokens", "output_tokens", "concurrent", "unified"]

SLOTS: Final = 20
"""Parts of a window. What was taken comes back when the whole part is out of the window."""

SPREAD: Final = 0.1
WIDEST: Final = 0.2
"""A hint is obeyed with up to a tenth more, at most this many seconds: everyone was given the same one."""

LIAR: Final = 1.0
LIAR_AT_MOST: Final = 60.0
"""Seconds of the least wait after a hint that was obeyed and was wrong, growing with every repeat."""

HOLD: Final = 3_600.0
"""Seconds a quota that ran out is left alone when nobody says for how long; doubled every time."""

MARGIN: Final = 1.01
"""A learned pace is kept this much slower than measured."""

LIFT: Final = 0.9
"""A learned interval shrinks to this with every window that passed without a refusal."""

CLOSE: Final = 2.0
"""Seconds. Refusals this near to each other are about the same shortage."""

FORGET: Final = 10
"""Windows after which a learned pace is forgotten."""


class Limit(Struct, frozen=True, kw_only=True):
    """What a provider says of one thing it counts. None is what it did not say, or not credibly."""

    dimension: Dimension
    limit: float | None = None
    """How much a window allows."""
    remaining: float | None = None
    reset: float | None = None
    """Seconds until everything is there again. Not until the next call is allowed."""
    window: float = 60.0
    """Seconds."""


class Slot(Timed, frozen=True):
    """What was taken in one part of a window."""

    MOMENTS: ClassVar[frozenset[str]] = frozenset({"since"})

    since: float
    taken: float


class Meter(Timed, frozen=True, kw_only=True):
    """One thing that is counted."""

    MOMENTS: ClassVar[frozenset[str]] = frozenset({"told_at"})

    limit: float
    window: float = 60.0
    own: bool = False
    """The limit was configured: it holds whatever the provider would allow."""
    slots: tuple[Slot, ...] = ()
    """The oldest first."""
    told: float | None = None
    """What remained by the last credible header, less what was taken since."""
    told_at: float | None = None


class Bucket(Timed, frozen=True, kw_only=True):
    MOMENTS: ClassVar[frozenset[str]] = frozenset(
        {"closed_until", "refused_at", "slot_at", "paced_at", "next_at"}
    )

    meters: Mapping[str, Meter] = {}
    """By dimension. What has no meter is not limited."""
    closed_until: float | None = None
    """A refusal said so. Nothing is granted before."""
    why: Literal["", "rate_limited", "quota_exhausted"] = ""
    refusals: int = 0
    """In a row, each after the wait that the one before had asked for."""
    refused_at: float | None = None
    slot_at: float | None = None
    """When the last refusal said that a request would be allowed again."""
    accepted: int = 0
    """Requests that went through since."""
    every: float | None = None
    """Seconds between requests, learned from two refusals and what went through between them."""
    paced_at: float | None = None
    """When that was learned."""
    next_at: float | None = None
    """When the learned pace has paid for everything that was taken."""


class Cost(Struct, frozen=True, kw_only=True):
    """What a call takes. Tokens are an estimate until it is settled."""

    requests: float = 1.0
    tokens: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0

    def of(self, dimension: str) -> float:
        return float(getattr(self, dimension, 0.0))


NOTHING: Final = Cost(requests=0.0)
ONE: Final = Cost()


def of_limits(limits: Iterable[Limit]) -> Bucket:
    """A bucket as configured: full, and counting by itself until headers arrive."""
    return Bucket(
        meters={
            known.dimension: Meter(limit=known.limit, window=known.window, own=True)
            for known in limits
            if known.limit
        }
    )


# --- before a call ---


def left(meter: Meter, *, now: float) -> float:
    """What may be taken now. Headers are believed for one window, with a steady refill after them."""
    counted = meter.limit
    if meter.told is not None and meter.told_at is not None and now - meter.told_at < meter.window:
        refilled = max(0.0, now - meter.told_at) * meter.limit / meter.window
        counted = min(meter.limit, meter.told + refilled)
        if not meter.own:
            return max(0.0, counted)
    return max(0.0, min(counted, meter.limit - sum(slot.taken for slot in _live(meter, now))))


def why_not(bucket: Bucket, cost: Cost = ONE, *, now: float) -> str:
    """Why a call of this cost would not be granted; empty when it would."""
    if bucket.closed_until is not None and now < bucket.closed_until:
        return f"{bucket.why.replace('_', ' ')} for another {bucket.closed_until - now:.1f} s"
    every = _pace(bucket, now)
    if every is not None and bucket.next_at is not None and now < bucket.next_at - every:
        return f"paced at a request every {every:.3g} s"
    for dimension, meter in bucket.meters.items():
        wants = min(cost.of(dimension), meter.limit)  # a call larger than a window goes when all is there
        has = left(meter, now=now)
        if wants > has:
            return f"{has:.0f} {dimension.replace('_', ' ')} left, {wants:.0f} needed"
    return ""


def remaining(bucket: Bucket, *, now: float) -> float:
    """The scarcest thing's share that is left, 0 to 1: for weighing candidates."""
    if bucket.closed_until is not None and now < bucket.closed_until:
        return 0.0
    return min((left(meter, now=now) / meter.limit for meter in bucket.meters.values()), default=1.0)


def free_at(bucket: Bucket, cost: Cost = ONE, *, now: float) -> float:
    """When a call of this cost is likely to be granted: now, or the moment to ask again."""
    moments = [now]
    if bucket.closed_until is not None:
        moments.append(bucket.closed_until)
    every = _pace(bucket, now)
    if every is not None and bucket.next_at is not None:
        moments.append(bucket.next_at - every)
    for dimension, meter in bucket.meters.items():
        wants = min(cost.of(dimension), meter.limit)
        if wants > left(meter, now=now):
            moments.append(_refilled_at(meter, wants, now))
    return max(moments)


def _refilled_at(meter: Meter, wants: float, now: float) -> float:
    moments = [now]
    if meter.told is not None and meter.told_at is not None and now - meter.told_at < meter.window:
        moments.append(meter.told_at + min(1.0, (wants - meter.told) / meter.limit) * meter.window)
        if not meter.own:
            return max(moments)
    over = wants - (meter.limit - sum(slot.taken for slot in _live(meter, now)))
    for slot in _live(meter, now):
        if over <= 0:
            break
        over -= slot.taken
        moments.append(slot.since + meter.window + meter.window / SLOTS)
    return max(moments)


def reserve(bucket: Bucket, cost: Cost = ONE, *, now: float) -> Bucket | None:
    """Take what a call is expected to cost; None when it is not there."""
    if why_not(bucket, cost, now=now):
        return None
    meters = {
        name: _taken(meter, min(cost.of(name), meter.limit), now) for name, meter in bucket.meters.items()
    }
    every = _pace(bucket, now)
    if every is None or bucket.next_at is None:
        return replace(bucket, meters=meters)
    return replace(bucket, meters=meters, next_at=max(now, bucket.next_at) + every)


# --- after a call ---


def settle(
    bucket: Bucket, reserved: Cost, used: Cost, *, began: float, now: float, ok: bool = True
) -> Bucket:
    """Put back what was reserved and not used, or take what was used beyond it.

    `ok` is whether the provider let the request through: that is what a pace is learned from.
    """
    meters = {
        name: _corrected(meter, used.of(name) - min(reserved.of(name), meter.limit), began, now)
        for name, meter in bucket.meters.items()
    }
    after = bucket.refused_at is None or began >= bucket.refused_at
    if not (ok and after):
        return replace(bucket, meters=meters)
    return replace(bucket, meters=meters, accepted=bucket.accepted + 1, refusals=0)


def fed(bucket: Bucket, limits: Iterable[Limit], *, now: float, pending: Cost = NOTHING) -> Bucket:
    """What the headers of a response say. `pending` is reserved by calls that have not been answered.

    A figure that cannot be true is ignored: it changes neither the limit nor what is left.
    """
    meters = dict(bucket.meters)
    for said in limits:
        meter = _told(meters.get(said.dimension), said)
        if meter is None:
            continue
        if said.remaining is not None and said.remaining >= 0:
            told = max(0.0, min(said.remaining, meter.limit) - pending.of(said.dimension))
            meter = replace(meter, told=told, told_at=now)
        meters[said.dimension] = meter
    return replace(bucket, meters=meters)


def _told(meter: Meter | None, said: Limit) -> Meter | None:
    """The meter that a header is about, with the limit it gives; None when there is nothing to count by."""
    if said.dimension in ("concurrent", "unified") or said.window <= 0:
        return None
    if said.limit is None or said.limit <= 0 or (said.remaining or 0.0) > said.limit:
        return meter if said.limit is None else None
    if meter is None:
        return Meter(limit=said.limit, window=said.window)
    if not meter.own:
        return replace(meter, limit=said.limit, window=said.window)
    return replace(meter, limit=min(meter.limit, said.limit)) if meter.window == said.window else None


def refused(bucket: Bucket, *, hint: float | None, began: float, now: float, draw: float = 0.0) -> Bucket:
    """The provider said no, for now. `draw` is a random number from 0 to 1.

    Two refusals and what went through between them give the real pace, to the request: between
    the moments at which the provider promised a slot, it let exactly those through.
    """
    if bucket.refused_at is not None and began < bucket.refused_at:  # sent before the last one came back
        if hint is None:
            return bucket
        return replace(bucket, closed_until=max(bucket.closed_until or now, now + min(hint, LONGEST_HINT)))
    again = bucket.refused_at is not None and bucket.accepted == 0
    repeats = bucket.refusals + 1 if again else 0
    asked = cooldown("rate_limit", repeats=repeats, hint=hint)
    least = min(LIAR * FACTOR ** min(repeats - 1, 32), LIAR_AT_MOST) if repeats else 0.0
    wait = max(asked, least)
    slot = now + asked
    every, paced = _learned(bucket, slot, asked, now)
    return replace(
        bucket,
        closed_until=now + wait + draw * min(SPREAD * wait, WIDEST),
        why="rate_limited",
        refusals=repeats,
        refused_at=now,
        slot_at=slot if hint else None,
        accepted=0,
        every=every,
        paced_at=paced,
        next_at=slot + every if every is not None else None,
    )


def exhausted(bucket: Bucket, *, hint: float | None, now: float) -> Bucket:
    """The quota or the money is gone: hours, not seconds. Says nothing about anyone's health."""
    again = bucket.refusals + 1 if bucket.why == "quota_exhausted" and bucket.accepted == 0 else 0
    asked = hint if hint is not None and hint > 0 else HOLD * 2.0 ** min(again, 16)
    return replace(
        bucket,
        closed_until=max(bucket.closed_until or now, now + min(asked, LONGEST_HINT)),
        why="quota_exhausted",
        refusals=again,
        refused_at=now,
        slot_at=None,
        accepted=0,
    )


# --- windows ---


def _live(meter: Meter, now: float) -> tuple[Slot, ...]:
    """What still counts: a part of the window leaves it when its last moment does."""
    oldest = now - meter.window - meter.window / SLOTS
    return tuple(slot for slot in meter.slots if slot.since > oldest)


def _taken(meter: Meter, amount: float, now: float) -> Meter:
    slots = _live(meter, now)
    if slots and now - slots[-1].since < meter.window / SLOTS:
        slots = (*slots[:-1], Slot(slots[-1].since, slots[-1].taken + amount))
    else:
        slots = (*slots, Slot(now, amount))
    told = None if meter.told is None else meter.told - amount
    return replace(meter, slots=slots, told=told)


def _corrected(meter: Meter, more: float, began: float, now: float) -> Meter:
    if more > 0:
        return _taken(meter, more, now)
    if not more:
        return meter
    slots = list(meter.slots)
    back = -more
    for at in range(len(slots) - 1, -1, -1):
        if slots[at].since <= began and back > 0:
            given = min(back, slots[at].taken)
            slots[at] = Slot(slots[at].since, slots[at].taken - given)
            back -= given
    fresh = meter.told is not None and meter.told_at is not None and meter.told_at <= began
    told = meter.told - more if fresh and meter.told is not None else meter.told
    return replace(meter, slots=tuple(slots), told=told)


# --- the learned pace ---


def _pace(bucket: Bucket, now: float) -> float | None:
    """Seconds between requests today: a learned pace is lifted as long as nobody complains."""
    if bucket.every is None or bucket.paced_at is None:
        return None
    meter = bucket.meters.get("requests")
    window = meter.window if meter else 60.0
    quiet = int(max(0.0, now - bucket.paced_at) // window)
    return None if quiet >= FORGET else bucket.every * LIFT**quiet


def _learned(bucket: Bucket, slot: float, wait: float, now: float) -> tuple[float | None, float | None]:
    """The pace after a refusal that promises a slot then, and when it was learned.

    Only from two that are close: over a longer time the provider may have had more than was asked of
    it. And never a faster one: a refusal is no reason to hurry.
    """
    before = _pace(bucket, now)
    apart = 0.0 if bucket.slot_at is None else slot - bucket.slot_at
    if bucket.accepted < 1 or not 0.0 < apart <= max(CLOSE, 5.0 * wait):
        return before, None if before is None else now
    measured = apart / bucket.accepted * MARGIN
    return measured if before is None else max(measured, before), now
