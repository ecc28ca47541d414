"""What was heard of a run that goes on in this process: how its steps ended, as far as that is durable.

An event is told when the journal has it. So what is kept here may be shown, and need not be read
from the store again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.gateway.ports import Live
from penstock.run.events import Event, TaskCompleted, TaskFailed, TaskSkipped
from penstock.run.state import SUCCEEDED, Run

ENDS: Final = (TaskCompleted, TaskFailed, TaskSkipped)

PATIENCE: Final = 2.0
"""Seconds that a store may take to have written what has happened; the rest is shown the next time."""


class Hearing:
    """Listens to one run from now on."""

    def __init__(self, live: Live) -> None:
        self.state: Run = live.state
        self.since = live.state.seq
        """What came before was not heard."""
        self.last = self.since
        """The last event that was told."""
        self.nothing_before = not any(phase >= SUCCEEDED for phase in live.state.phase)
        """No step had ended by then."""
        self._moved = asyncio.Event()
        self._ends: list[Event] = []
        live.observe(self._hear)

    def _hear(self, event: Event) -> None:
        self.last = max(self.last, event.seq)
        if isinstance(event, ENDS):
            self._ends.append(event)
        self._moved.set()

    async def moved(self) -> None:
        """Until something more has happened."""
        self._moved.clear()
        await self._moved.wait()

    async def caught_up(self) -> bool:
        """Wait until all that the run has decided is durable. False: that takes too long."""
        if self.last >= self.state.seq:
            return True
        try:
            async with asyncio.timeout(PATIENCE):
                while self.last < self.state.seq:
                    await self.moved()
        except TimeoutError:
            return False
        return True

    def ends(self, after: int) -> Sequence[Event]:
        """How steps ended after an event; what came before it is forgotten."""
        self._ends = [event for event in self._ends if event.seq > after]
        return tuple(self._ends)
