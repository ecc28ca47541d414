"""The router: whoever may answer a call, in the order that suits it, until somebody does.

A call asks for a tier, or pins a model. What it gets says who answered, whether that was what was
asked for, after how many attempts and at what cost. A pinned model is never replaced by another, and
failing over never costs more than the tier that was asked for. Each call ends in an answer or in an
error that says when to come back, and its listener hears of it once.
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

from penstock.models.asking import Asking
from penstock.models.base import Answer, BadOutput, Chunk, Embedding, ModelError, Provider, Request, user
from penstock.models.calls import (
    Call,
    CallRecord,
    Group,
    Shed,
    Turn,
    Unavailable,
    UnknownModel,
    accounted,
    record_of,
)
from penstock.models.clocks import BootClock, Clock
from penstock.models.desk import LAST, TRIES, Desk
from penstock.models.hedging import race
from penstock.models.members import Member
from penstock.models.prices import Prices
from penstock.models.report import ModelReport, Tested, instead, report
from penstock.models.shared import MemoryShared, Shared
from penstock.models.state import enabled
from penstock.models.tiers import Tiers
from penstock.models.views import Views, estimate, over_budget
from penstock.policy import health, shedding
from penstock.policy.shedding import Priority

Listener = Callable[[CallRecord], None]

MOST: Final = 12
"""Attempts of one call."""


class Router:
    """Use it as `async with Router(...)`, or close it at the end."""

    def __init__(
        self,
        tiers: Tiers,
        providers: Mapping[str, Provider],
        *,
        prices: Prices | None = None,
        shared: Shared | None = None,
        clock: Clock | None = None,
        listener: Listener | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.tiers = tiers
        self.clock: Clock = clock or BootClock()
        self.listener = listener
        self._prices = prices or {}
        self._holder = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._numbers = count(1)
        shared = shared or MemoryShared(self.clock)
        members = {
            name: Member(seat, providers.get(seat.provider), alone=shared.alone, holder=self._holder)
            for name, seat in tiers.seats.items()
        }
        self._desk = Desk(members, shared, self.clock, holder=self._holder, chance=chance)
        self._ask = Asking(self._desk)
        self._views = Views(tiers, providers, self._desk)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop looking after providers, and tell other processes what is known."""
        await self._desk.close()

    # --- asking ---

    async def chat(
        self,
        request: Request,
        *,
        tier: str = "",
        model: str = "",
        priority: Priority = "medium",
        lane: int | None = None,
        budget: float | None = None,
    ) -> Answer:
        """An answer, or `Unavailable`; `ModelError` where the request itself is at fault.

        `lane` is the dearest that may be used, `budget` what the call may cost in dollars.
        """
        call = self._call(
            "chat", request, tier=tier, model=model, priority=priority, lane=lane, budget=budget
        )
        try:
            while True:
                turn = await self._next(call)
                try:
                    answer = (
                        await self._hedged(call, turn) if self.tiers.hedge else await self._ask.chat(turn)
                    )
                except ModelError as error:
                    self._consider(call, error)
                else:
                    return self._answered(call, answer)
        except BaseException as error:
            self._told(call, error)
            raise

    async def stream(
        self,
        request: Request,
        *,
        tier: str = "",
        model: str = "",
        priority: Priority = "medium",
        lane: int | None = None,
        budget: float | None = None,
    ) -> AsyncGenerator[Chunk, None]:
        """The answer as it comes. Nobody else goes on with an answer that has begun and breaks off."""
        call = self._call(
            "stream", request, tier=tier, model=model, priority=priority, lane=lane, budget=budget
        )
        try:
            while True:
                turn = await self._next(call)
                begun = False
                try:
                    async with aclosing(self._ask.listen(turn)) as chunks:
                        async for chunk in chunks:
                            begun = True
                            if chunk.answer is None:
                                yield chunk
                            else:
                                yield Chunk(answer=self._answered(call, (turn, chunk.answer)))
                                return
                except ModelError as error:
                    if begun:
                        raise
                    self._consider(call, error)
        except BaseException as error:
            self._told(call, error)
            raise

    async def embed(
        self, texts: Sequence[str], *, model: str = "", priority: Priority = "medium", within: float = 60.0
    ) -> Embedding:
        """Vectors of one model. Another model's would not compare with them, and are never given instead."""
        request = Request(messages=tuple(map(user, texts)), timeout=within)
        call = self._call("embed", request, model=model, priority=priority)
        try:
            while True:
                turn = await self._next(call)
                try:
                    found = await self._ask.embed(turn, texts)
                except ModelError as error:
                    self._consider(call, error)
                else:
                    self._told(
                        call, None, Answer(served_by=found.served_by, usage=found.usage, cost=found.cost)
                    )
                    return found
        except BaseException as error:
            self._told(call, error)
            raise

    async def test(self, model: str, *, within: float = 30.0) -> Tested:
        """Ask one candidate something small, whatever is known of it. Where it answers, it is used again."""
        member = self._desk.members[self._views.of("chat", tier="", model=model, lane=None).pin]
        began, seat = self.clock.now(), member.seat
        if seat.missing or member.provider is None:
            return Tested(name=seat.name, message=seat.missing)
        request = Request(messages=(user("Reply with the word OK."),), max_tokens=16, timeout=within)
        try:
            answer = await member.provider.chat(seat.model, request)
        except ModelError as error:
            seconds, message = self.clock.now() - began, error.fault.message
            if error.fault.action == "hold" and error.fault.kind != "quota_exhausted":
                message = f"{message}; {await instead(member.provider, seat.model)}".lstrip("; ")
            return Tested(name=seat.name, seconds=seconds, kind=error.fault.kind, message=message)
        member.apply(enabled)
        self._desk.flush()
        seconds = answer.took or self.clock.now() - began
        return Tested(name=seat.name, ok=True, seconds=seconds, cost=answer.cost, label=answer.label)

    # --- looking ---

    def unknown(self, *, tier: str = "", model: str = "") -> str:
        """Why a call for this tier or model would be refused whatever it asks; empty when it would not."""
        try:
            self._views.of("chat", tier=tier, model=model, lane=None)
        except UnknownModel as error:
            return str(error)
        return ""

    def system_health(self) -> float:
        """The share of the configured capacity that is neither open nor off, 0 to 1."""
        self._look()
        now = self.clock.now()
        members = [one for one in self._desk.members.values() if one.name != self.tiers.last_resort]
        return health.system_health(
            (one.seat.concurrency, one.state.breaker.phase == "open" or bool(one.why_off(now)))
            for one in members or self._desk.members.values()
        )

    def report(self) -> list[ModelReport]:
        """How every candidate stands, for people."""
        self._look()
        return [report(one, self.tiers, now=self.clock.now()) for one in self._desk.members.values()]

    @property
    def trouble(self) -> str:
        """Why nothing is shared with other processes just now; empty when all is well."""
        return str(getattr(self._desk.shared, "trouble", ""))

    @property
    def waiting(self) -> int:
        """Calls that wait for room."""
        return self._desk.lines.waiting

    # --- a call on its way ---

    def _look(self) -> None:
        self._desk.look()

    def _call(
        self,
        operation: str,
        request: Request,
        *,
        tier: str = "",
        model: str = "",
        priority: Priority = "medium",
        lane: int | None = None,
        budget: float | None = None,
    ) -> Call:
        self._look()
        view = self._views.of(operation, tier=tier, model=model, lane=lane)
        now = self.clock.now()
        call = Call(
            f"{self._holder}-{next(self._numbers)}",
            request,
            operation=operation,
            requested=view.requested,
            view=view.groups,
            tier=view.tier,
            pin=view.pin,
            lane=view.lane,
            priority=priority,
            cost=estimate(request),
            now=now,
            at=self.clock.wall(),
        )
        if budget is not None:
            over = over_budget(view.groups, call.cost, budget, self._prices)
            call.view = _without(view.groups, over)
            call.budgeted = tuple(over.values())
        self._desk.asked(now)
        return call

    async def _next(self, call: Call) -> Turn:
        """The next candidate's turn: now, after some waiting, or never."""
        desk, now = self._desk, self.clock.now()
        if now >= call.deadline or len(call.attempts) >= MOST:
            raise self._unavailable(
                call, "its time is up" if now >= call.deadline else "it was tried often enough"
            )
        line = desk.lines.get(call.key)
        if line is None or line.idle:
            turn = desk.admit(call, last=False)
            if turn is not None:
                return turn
        if self.tiers.when_busy == "wait" or not self._has_last(call):
            turn = await self._waited(call)
            if turn is not None:
                return turn
        if call.errors and call.errors[-1].fault.action in ("other_once", "shrink"):
            raise call.errors[-1]
        turn = desk.admit(call)
        if turn is None:
            raise self._unavailable(call)
        return turn

    async def _waited(self, call: Call) -> Turn | None:
        """A turn after waiting for it. None: nobody will be there in time. `Shed`: they are, and are busy."""
        turn, shed = await self._wait(call)
        if turn is None and shed:
            turn = self._desk.admit(call, last=False)
            if turn is None and self._desk.wake_at(call) > float("-inf"):
                raise self._unavailable(call, shed, shed=True)
        return turn

    async def _wait(self, call: Call) -> tuple[Turn | None, str]:
        """A turn after waiting for it; or none, and why it was not worth it."""
        desk = self._desk
        line = desk.lines.open(call.key)
        if not desk.hopeful(call):
            return None, ""
        offered = line.offer(call, free=desk.free(call))
        if offered.verdict == "shed":
            return None, offered.reason
        if offered.verdict == "serve":
            return desk.admit(call, last=False), ""
        turn = await line.wait(call)
        return turn, "" if turn is not None else f"it waited for {call.waited:.3g} s"

    def _has_last(self, call: Call) -> bool:
        return any(tier == LAST for tier, _ in call.view)

    def _unavailable(self, call: Call, why: str = "", *, shed: bool = False) -> Unavailable:
        after = self._desk.retry_after(call)
        if shed and (line := self._desk.lines.get(call.key)) is not None:
            after = shedding.retry_after(line.queue, per_second=self._pace(call))
        kind = Shed if shed else Unavailable
        passed = (*call.passed.values(), *call.budgeted)
        error = kind(call.requested, retry_after=after, passed=passed, faults=call.faults, why=why)
        error.__cause__ = call.errors[-1] if call.errors else None
        return error

    def _pace(self, call: Call) -> float:
        """Answers a second that the candidates of a call give, when all their room is used."""
        now, pace = self.clock.now(), 0.0
        for _, group in call.view:
            for _, member in group:
                usual = health.percentiles(member.state.health, now=now)
                pace += member.in_flight / usual[0] if usual and usual[0] > 0 else 0.0
        return pace

    def _consider(self, call: Call, error: ModelError) -> None:
        """What a fault means for the call: raise it, or leave this candidate and others out and go on."""
        call.errors.append(error)
        name = f"{error.provider}/{error.model}"
        call.tries[name] = call.tries.get(name, 0) + 1
        match error.fault.action:
            case "fail":
                raise error
            case "other_once":
                if call.filtered:
                    raise error
                call.filtered = True
                call.out |= {one for one in self._desk.members if one.startswith(f"{error.provider}/")}
                call.out.add(self.tiers.last_resort)
            case "shrink":
                call.out |= self._views.no_larger(name, call.cost)
            case "wait" if call.tries[name] < TRIES:
                pass
            case _:
                call.out.add(name)

    async def _hedged(self, call: Call, turn: Turn) -> tuple[Turn, Answer]:
        usual = health.percentiles(turn.member.state.health, now=self.clock.now())
        if usual is None or call.pin:
            return await self._ask.chat(turn)

        def second() -> Any:
            other = self._desk.admit(call, last=False, beside=turn)
            return None if other is None else self._ask.chat(other)

        return await race(self._ask.chat(turn), second, after=usual[1], clock=self.clock)

    # --- telling ---

    def _answered(self, call: Call, found: tuple[Turn, Answer]) -> Answer:
        answer = accounted(*found)
        self._told(call, None, answer)
        return answer

    def _told(self, call: Call, error: BaseException | None, answer: Answer | None = None) -> None:
        if isinstance(error, ModelError | Unavailable):
            error.spent = Answer(
                requested=call.requested, attempts=len(call.attempts), usage=call.used,
                cost=call.paid or None, took=self.clock.now() - call.began,
            )  # fmt: skip
        if call.told or self.listener is None:
            return
        call.told = True
        if isinstance(error, BadOutput):
            answer = error.answer
        answer = answer or Answer(usage=call.used, cost=call.paid or None)
        record = record_of(call, error, answer, now=self.clock.now())
        with suppress(Exception):  # an observer never touches the call
            self.listener(record)


def _without(groups: tuple[Group, ...], names: Mapping[str, Any]) -> tuple[Group, ...]:
    kept = ((tier, tuple(one for one in group if one[0].name not in names)) for tier, group in groups)
    return tuple(one for one in kept if one[1])
