"""A candidate at work in this process: its state, the calls under way, and what has not been shared yet."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from penstock.models.base import Provider
from penstock.models.state import Change, State, flying, followed, why_disabled
from penstock.models.tiers import Seat
from penstock.policy import breaker, buckets, bulkhead, health
from penstock.policy.buckets import Cost, Meter
from penstock.policy.selection import Candidate, Standing

KEPT: Final = 2_000
"""Changes remembered until they are shared. Where that takes longer, the oldest are forgotten."""

CROWD: Final = 50.0
"""Calls under way at which a first byte may take twice as long as usual."""

AGAIN: Final = 1.0
"""Seconds after which the others are told again how many calls are under way, where that has not changed."""

MANY: Final = 50
STEADY: Final = 0.25
"""With so many outcomes a timeout changes slowly: it is good for this many seconds."""

CLAIM_AGAIN: Final = 0.25
"""Seconds until a slot that another process has is asked for again."""

_TRUSTED: Final = ("closed", "slow_start")


class Member:
    def __init__(self, seat: Seat, provider: Provider | None, *, alone: bool, holder: str = "") -> None:
        self.seat = seat
        self.name = seat.name
        self.provider = provider
        self.state = State(bucket=buckets.of_limits(seat.limits), bulkhead=bulkhead.of_size(seat.concurrency))
        self.in_flight = 0
        """Calls under way in this process."""
        self.pending = [0.0, 0.0, 0.0, 0.0]
        """Requests, tokens, input and output tokens of calls under way."""
        self.changes: list[Change] = []
        self.dirty = False
        self.claim_at = 0.0
        """Not before then is it worth asking for the canary's slot."""
        self._alone = alone
        self._holder = holder
        self._told = (0, float("-inf"))
        """How many calls the others know of, and since when."""
        self._usual = (0, 0.0, 0.0)
        """The timeout for the first byte: from how many outcomes, when, and what."""

    def __repr__(self) -> str:
        return f"Member({self.name!r}, {self.state.breaker.phase})"

    def apply(self, change: Change) -> None:
        change = followed(change)
        self.state = change(self.state)
        self.dirty = True
        if not self._alone:
            self.changes.append(change)
            if len(self.changes) > KEPT:
                del self.changes[: KEPT // 2]

    def adopt(self, state: State) -> None:
        """What another process says, or what was written before this one began."""
        self.state = self._configured(state)

    def tell(self, *, now: float) -> None:
        """Let the others know what is under way here, if they do not."""
        calls, since = self._told
        if calls != self.in_flight or (calls and now - since >= AGAIN):
            self._told = (self.in_flight, now)
            self.apply(flying(self._holder, self.in_flight, now=now))

    def under_way(self, now: float) -> int:
        """Calls under way, here and in other processes."""
        theirs = self.state.bulkhead.flights
        if not theirs:
            return self.in_flight
        return self.in_flight + bulkhead.elsewhere(self.state.bulkhead, self._holder, now=now)

    def room(self, now: float) -> int:
        return bulkhead.room(self.state.bulkhead, self.under_way(now))

    def _configured(self, state: State) -> State:
        """With the limits that are configured here, whatever was configured when it was written."""
        meters = dict(state.bucket.meters)
        for limit in self.seat.limits:
            meter = meters.get(limit.dimension)
            if limit.limit and (meter is None or not meter.own or meter.limit > limit.limit):
                slots = () if meter is None else meter.slots
                meters[limit.dimension] = Meter(limit=limit.limit, window=limit.window, own=True, slots=slots)
        sized = bulkhead.sized(state.bulkhead, self.seat.concurrency)
        return replace(state, bucket=replace(state.bucket, meters=meters), bulkhead=sized)

    # --- how it stands ---

    def standing(self, candidate: Candidate, cost: Cost, *, now: float, weigh: bool = True) -> Standing:
        """How it stands; without a weight where there is nobody to compare it with."""
        state, seat = self.state, self.seat
        room = self.room(now)
        return Standing(
            candidate=candidate,
            disabled=self.why_off(now),
            breaker=self.why_shut(now),
            bucket=buckets.why_not(state.bucket, cost, now=now),
            bulkhead="" if room else bulkhead.why_not(state.bulkhead, self.under_way(now)),
            score=health.score(state.health, now=now) if weigh else 1.0,
            left=min(room / seat.concurrency, buckets.remaining(state.bucket, now=now)) if weigh else 1.0,
        )

    def why_off(self, now: float) -> str:
        """Why it is not to be called at all, as things are configured; empty when it is."""
        return self.seat.missing or (why_disabled(self.state, now=now) if self.state.disabled else "")

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

    def owed(self) -> Cost:
        requests, tokens, given, taken = self.pending
        return Cost(requests=requests, tokens=tokens, input_tokens=given, output_tokens=taken)
