"""One call's story: what was asked, who was tried, what came of it; and how it is told to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import PenstockError, UpstreamUnavailable
from penstock.models.base import Answer, ModelError, Request, Usage
from penstock.models.errors import NAME_ANOTHER, Fault, FaultKind
from penstock.models.members import Member
from penstock.policy.breaker import Ticket
from penstock.policy.buckets import Cost
from penstock.policy.selection import Candidate, Passed
from penstock.policy.shedding import Priority


class Unavailable(UpstreamUnavailable):
    """Nobody can answer now. Ask again after `retry_after` seconds; `passed` and `faults` say why."""

    def __init__(
        self,
        requested: str,
        *,
        retry_after: float,
        passed: Sequence[Passed] = (),
        faults: Sequence[tuple[str, Fault]] = (),
        why: str = "",
    ) -> None:
        told = {name: _reason(fault) for name, fault in faults}
        told |= {one.name: one.reason for one in passed if one.name not in told and one.obstacle != "pin"}
        reasons = "; ".join(f"{name}: {reason}" for name, reason in told.items())
        figure = f"{retry_after:.3g}" if retry_after < 100 else f"{retry_after:.0f}"
        again = f"; ask again in {figure} s" if retry_after < float("inf") else ""
        what = f"no model can answer {requested!r} now"
        super().__init__(
            f"{what}: {'; '.join(filter(None, (why, reasons)))}{again}" if why or reasons else what,
            retry_after=retry_after,
        )
        self.requested = requested
        self.passed = tuple(passed)
        self.faults = tuple(faults)
        self.spent: Answer | None = None
        """What the attempts took and cost that came to nothing."""


def _reason(fault: Fault) -> str:
    said = f"{fault.kind.replace('_', ' ')}: {fault.message}".rstrip(": ")
    return f"{said} ({NAME_ANOTHER})" if fault.kind == "not_found" else said


class Shed(Unavailable):
    """There was more to do than room to do it, and this call was turned away."""


class UnknownModel(PenstockError):
    """The call names a model or a tier that is not configured."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what + (f" ({hint})" if hint else ""))
        self.hint = hint


class Attempt(Struct, frozen=True, kw_only=True):
    """One candidate that was asked."""

    name: str
    seconds: float
    kind: FaultKind | None = None
    """What went wrong; None when nothing did."""
    message: str = ""
    abandoned: bool = False
    """Another one was quicker, or nobody wanted to know any more."""


class CallRecord(Struct, frozen=True, kw_only=True):
    """A call from beginning to end, for the journal."""

    call: str
    at: float
    """When it began, by the wall clock."""
    operation: str
    requested: str
    priority: Priority
    served_by: str = ""
    model: str = ""
    label: str = ""
    degraded: bool = False
    attempts: tuple[Attempt, ...] = ()
    usage: Usage = Usage()
    cost: float | None = None
    waited: float = 0.0
    """Seconds in the queue."""
    took: float = 0.0
    first_byte: float = 0.0
    repaired: bool = False
    error: str = ""
    passed: tuple[Passed, ...] = ()
    """Who was not asked, and why: where that explains the outcome."""

    def plain(self) -> dict[str, Any]:
        """As the `call` of a `model_call` event."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


Group = tuple[int, tuple[tuple[Candidate, Member], ...]]
"""A tier, and who is in it."""


class Call:
    """A call on its way through the router."""

    __slots__ = (
        "at", "attempts", "began", "budgeted", "cost", "deadline", "errors", "filtered", "id", "key",
        "lane", "operation", "out", "paid", "passed", "pin", "priority", "request", "requested", "tier",
        "told", "tries", "used", "view", "waited",
    )  # fmt: skip

    def __init__(
        self,
        id: str,
        request: Request,
        *,
        operation: str,
        requested: str,
        view: Sequence[Group],
        tier: int,
        pin: str,
        lane: int | None,
        priority: Priority,
        cost: Cost,
        now: float,
        at: float,
    ) -> None:
        self.id = id
        self.request = request
        self.operation = operation
        self.requested = requested
        self.view = view
        self.tier = tier
        self.pin = pin
        self.lane = lane
        self.priority = priority
        self.cost = cost
        self.began = now
        self.at = at
        self.deadline = now + request.timeout
        self.key = (tier, pin, lane, operation)
        """Calls of one key wait in one line."""
        self.attempts: list[Attempt] = []
        self.errors: list[ModelError] = []
        self.passed: dict[str, Passed] = {}
        self.out: set[str] = set()
        """Candidates that this call is done with."""
        self.tries: dict[str, int] = {}
        self.filtered = False
        self.paid: float = 0.0
        """Dollars that went into attempts that came to nothing."""
        self.used = Usage()
        """Tokens that did."""
        self.waited = 0.0
        self.budgeted: tuple[Passed, ...] = ()
        """Candidates that would cost more than the call may."""
        self.told = False

    def pay(self, spent: Answer) -> None:
        """Count what came to nothing and has to be paid for all the same."""
        self.paid += spent.cost or 0.0
        self.used += spent.usage

    @property
    def choosy(self) -> bool:
        """Whether others that wait beside it may go where it may not."""
        return bool(self.out or self.budgeted)

    @property
    def faults(self) -> list[tuple[str, Fault]]:
        return [
            (f"{one.provider}/{one.model}" if one.model else one.provider, one.fault) for one in self.errors
        ]


class Turn:
    """One attempt that was let in."""

    __slots__ = ("began", "call", "candidate", "given", "member", "over", "reserved", "ticket")

    def __init__(
        self, call: Call, candidate: Candidate, member: Member, ticket: Ticket, *, reserved: Cost, now: float
    ) -> None:
        self.call = call
        self.candidate = candidate
        self.member = member
        self.ticket = ticket
        self.reserved = reserved
        self.began = now
        self.given = call.deadline - now
        """Seconds it may take."""
        self.over = False

    @property
    def degraded(self) -> bool:
        return self.candidate.tier > self.call.tier and not self.call.pin


def accounted(turn: Turn, answer: Answer) -> Answer:
    """The answer as its caller gets it: what was asked for, and all that it took."""
    call = turn.call
    return replace(
        answer,
        requested=call.requested,
        degraded=turn.degraded,
        attempts=len(call.attempts),
        usage=answer.usage + call.used,
        cost=None if answer.cost is None else answer.cost + call.paid,
    )


def record_of(call: Call, error: BaseException | None, answer: Answer, *, now: float) -> CallRecord:
    """The story of a call that is over."""
    return CallRecord(
        call=call.id,
        at=call.at,
        operation=call.operation,
        requested=call.requested,
        priority=call.priority,
        served_by=answer.served_by,
        model=answer.model,
        label=answer.label,
        degraded=answer.degraded,
        attempts=tuple(call.attempts),
        usage=answer.usage,
        cost=answer.cost,
        waited=call.waited,
        took=now - call.began,
        first_byte=answer.first_byte,
        repaired=answer.repaired,
        error="" if error is None else str(error) or type(error).__name__,
        passed=tuple(call.passed.values()) if error is not None or answer.degraded else (),
    )
