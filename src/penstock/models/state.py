"""How one candidate stands: everything that processes share about it, as one value.

Every change is a function from a state to a state. A process that finds that another one has
written in between applies its own changes once more, to what the other one wrote: counts add up,
and an outcome that has become meaningless counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from penstock.models.errors import NAME_ANOTHER, REJECTED, UNWELL, Fault
from penstock.policy import breaker as breakers
from penstock.policy import buckets, throttle
from penstock.policy import bulkhead as bulkheads
from penstock.policy import health as healths
from penstock.policy.breaker import Breaker, Cause, Ticket
from penstock.policy.buckets import Bucket, Cost, Limit
from penstock.policy.bulkhead import Bulkhead
from penstock.policy.health import Health
from penstock.policy.moments import Timed
from penstock.policy.throttle import Throttle

SOON: Final = 1.0
"""Seconds to wait after a refusal that asked for no wait at all."""

ABSENT: Final = 3_600.0
"""Seconds a model that its provider does not know is left alone."""


class State(Timed, frozen=True, kw_only=True):
    MOMENTS: ClassVar[frozenset[str]] = frozenset({"disabled_until"})

    breaker: Breaker = breakers.CLOSED
    bucket: Bucket = Bucket()
    bulkhead: Bulkhead = Bulkhead()
    throttle: Throttle = throttle.FREE
    health: Health = healths.UNKNOWN
    disabled: str = ""
    """Why it is not to be called at all: its key was refused, or there is no such model."""
    disabled_until: float | None = None
    """None is until the configuration changes, or someone tests it and it answers."""


Change = Callable[[State], State]


class Ended(Struct, frozen=True, kw_only=True):
    """What a call leaves behind, whatever came of it."""

    ticket: Ticket
    reserved: Cost
    used: Cost
    pending: Cost
    """Reserved by calls that are still under way."""
    flights: int
    """Calls that were under way with it, in all processes, itself included."""
    limits: tuple[Limit, ...] = ()
    began: float
    now: float


def why_disabled(state: State, *, now: float) -> str:
    if state.disabled and (state.disabled_until is None or now < state.disabled_until):
        return state.disabled
    return ""


def asked(cost: Cost, *, now: float) -> Change:
    """A call is on its way. The throttle hears of it when it ends: what is under way is not refused."""

    def change(state: State) -> State:
        return replace(state, bucket=buckets.reserve(state.bucket, cost, now=now) or state.bucket)

    return change


def turned_away(*, now: float) -> Change:
    """The throttle kept a call back. It counts as asked."""

    def change(state: State) -> State:
        return replace(state, throttle=throttle.asked(state.throttle, now=now, draw=1.0)[0])

    return change


def succeeded(ended: Ended, *, seconds: float, first_byte: float) -> Change:
    def change(state: State) -> State:
        return State(
            breaker=breakers.succeeded(state.breaker, ended.ticket),
            bucket=_settled(state.bucket, ended, ok=True),
            bulkhead=bulkheads.succeeded(
                state.bulkhead, in_flight=ended.flights, now=ended.now, began=ended.began
            ),
            throttle=_counted(state.throttle, ended.now, accepted=True),
            health=healths.observed(
                state.health, ok=True, now=ended.now, seconds=seconds, first_byte=first_byte
            ),
        )

    return change


def released(ended: Ended, *, accepted: bool | None = None) -> Change:
    """It ended without a word about the provider's health; None: nor about whether it was accepted."""

    def change(state: State) -> State:
        return replace(
            state,
            breaker=breakers.released(state.breaker, ended.ticket),
            bucket=_settled(state.bucket, ended, ok=bool(accepted)),
            throttle=state.throttle
            if accepted is None
            else _counted(state.throttle, ended.now, accepted=accepted),
        )

    return change


def failed(ended: Ended, fault: Fault, *, hint: float | None, crowded: bool, draw: float) -> Change:
    """A fault, and what follows from its kind."""
    accepted = fault.kind not in REJECTED
    if fault.kind in UNWELL:
        return _unwell(ended, fault, hint=hint, crowded=crowded, accepted=accepted)
    calm = released(ended, accepted=accepted)

    def change(state: State) -> State:
        state, now = calm(state), ended.now
        if fault.kind == "rate_limited":
            bucket = buckets.refused(state.bucket, hint=hint, began=ended.began, now=now, draw=draw)
            return replace(state, bucket=bucket)
        if fault.kind == "quota_exhausted":
            return replace(state, bucket=buckets.exhausted(state.bucket, hint=hint, now=now))
        if fault.kind == "auth":
            return barred(state)
        if fault.action == "hold":
            return replace(
                state, disabled=f"there is no such model: {NAME_ANOTHER}", disabled_until=now + ABSENT
            )
        return state

    return change


def _unwell(ended: Ended, fault: Fault, *, hint: float | None, crowded: bool, accepted: bool) -> Change:
    cause: Cause = "timeout" if fault.kind == "timeout" else "failure"

    def change(state: State) -> State:
        now = ended.now
        return replace(
            state,
            breaker=breakers.failed(
                state.breaker, ended.ticket, now=now, cause=cause, hint=hint, crowded=crowded
            ),
            bucket=_settled(state.bucket, ended, ok=accepted),
            throttle=_counted(state.throttle, now, accepted=accepted),
            health=healths.observed(state.health, ok=False, now=now, seconds=now - ended.began),
        )

    return change


def overfull(ended: Ended) -> Change:
    """The provider had too much to do at once."""
    return lambda state: replace(
        state, bulkhead=bulkheads.overloaded(state.bulkhead, began=ended.began, now=ended.now)
    )


def flying(holder: str, calls: int, *, now: float) -> Change:
    """How many calls a process has under way."""
    return lambda state: replace(state, bulkhead=bulkheads.told(state.bulkhead, holder, calls, now=now))


def followed(change: Change) -> Change:
    """The change, and a slow start where it has brought the provider back."""

    def both(state: State) -> State:
        after = change(state)
        phase = after.breaker.phase
        if phase == state.breaker.phase or phase not in ("slow_start", "half_open"):
            return after
        return replace(after, bulkhead=bulkheads.restarted(after.bulkhead))

    return both


def on_breaker(change: Callable[[Breaker], Breaker]) -> Change:
    return lambda state: replace(state, breaker=change(state.breaker))


def barred(state: State) -> State:
    return replace(state, disabled="its key was refused", disabled_until=None)


def enabled(state: State) -> State:
    """Somebody looked, and it answers."""
    return replace(state, disabled="", disabled_until=None)


def again(base: State, changes: Iterable[Change], mine: State) -> State:
    """What others wrote with my changes on top; my breaker where it has gone further than that."""
    for change in changes:
        base = change(base)
    return replace(base, breaker=breakers.newer(base.breaker, mine.breaker))


def _counted(found: Throttle, now: float, *, accepted: bool) -> Throttle:
    found = throttle.asked(found, now=now, draw=1.0)[0]
    return throttle.accepted(found, now=now) if accepted else found


def _settled(bucket: Bucket, ended: Ended, *, ok: bool) -> Bucket:
    bucket = buckets.settle(bucket, ended.reserved, ended.used, began=ended.began, now=ended.now, ok=ok)
    return buckets.fed(bucket, ended.limits, now=ended.now, pending=ended.pending) if ended.limits else bucket
