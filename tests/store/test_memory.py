"""The store that lives as long as its process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import penstock as ps
from penstock.errors import Conflict, UnknownRun
from penstock.ids import RunId
from penstock.testing import clock
from penstock.testing.rig import Rig


async def nothing() -> None:
    pass


async def fails() -> None:
    raise ValueError("no")


def flow(name: str, function: Any = nothing) -> ps.Workflow:
    built = ps.Workflow(name)
    built.step("a", function)
    return built


def test_a_run_is_read_back_as_it_was_written() -> None:
    async def main() -> None:
        async with Rig() as rig:
            await rig.run(flow("w"))
            assert list(await rig.store.load(RunId("run"))) == rig.events()
            assert list(await rig.store.load(RunId("run"), after=2)) == rig.events()[2:]
            assert (await rig.store.definition(RunId("run"))).workflow.hash == flow("w").build().hash

    clock.run(main())


def test_an_id_is_given_once() -> None:
    async def main() -> None:
        async with Rig() as rig:
            await rig.run(flow("w"))
            before = rig.events()
            with pytest.raises(Conflict):
                await rig.start(flow("w"))
            assert rig.events() == before

    clock.run(main())


@pytest.mark.parametrize("ask", ["load", "definition"])
def test_an_unknown_run_is_said_to_be_unknown(ask: str) -> None:
    async def main() -> None:
        async with Rig() as rig:
            with pytest.raises(UnknownRun, match="no run 'nobody'"):
                await getattr(rig.store, ask)(RunId("nobody"))

    clock.run(main())


def test_the_list_of_runs_shows_how_each_stands_the_newest_first() -> None:
    async def main() -> None:
        async with Rig() as rig:
            await rig.run(flow("good"), id="r1")
            await rig.run(flow("bad", fails), id="r2")
            going = await rig.start(flow("going", lambda: clock.sleep(10)), id="r3")
            await asyncio.sleep(1)
            records = await rig.store.runs()
            assert [(r.run, r.workflow, r.status) for r in records] == [
                ("r3", "going", "running"), ("r2", "bad", "failed"), ("r1", "good", "succeeded"),
            ]  # fmt: skip
            assert records[1].reason == "step a failed: ValueError: no"
            assert records[2].ended is not None
            assert records[0].ended is None
            assert [r.run for r in await rig.store.runs(status="failed")] == ["r2"]
            assert [r.run for r in await rig.store.runs(limit=1)] == ["r3"]
            await going.result()

    clock.run(main())


def test_what_was_read_cannot_be_used_to_change_what_is_kept() -> None:
    async def main() -> None:
        async with Rig() as rig:
            await rig.run(flow("w"))
            events = await rig.store.load(RunId("run"))
            if isinstance(events, list):
                events.clear()
            assert list(await rig.store.load(RunId("run"))) == rig.events()

    clock.run(main())
