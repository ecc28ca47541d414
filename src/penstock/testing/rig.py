"""A Penstock to experiment on: virtual time, ids of your choosing, and a journal that keeps batches apart.

Make it inside a loop of `clock`; two runs of the same program then write the same events,
times included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from penstock.app import Penstock, RunHandle
from penstock.engines.base import Result
from penstock.ids import RunId, StepId
from penstock.run.events import Event
from penstock.run.replay import replay
from penstock.run.state import Run
from penstock.settings import Settings
from penstock.steps.found import Flow
from penstock.store.base import NewRun
from penstock.store.memory import MemoryJournal, MemoryStore
from penstock.tools.base import Tool
from penstock.workflow.graph import compile_graph
from penstock.workflow.inputs import check_inputs

EPOCH = 1_750_000_000.0
"""When virtual time begins, for events: some day in 2025."""


class BatchJournal(MemoryJournal):
    """A journal that also remembers what was written together."""

    __slots__ = ("batches",)

    def __init__(self, new: NewRun, events: Sequence[Event] = ()) -> None:
        super().__init__(new, events)
        self.batches: list[Sequence[Event]] = [tuple(events)] if events else []

    def append(self, events: Sequence[Event]) -> None:
        super().append(events)
        self.batches.append(tuple(events))


class BatchStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.journals: dict[RunId, BatchJournal] = {}

    def journal(self, new: NewRun, history: Sequence[Event]) -> BatchJournal:
        self.journals[new.run] = BatchJournal(new, history)
        return self.journals[new.run]


class Rig:
    """Use it as `async with Rig() as rig`."""

    def __init__(self, *tools: Tool | Callable[..., Any]) -> None:
        loop = asyncio.get_running_loop()
        self.penstock = Penstock(Settings(store="memory:"), tools=tools)
        self.store = BatchStore()
        self.penstock.store = self.penstock.engine.store = self.store
        self.penstock.engine.wall = lambda: EPOCH + loop.time()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.penstock.engine.close()

    async def start(
        self,
        flow: Flow,
        inputs: Mapping[str, Any] | None = None,
        *,
        id: str = "run",
        durations: Mapping[str, float] | None = None,
    ) -> RunHandle:
        """Start a run of this id. Nothing of it has been carried out yet when this returns."""
        prepared = self.penstock.prepare(flow)
        if durations:
            known = {StepId(step): seconds for step, seconds in durations.items()}
            prepared = replace(prepared, durations=known)
        checked = check_inputs(prepared.graph.workflow, inputs or {})
        return RunHandle(await self.penstock.engine.start(prepared, checked, run=RunId(id)), self.penstock)

    async def run(self, flow: Flow, inputs: Mapping[str, Any] | None = None, *, id: str = "run") -> Result:
        """Run it to its end."""
        return await (await self.start(flow, inputs, id=id)).result()

    def batches(self, id: str = "run") -> list[Sequence[Event]]:
        return self.store.journals[RunId(id)].batches

    def events(self, id: str = "run") -> list[Event]:
        return [event for batch in self.batches(id) for event in batch]

    def replayed(self, id: str = "run", *, until: int | None = None) -> Run:
        """The run made again from its events."""
        graph = compile_graph(self.store.journals[RunId(id)].new.workflow)
        return replay(RunId(id), graph, self.events(id), until=until)
