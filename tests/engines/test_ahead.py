"""What only reads is under way while the store is told of a new run, and nobody is told of it yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import penstock as ps
from penstock.engines.drive import Drive
from penstock.engines.growth import Lately
from penstock.engines.native import NativeEngine
from penstock.errors import Conflict, StoreError, UnknownRun
from penstock.ids import RunId
from penstock.run.events import Event, TaskCompleted, WorkflowCompleted
from penstock.steps.base import Prepared
from penstock.store.base import NewRun
from penstock.store.sqlite.journal import SqliteJournal
from penstock.store.sqlite.store import SqliteStore

RUN = RunId("run")


class Slow(SqliteStore):
    """Begins a run when it is told to, or says that it cannot."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.trouble = ""

    async def create(self, new: NewRun, events: Sequence[Event]) -> SqliteJournal:
        self.asked.set()
        await self.go.wait()
        if self.trouble:
            raise StoreError(self.trouble)
        return await super().create(new, events)


class Tools:
    """Tools that say when they are called, and wait until they may end."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.end = asyncio.Event()
        self.cancelled = False

    def flow(self, *effects: str) -> ps.Workflow:
        flow = ps.Workflow("ahead")
        for effect in effects:
            flow.step(effect, self.tool(effect))
        return flow

    def tool(self, effect: str) -> ps.Tool:
        @ps.tool(effect=effect, id=f"acts:{effect}")
        async def act() -> str:
            self.called.append(effect)
            try:
                await self.end.wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
            return effect

        return act


@asynccontextmanager
async def begun(tmp_path: Path, flow: ps.Workflow) -> AsyncIterator[tuple[NativeEngine, Slow, Prepared]]:
    store = Slow(tmp_path / "runs.db")
    engine = NativeEngine(store)
    try:
        async with ps.open("memory:") as penstock:
            yield engine, store, penstock.prepare(flow)
    finally:
        await engine.close()
        await store.close()


async def test_a_read_begins_before_the_store_has_the_run_and_nothing_else_does(tmp_path: Path) -> None:
    tools = Tools()
    async with begun(tmp_path, tools.flow("read", "write", "idempotent")) as (engine, store, flow):
        starting = asyncio.create_task(engine.start(flow, {}, run=RUN))
        await store.asked.wait()

        assert tools.called == ["read"]
        assert not starting.done()
        store.go.set()
        run = await starting
        tools.end.set()

        assert (await run.result()).status == "succeeded"
        assert sorted(tools.called) == ["idempotent", "read", "write"]


async def test_what_ends_before_the_store_has_the_run_happens_when_whoever_began_it_can_watch(
    tmp_path: Path,
) -> None:
    tools = Tools()
    tools.end.set()
    told: list[Event] = []
    async with begun(tmp_path, tools.flow("read", "write")) as (engine, store, flow):

        async def watched() -> tuple[Drive, int]:
            run = await engine.start(flow, {}, run=RUN)
            run.observe(told.append)
            return run, run.state.seq

        starting = asyncio.create_task(watched())
        await store.asked.wait()
        assert tools.called == ["read"]
        with pytest.raises(UnknownRun):
            await store.load(RUN)

        store.go.set()
        run, before = await starting
        await run.result()
        events = await store.load(RUN)

    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert told == list(events)[before:]
    assert {event.step for event in told if isinstance(event, TaskCompleted)} == {"read", "write"}
    assert isinstance(events[-1], WorkflowCompleted)


async def test_a_process_that_leaves_waits_for_what_ended_before_the_store_had_the_run(
    tmp_path: Path,
) -> None:
    tools = Tools()
    async with begun(tmp_path, tools.flow("read")) as (engine, store, flow):
        starting = asyncio.create_task(engine.start(flow, {}, run=RUN))
        await store.asked.wait()
        closing = asyncio.create_task(engine.close("going home"))
        await asyncio.sleep(0)
        tools.end.set()
        store.go.set()
        run = await starting
        await closing

        assert (await run.result()).status == "succeeded"
        assert isinstance((await store.load(RUN))[-1], WorkflowCompleted)


async def test_when_the_store_refuses_a_run_it_is_not_begun_and_what_was_under_way_is_stopped(
    tmp_path: Path,
) -> None:
    tools = Tools()
    async with begun(tmp_path, tools.flow("read", "write")) as (engine, store, flow):
        store.trouble = "the disk is full"
        starting = asyncio.create_task(engine.start(flow, {}, run=RUN))
        await store.asked.wait()
        store.go.set()

        with pytest.raises(StoreError, match="the disk is full"):
            await starting
        await asyncio.sleep(0)
        assert tools.called == ["read"]
        assert tools.cancelled
        assert not engine.live


async def test_a_run_whose_id_is_taken_is_not_begun_and_the_other_goes_on(tmp_path: Path) -> None:
    tools = Tools()
    async with begun(tmp_path, tools.flow("read")) as (engine, store, flow):
        store.go.set()
        run = await engine.start(flow, {}, run=RUN)
        with pytest.raises(Conflict):
            await engine.start(flow, {}, run=RUN)

        assert engine.live == {RUN: run}
        assert tools.called == ["read"]
        tools.end.set()
        await run.result()
        with pytest.raises(Conflict):
            await engine.start(flow, {}, run=RUN)
        assert not engine.live


async def test_who_gives_up_while_a_run_is_being_begun_leaves_nothing_running(tmp_path: Path) -> None:
    tools = Tools()
    async with begun(tmp_path, tools.flow("read")) as (engine, store, flow):
        starting = asyncio.create_task(engine.start(flow, {}, run=RUN))
        await store.asked.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await asyncio.sleep(0)

        assert tools.cancelled
        assert not engine.live


async def test_a_run_that_may_have_children_is_known_to_the_store_first(tmp_path: Path) -> None:
    tools = Tools()
    child = ps.Workflow("child")
    child.step("inner", tools.tool("read"))
    parent = tools.flow("idempotent")
    parent.step("below", child)
    async with begun(tmp_path, parent) as (engine, store, flow):
        starting = asyncio.create_task(engine.start(flow, {}, run=RUN))
        await store.asked.wait()

        assert tools.called == []
        store.go.set()
        run = await starting
        tools.end.set()
        assert (await run.result()).status == "succeeded"


def test_how_large_the_process_is_is_looked_up_once_in_a_moment() -> None:
    looks: list[int] = []
    now = 10.0

    def size() -> int:
        looks.append(1)
        return 100 * len(looks)

    lately = Lately(size, lambda: now)
    assert [lately(), lately()] == [100, 100]
    now = 11.5
    assert lately() == 200
