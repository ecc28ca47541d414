"""What the steps of a run gave, as much of it as a conversation can take."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from penstock.errors import PenstockError
from penstock.gateway.hearing import PATIENCE
from penstock.ids import StepId
from penstock.run.events import Event, TaskCompleted, TaskFailed, TaskSkipped
from penstock.run.state import Run
from penstock.store.base import Store

LARGEST = 4_000
"""Characters of a result that is shown whole; of a larger one its beginning, and how to fetch it."""

BEGINNING = 400

PAGE = 16_000
"""Characters of one page of a large result."""


class Results:
    def __init__(self, store: Store, run: Run) -> None:
        self._store = store
        self._run = run

    async def since(self, seq: int) -> tuple[dict[str, Any], int]:
        """How steps ended after event `seq`, and the number to ask from the next time."""
        past = await self._past(seq)
        return await self.shown(past), past[-1].seq if past else seq

    async def shown(self, events: Sequence[Event]) -> dict[str, Any]:
        """How steps ended, by these events."""
        ended: dict[str, Any] = {}
        for event in events:
            if isinstance(event, TaskCompleted) and event.item is None:
                mapped = event.output is UNSET and not event.ref
                whole = await self._items(event.step) if mapped else await self._output(event)
                ended[event.step] = self._shown(event.step, whole)
            elif isinstance(event, TaskFailed) and event.item is None and event.retry_in is None:
                ended[event.step] = {"error": event.error}
            elif isinstance(event, TaskSkipped):
                ended[event.step] = {"skipped": event.reason}
        return ended

    async def _past(self, seq: int) -> Sequence[Event]:
        """Every event after `seq` that the run has had; what is still being written is waited for."""
        last = self._run.seq
        until = time.monotonic() + PATIENCE
        while True:
            events = await self._store.load(self._run.id, after=seq)
            if (events[-1].seq if events else seq) >= last or time.monotonic() > until:
                return events
            await asyncio.sleep(0.001)

    async def fetched(self, name: str, offset: int) -> dict[str, Any]:
        """A page of a large result: `step`, or `step[item]`."""
        found = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", name)
        step = StepId(found[1]) if found else StepId("")
        if found is None or step not in self._run.graph.index:
            raise PenstockError(f"there is no result {name!r}; name a step, or step[item]")
        whole = await self._whole(step)
        if found[2] is not None:
            if not isinstance(whole, list) or int(found[2]) >= len(whole):
                raise PenstockError(f"{step} has no item {found[2]}")
            whole = whole[int(found[2])]
        text = whole if isinstance(whole, str) else msgspec.json.encode(whole).decode()
        page = text[offset : offset + PAGE]
        more = offset + PAGE if offset + PAGE < len(text) else None
        return {"status": "complete", "fetch": name, "text": page, "characters": len(text), "next": more}

    async def _whole(self, step: StepId) -> Any:
        last = None
        for event in await self._store.load(self._run.id):
            if isinstance(event, TaskCompleted) and event.step == step and event.item is None:
                last = event
        if last is None:
            raise PenstockError(f"{step} has given nothing")
        if last.output is UNSET and not last.ref:
            return await self._items(step)
        return await self._output(last)

    async def _items(self, step: StepId) -> list[Any]:
        """The results of a map's last iteration, in order."""
        found: dict[int, tuple[int, TaskCompleted]] = {}
        for event in await self._store.load(self._run.id):
            if isinstance(event, TaskCompleted) and event.step == step and event.item is not None:
                before = found.get(event.item)
                if before is None or before[0] <= event.iteration:
                    found[event.item] = (event.iteration, event)
        latest = max((iteration for iteration, _ in found.values()), default=1)
        return [
            await self._output(event)
            for _, (iteration, event) in sorted(found.items())
            if iteration == latest
        ]

    async def _output(self, event: TaskCompleted) -> Any:
        return await self._store.output(self._run.id, event.seq) if event.ref else event.output

    def _shown(self, step: StepId, output: Any) -> Any:
        text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
        if len(text) <= LARGEST:
            return output
        return {"beginning": text[:BEGINNING], "characters": len(text), "fetch": step}
