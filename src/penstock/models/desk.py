"""Who is let in, and what every outcome means for those who come after.

All decisions are the policies'; here they are asked in the right order, for all candidates of a
process, and their answers are kept, shared and acted upon. Nothing here awaits a provider.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.models import state as states
from penstock.models.base import ModelError, Usage
from penstock.models.calls import Attempt, Call, Turn
from penstock.models.clocks import Clock
from penstock.models.errors import Fault
from penstock.models.headers import Hints
from penstock.models.lines import Lines
from penstock.models.members import CLAIM_AGAIN, Member
from penstock.models.probes import Probes
from penstock.models.shared import Dirty, Shared
from penstock.policy import breaker, throttle
from penstock.policy.breaker import Ticket
from penstock.policy.buckets import Cost
from penstock.policy.selection import Candidate, Passed, Standing, obstacle, select
from penstock.policy.shedding import PATIENCE

BEAT: Final = 0.25
"""Seconds until other processes are told what is not urgent."""

TRIES: Final = 3
"""How often one call may be refused by the same candidate for its rate."""

LAST: Final = 1_000_000
"""The tier of the last resort."""

BACKUP: Final = LAST - 1
"""The tier of the models behind all tiers."""

_TRUSTED: Final = ("closed", "slow_start")


class Desk:
    def __init__(
        self,
        members: dict[str, Member],
        shared: Shared,
        clock: Clock,
        *,
        holder: str,
        chance: Callable[[], float],
    ) -> None:
        self.members = members
        self.holder = holder
        """This process, among those that share."""
        self.clock = clock
        self.lines = Lines(clock, self)
        self.shared = shared
        self.probes = Probes(
            members.values(), shared, clock, holder=holder, look=self.look, changed=self._changed
        )
        self._keys = {one.seat.key: one for one in members.values()}
        self._strangers: dict[str, states.State] = {}
        """What others have found out about candidates that nobody has asked for here."""
        self._chance = chance
        self._beat: asyncio.TimerHandle | None = None

    def add(self, member: Member) -> None:
        self.members[member.name] = member
        self._keys[member.seat.key] = member
        known = self._strangers.pop(member.seat.key, None)
        if known is not None:
            member.adopt(known)

    def asked(self, now: float) -> None:
        """Somebody wants an answer: look after those that are down."""
        self.probes.asked_at = now
        if any(one.state.breaker.phase == "open" for one in self.members.values()):
            self.probes.start()

    # --- letting in ---

    def admit(self, call: Call, *, last: bool = True, beside: Turn | None = None) -> Turn | None:
        """A turn with the first candidate that may be called; otherwise `call.passed` says why not.

        Without `last`, the last resort is left out. `beside` another turn, it is of the same tier.
        """
        now = self.clock.now()
        call.passed.clear()
        for tier, group in call.view:
            if (tier == LAST and not last) or (beside is not None and tier != beside.candidate.tier):
                continue
            standings = [
                member.standing(candidate, call.cost, now=now, weigh=len(group) > 1)
                for candidate, member in group
                if member.name not in call.out and (beside is None or member is not beside.member)
            ]
            if not standings:
                continue
            draws = (self._chance(), self._chance()) if len(standings) > 1 else (0.0, 0.0)
            chosen = select(standings, draws=draws, tier=call.tier, allowed=call.lane, pin=call.pin)
            for passed in chosen.passed:
                call.passed[passed.name] = passed
            for name in chosen.chain:
                candidate = _candidate(standings, name)
                turn = self._enter(call, candidate, self.members[name], now)
                if turn is not None:
                    return turn
        return None

    def enter(self, call: Call) -> Turn | None:
        """For those who wait: the last resort is not what they wait for."""
        return self.admit(call, last=False)

    def _enter(self, call: Call, candidate: Candidate, member: Member, now: float) -> Turn | None:
        trusted = member.state.breaker.phase in _TRUSTED
        if trusted and throttle.chance(member.state.throttle, now=now) > self._chance():
            member.apply(states.turned_away(now=now))
            call.passed[member.name] = Passed(member.name, "throttle", "it refuses most of what it is asked")
            return None
        if trusted:
            ticket = Ticket(call.id, member.state.breaker.epoch)
        else:
            canary = self._canary(call, member, now)
            if canary is None:
                why = member.why_shut(now) or "half open, and its one slot is taken"
                call.passed[member.name] = Passed(member.name, "breaker", why)
                return None
            ticket = canary
        member.apply(states.asked(call.cost, now=now))
        member.begin(call.cost)
        self._later()
        return Turn(call, candidate, member, ticket, reserved=call.cost, now=now)

    def _canary(self, call: Call, member: Member, now: float) -> Ticket | None:
        """The one slot of a breaker that is not closed: of all processes, one gets it."""
        lease = min(breaker.LEASE, max(1.0, call.deadline - now + 1.0))
        if not self.shared.claim(f"canary:{member.name}", call.id, seconds=lease):
            member.claim_at = now + CLAIM_AGAIN
            return None
        self.look()  # the others may have found out more meanwhile
        found, ticket = breaker.enter(member.state.breaker, call.id, now=now, lease=lease)
        if ticket is None or not ticket.canary:
            self.shared.release(f"canary:{member.name}", call.id)
            return ticket
        epoch = member.state.breaker.epoch
        member.apply(states.on_breaker(lambda one: found if one.epoch == epoch else one))
        self.flush()
        return ticket

    def others(self, turn: Turn) -> bool:
        """Whether another model could take over. The last resort is none: it is worth waiting for a model."""
        call, now = turn.call, self.clock.now()
        for tier, group in call.view:
            for candidate, member in group:
                if tier == LAST or member is turn.member or _barred(call, candidate):
                    continue
                if not (member.seat.missing or member.why_shut(now) or member.state.disabled):
                    return True
        return False

    def hopeful(self, call: Call) -> bool:
        """Whether waiting may be worth it: somebody who may answer is there, or will be in time."""
        now = self.clock.now()
        call.passed.clear()
        for tier, group in call.view:
            for candidate, member in group:
                if tier == LAST or candidate.name in call.out:
                    continue
                standing = member.standing(candidate, call.cost, now=now, weigh=False)
                passed = obstacle(standing, tier=call.tier, lane=call.lane, pin=call.pin)
                if passed is None:
                    return True
                call.passed[candidate.name] = passed
        return self.wake_at(call) > float("-inf")

    def free(self, call: Call) -> int:
        """Calls like this one that could start now."""
        now, room = self.clock.now(), 0
        for tier, group in call.view:
            for candidate, member in group:
                if tier == LAST or _barred(call, candidate):
                    continue
                standing = member.standing(candidate, call.cost, now=now, weigh=False)
                if not (standing.disabled or standing.breaker or standing.bucket):
                    room += member.room(now)
        return room

    def wake_at(self, call: Call) -> float:
        """When a call that waits should look again by itself; infinity where others will tell it.

        None of the candidates comes free in time: minus infinity.
        """
        now, moments = self.clock.now(), [float("-inf")]
        for name, passed in call.passed.items():
            member = self.members[name]
            if passed.obstacle == "bulkhead":
                theirs = member.under_way(now) > member.in_flight
                moments.append(now + CLAIM_AGAIN if theirs else float("inf"))
            elif passed.obstacle == "breaker" and member.state.breaker.phase == "half_open":
                moments.append(now + CLAIM_AGAIN)
            elif passed.obstacle == "bucket":
                at = member.free_at(call.cost, now=now)
                moments.append(at if at < min(call.deadline, now + PATIENCE) else float("-inf"))
        some = [moment for moment in moments if moment > float("-inf")]
        return min(some, default=float("-inf"))

    def retry_after(self, call: Call, *, least: float = 0.5) -> float:
        """Seconds until it may be worth asking again; infinity where it never is."""
        now = self.clock.now()
        moments = [
            member.free_at(call.cost, now=now)
            for _, group in call.view
            for candidate, member in group
            if call.lane is None or candidate.lane <= call.lane
        ]
        return max(least, min(moments, default=float("inf")) - now)

    # --- letting go ---

    def succeeded(
        self, turn: Turn, *, usage: Usage, hints: Hints | None, took: float, first_byte: float
    ) -> None:
        ended = self._ended(turn, _used(usage, turn.reserved), hints)
        member = turn.member
        seconds = took or ended.now - turn.began
        self._apply(turn, states.succeeded(ended, seconds=seconds, first_byte=first_byte))
        turn.call.attempts.append(Attempt(name=member.name, seconds=ended.now - turn.began))

    def failed(self, turn: Turn, error: ModelError) -> None:
        fault, hints, member = error.fault, error.hints, turn.member
        used = Cost()
        if error.spent is not None:
            used = _used(error.spent.usage, turn.reserved)
            turn.call.pay(error.spent)
        ended = self._ended(turn, used, hints)
        crowded = fault.kind == "overloaded" and member.in_flight > 0
        if fault.kind == "overloaded" or _too_many(hints):
            member.apply(states.overfull(ended))
        hint = fault.retry_after
        if hint is None and hints is not None and hints.soon:
            hint = states.SOON
        if _cut_short(turn, error, ended.now, member):
            change = states.released(ended)
        else:
            change = states.failed(ended, fault, hint=hint, crowded=crowded, draw=self._chance())
        self._apply(turn, change)
        if fault.kind == "auth":
            self._refuse_key(member, fault)
        turn.call.attempts.append(
            Attempt(name=member.name, seconds=ended.now - turn.began, kind=fault.kind, message=fault.message)
        )

    def released(self, turn: Turn) -> None:
        """Cancelled, or not needed any more: says nothing about anyone."""
        if turn.over:
            return
        ended = self._ended(turn, Cost(), None)
        self._apply(turn, states.released(ended))
        turn.call.attempts.append(
            Attempt(name=turn.member.name, seconds=ended.now - turn.began, abandoned=True)
        )

    def _ended(self, turn: Turn, used: Cost, hints: Hints | None) -> states.Ended:
        turn.over = True
        member, now = turn.member, self.clock.now()
        flights = member.under_way(now)
        member.end(turn.reserved)
        return states.Ended(
            ticket=turn.ticket,
            reserved=turn.reserved,
            used=used,
            pending=member.owed(),
            flights=flights,
            limits=() if hints is None else hints.limits,
            began=turn.began,
            now=now,
        )

    def _apply(self, turn: Turn, change: states.Change) -> None:
        member = turn.member
        before, closed = member.state.breaker, member.state.bucket.closed_until
        member.apply(change)
        after = member.state.breaker
        if turn.ticket.canary:
            self.shared.release(f"canary:{member.name}", turn.call.id)
        if after.epoch != before.epoch or member.state.bucket.closed_until != closed or member.state.disabled:
            if after.phase == "open" and after.epoch != before.epoch:
                self._opened()
            elif after.phase == "slow_start" and before.phase == "half_open":
                self._hasten(member)
            self.flush()
        else:
            self._later()
        self.lines.drain()

    def _opened(self) -> None:
        """One has just opened: whoever shares its infrastructure is to show that it is well."""
        found = {name: one.state.breaker for name, one in self.members.items()}
        domains = {name: one.seat.domain or one.seat.provider for name, one in self.members.items()}
        for name in breaker.suspects(found, domains):
            self.members[name].apply(states.on_breaker(breaker.doubted))
        self.probes.start()

    def _hasten(self, back: Member) -> None:
        now, domain = self.clock.now(), back.seat.domain or back.seat.provider
        for one in self.members.values():
            if one is not back and (one.seat.domain or one.seat.provider) == domain:
                one.apply(states.on_breaker(lambda found: breaker.hastened(found, now=now)))

    def _refuse_key(self, member: Member, fault: Fault) -> None:
        """A key is the provider's, not the model's. One model may be refused alone: that is a 403."""
        if fault.status == 401:
            for one in self.members.values():
                if one is not member and one.seat.provider == member.seat.provider:
                    one.apply(states.barred)
            self.flush()

    # --- with other processes ---

    def look(self) -> None:
        """What the others have found out."""
        found = self.shared.pull()
        if not found:
            return
        for key, theirs in found.items():
            member = self._keys.get(key)
            if member is None:
                self._strangers[key] = theirs
            else:
                member.adopt(states.again(theirs, member.changes, member.state))
        self._changed()

    def flush(self) -> None:
        """Tell the others, now."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        if not self.shared.alone:
            now = self.clock.now()
            for one in self.members.values():
                one.tell(now=now)
        dirty = {one.seat.key: Dirty(one.state, one.changes) for one in self.members.values() if one.dirty}
        if not dirty:
            return
        written = self.shared.push(dirty)
        if written is None:
            self._later()
            return
        for key, state in written.items():
            member = self._keys[key]
            member.changes = []
            member.dirty = False
            if state is not member.state:
                member.adopt(state)

    def _later(self) -> None:
        if self._beat is None and not self.shared.alone:
            self._beat = asyncio.get_running_loop().call_later(BEAT, self.flush_later)

    def flush_later(self) -> None:
        self._beat = None
        self.flush()
        if any(one.in_flight for one in self.members.values()):
            self._later()  # those who fall silent are taken to have none

    def _changed(self) -> None:
        """Someone's breaker may have moved by another hand than a call's."""
        if any(one.state.breaker.phase == "open" for one in self.members.values()):
            self.probes.start()
        self.flush()
        self.lines.drain()

    async def close(self) -> None:
        await self.probes.close()
        self.flush()
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        self.shared.close()


def _barred(call: Call, candidate: Candidate) -> bool:
    """Whether this call is done with it, or may not pay for it."""
    return candidate.name in call.out or (call.lane is not None and candidate.lane > call.lane)


def _candidate(standings: list[Standing], name: str) -> Candidate:
    return next(one.candidate for one in standings if one.candidate.name == name)


def _used(usage: Usage, reserved: Cost) -> Cost:
    return Cost(
        requests=reserved.requests,
        tokens=float(usage.input + usage.output),
        input_tokens=float(usage.input),
        output_tokens=float(usage.output),
    )


def _too_many(hints: Hints | None) -> bool:
    """Refused for the number of calls at once."""
    return hints is not None and any(
        one.dimension == "concurrent" and one.remaining == 0 for one in hints.limits
    )


def _cut_short(turn: Turn, error: ModelError, now: float, member: Member) -> bool:
    """Whether a timeout is the caller's and not the provider's.

    It is where the answer had begun and the caller's time was up, or where there was never enough time.
    """
    if error.fault.kind != "timeout":
        return False
    if error.partial and now - turn.began >= turn.given - 0.05:
        return True
    return turn.given < min(1.0, member.first_byte(now=now))
