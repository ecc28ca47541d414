"""A candidate at work in this process: its state, the calls under way, and what has not been shared yet."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from penstock.models.base import Provider
from penstock.models.state import Change, State, why_disabled
from penstock.models.tiers import Seat
from penstock.policy import breaker, buckets, bulkhead, health
from penstock.policy.breaker import Phase
from penstock.policy.buckets import Cost, Meter
from penstock.policy.selection import Candidate, Standing

KEPT: Final = 2_000
"""Changes remembered until they are shared. Where that takes longer, the oldest are forgotten."""

CROWD: Final = 50.0
"""Calls under way at which a first byte may take twice as long as usual."""

GENTLE: Final = 10
"""Calls at once below which room is given one by one."""

MANY: Final = 50
STEADY: Final = 0.25
"""With so many outcomes a timeout changes slowly: it is good for this many seconds."""

CLAIM_AGAIN: Final = 0.25
"""Seconds until a slot that another process has is asked for again."""

_TRUSTED: Final = ("closed", "slow_start")


class Member:
    def __init__(self, seat: Seat, provider: Provider | None, *, alone: bool) -> None:
        self.seat = seat
        self.name = seat.name
        self.provider = provider
        self.state = State(bucket=buckets.of_limits(seat.limits))
        self.bulkhead = bulkhead.of_size(seat.concurrency)
        self.in_flight = 0
        self.pending = [0.0, 0.0, 0.0, 0.0]
        """Requests, tokens, input and output tokens of calls under way."""
        self.changes: list[Change] = []
        self.dirty = False
        self.claim_at = 0.0
        """Not before then is it worth asking for the canary's slot."""
        self._grown_at = float("-inf")
        self._alone = alone
        self._usual = (0, 0.0, 0.0)
        """The timeout for the first byte: from how many outcomes, when, and what."""

    def __repr__(self) -> str:
        return f"Member({self.name!r}, {self.state.breaker.phase})"

    def apply(self, change: Change) -> None:
        before = self.state.breaker.phase
        self.state = change(self.state)
        self._follow(before)
        self.dirty = True
        if not self._alone:
            self.changes.append(change)
            if len(self.changes) > KEPT:
                del self.changes[: KEPT // 2]

    def adopt(self, state: State) -> None:
        """What another process says, or what was written before this one began."""
        before = self.state.breaker.phase
        self.state = self._configured(state)
        self._follow(before)

    def _configured(self, state: State) -> State:
        """With the limits that are configured here, whatever was configured when it was written."""
        meters = dict(state.bucket.meters)
        for limit in self.seat.limits:
            meter = meters.get(limit.dimension)
            if limit.limit and (meter is None or not meter.own or meter.limit > limit.limit):
                slots = () if meter is None else meter.slots
                meters[limit.dimension] = Meter(limit=limit.limit, window=limit.window, own=True, slots=slots)
        return state if not self.seat.limits else replace(state, bucket=replace(state.bucket, meters=meters))

    def _follow(self, before: Phase) -> None:
        after = self.state.breaker.phase
        if after != before and after in ("slow_start", "half_open"):
            self.bulkhead = bulkhead.restarted(self.bulkhead)

    # --- how it stands ---

    def standing(self, candidate: Candidate, cost: Cost, *, now: float, weigh: bool = True) -> Standing:
        """How it stands; without a weight where there is nobody to compare it with."""
        state, seat = self.state, self.seat
        room = bulkhead.room(self.bulkhead, self.in_flight)
        return Standing(
            candidate=candidate,
            disabled=seat.missing or (why_disabled(state, now=now) if state.disabled else ""),
            breaker=self.why_shut(now),
            bucket=buckets.why_not(state.bucket, cost, now=now),
            bulkhead="" if room else bulkhead.why_not(self.bulkhead, self.in_flight),
            score=health.score(state.health, now=now) if weigh else 1.0,
            left=min(room / seat.concurrency, buckets.remaining(state.bucket, now=now)) if weigh else 1.0,
        )

    def why_shut(self, now: float) -> str:
        if self.state.breaker.phase in _TRUSTED:
            return ""
        if now < self.claim_at:
            return "half open, and another process has its one slot"
        return breaker.why_not(self.state.breaker, now=now)

    def first_byte(self, *, now: float) -> float:
        """Seconds to wait for the first byte: longer while many calls are under way, here and there."""
        least, most = self.seat.first_byte
        found, at, usual = self._usual
        outcomes = self.state.health.outcomes
        if len(outcomes) < MANY or found < MANY or not at <= now < at + STEADY:
            usual = health.first_byte_timeout(self.state.health, now=now, least=least, most=most)
            self._usual = (len(outcomes), now, usual)
        return min(most, usual * (1.0 + self.in_flight / CROWD))

    def free_at(self, cost: Cost, *, now: float) -> float:
        """When it may be worth asking; infinity where it never is."""
        state = self.state
        if self.seat.missing or (state.disabled and state.disabled_until is None):
            return float("inf")
        moments = [now, breaker.free_at(state.breaker, now=now), buckets.free_at(state.bucket, cost, now=now)]
        if why_disabled(state, now=now) and state.disabled_until is not None:
            moments.append(state.disabled_until)
        return max(moments)

    # --- calls under way ---

    def begin(self, cost: Cost) -> None:
        self.in_flight += 1
        self._account(cost, 1.0)

    def end(self, cost: Cost) -> None:
        self.in_flight -= 1
        self._account(cost, -1.0)

    def _account(self, cost: Cost, sign: float) -> None:
        pending = self.pending
        pending[0] += sign * cost.requests
        pending[1] += sign * cost.tokens
        pending[2] += sign * cost.input_tokens
        pending[3] += sign * cost.output_tokens

    def went_well(self, *, began: float, now: float) -> None:
        """A call that has just ended succeeded: there may be room for one more.

        While there is little room, one more in the time of one call: several answers that arrive
        together prove no more than one of them does.
        """
        flights, before = self.in_flight + 1, self.bulkhead.limit
        if before < GENTLE and began < self._grown_at:
            flights = min(flights, int(before) - 1)
        self.bulkhead = bulkhead.succeeded(self.bulkhead, in_flight=flights, now=now)
        if self.bulkhead.limit > before:
            self._grown_at = now

    def owed(self) -> Cost:
        requests, tokens, given, taken = self.pending
        return Cost(requests=requests, tokens=tokens, input_tokens=given, output_tokens=taken)
