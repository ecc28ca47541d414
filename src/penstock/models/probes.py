"""Looking whether a provider is back: cheaply, every few seconds, apart from what users wait for.

One process at a time looks at one provider. A probe that succeeds lets one real call in, and that
call decides. Nobody is looked at while nobody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from penstock.models.base import ModelError
from penstock.models.clocks import Clock
from penstock.models.errors import UNWELL
from penstock.models.members import Member
from penstock.models.shared import Shared
from penstock.models.state import Change, on_breaker
from penstock.policy import breaker

WITHIN: Final = 2.0
"""Seconds that a probe may take."""

IDLE: Final = 300.0
"""Seconds after the last call in which probes still go out."""


class Probes:
    def __init__(
        self,
        members: Iterable[Member],
        shared: Shared,
        clock: Clock,
        *,
        holder: str,
        look: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self._members = members
        self._shared = shared
        self._clock = clock
        self._holder = holder
        self._look = look
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self.asked_at = float("-inf")
        """When somebody last wanted an answer."""

    def start(self) -> None:
        """Look after whoever is open, until nobody is."""
        if self._clock.now() - self.asked_at > IDLE:
            return
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="penstock-probes")

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while (due := self._next()) is not None:
            now = self._clock.now()
            if due > now:
                await self._clock.sleep(due - now)
                self._look()  # another process may have looked already
            else:
                await self._round(now)

    def _next(self) -> float | None:
        now = self._clock.now()
        if now - self.asked_at > IDLE:
            return None
        moments = [
            one.state.breaker.probe_at
            for one in self._members
            if one.state.breaker.phase == "open" and one.state.breaker.probe_at is not None
        ]
        return min(moments, default=None)

    async def _round(self, now: float) -> None:
        """One probe to each provider that is due."""
        due: dict[str, list[Member]] = {}
        for one in self._members:
            if breaker.probe_due(one.state.breaker, now=now):
                due.setdefault(one.seat.provider, []).append(one)
        mine = []
        for provider, members in due.items():
            got = self._shared.claim(f"probe:{provider}", self._holder, seconds=WITHIN + 0.5)
            for one in members:  # somebody else's probe is as good as ours
                one.apply(on_breaker(lambda found: breaker.probing(found, now=now)))
            if got:
                mine.append(self._probe(provider, members))
        self._changed()
        await asyncio.gather(*mine)

    async def _probe(self, provider: str, members: list[Member]) -> None:
        epochs = {one.name: one.state.breaker.epoch for one in members}
        ok = await self._answers(members[0])
        self._shared.release(f"probe:{provider}", self._holder)
        if not ok:
            return
        for one in members:
            if one.state.breaker.epoch == epochs[one.name]:
                one.apply(_found_well(epochs[one.name]))
        self._changed()

    async def _answers(self, member: Member) -> bool:
        if member.provider is None:
            return False
        try:
            await member.provider.probe(within=WITHIN)
        except ModelError as error:
            return error.fault.kind not in UNWELL and error.fault.kind != "rate_limited"
        return True


def _found_well(epoch: int) -> Change:
    return on_breaker(lambda found: breaker.probed(found, ok=True) if found.epoch == epoch else found)
