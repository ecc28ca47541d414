"""A parent whose child waits for a person waits too, and nothing waits in memory for either of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.run.commands import Abort, Decide

CALLS: list[str] = []


@ps.tool(effect="destructive")
async def deploy(where: str) -> str:
    CALLS.append(where)
    return where


@ps.tool(effect="read")
async def look() -> int:
    return 1


def family(depth: int = 1) -> ps.Workflow:
    flow = ps.Workflow("deploying")
    flow.step("ship", deploy, where="prod")
    flow.output("where", "${ steps.ship.output }")
    for n in range(depth):
        above = ps.Workflow(f"above{n}")
        above.step("below", flow)
        above.step("after", look, needs=["below"])
        above.output("where", "${ steps.below.output.where }")
        flow = above
    return flow


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    CALLS.clear()
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/resting.db"


async def until(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not so():  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0)


def asked(penstock: ps.Penstock) -> tuple[Any, Any]:
    return next(
        (drive, question)
        for drive in penstock.engine.live.values()
        for question in drive.run.decisions.values()
    )


@pytest.mark.parametrize("depth", [1, 2])
async def test_the_whole_family_waits_and_holds_no_task(url: str, depth: int) -> None:
    async with ps.open(url) as penstock:
        before = asyncio.all_tasks()
        run = await penstock.start(family(depth))
        await until(lambda: run.status == "waiting")
        await until(lambda: not {t for t in asyncio.all_tasks() - before if "penstock" not in t.get_name()})
        child, question = asked(penstock)
        await child.send(Decide(decision=question.decision, verb="approve"))
        result = await asyncio.wait_for(run.result(), 10)

    assert result.outputs == {"where": "prod"}
    assert CALLS == ["prod"]


async def test_stopping_the_parent_stops_the_child_that_waits(url: str) -> None:
    async with ps.open(url) as penstock:
        run = await penstock.start(family(2))
        await until(lambda: run.status == "waiting")
        await run.send(Abort(reason="enough"))
        result = await asyncio.wait_for(run.result(), 10)
        records = {record.run: record.status for record in await penstock.store.runs()}

    assert result.status == "aborted"
    assert set(records.values()) == {"aborted"}
    assert CALLS == []


async def test_a_rejected_child_fails_its_parent_with_the_reason(url: str) -> None:
    async with ps.open(url) as penstock:
        run = await penstock.start(family())
        await until(lambda: run.status == "waiting")
        child, question = asked(penstock)
        await child.send(Decide(decision=question.decision, verb="reject", message="not on a Friday"))
        result = await asyncio.wait_for(run.result(), 10)

    assert result.status == "failed"
    assert "not on a Friday" in result.reason


async def test_a_family_that_rests_goes_on_after_a_restart(tmp_path: Path) -> None:
    CALLS.clear()
    url = f"sqlite:///{tmp_path}/resting.db"
    flow = family(2)
    async with ps.open(url) as penstock:
        run = await penstock.start(flow)
        await until(lambda: run.status == "waiting")
        id = run.id
    async with ps.open(url) as penstock:
        penstock.prepare(flow)
        run = await penstock.resume(id)
        await until(lambda: run.status == "waiting")
        child, question = asked(penstock)
        await child.send(Decide(decision=question.decision, verb="approve"))
        result = await asyncio.wait_for(run.result(), 10)

    assert result.status == "succeeded"
    assert CALLS == ["prod"]


async def test_an_approval_that_nobody_gives_in_time_is_a_rejection() -> None:
    CALLS.clear()
    flow = ps.Workflow("late", approval_timeout="10ms")
    flow.step("ship", deploy, where="prod")
    async with ps.open("memory:") as penstock:
        result = await asyncio.wait_for((await penstock.start(flow)).result(), 10)

    assert result.status == "failed"
    assert "nobody approved it in time" in result.reason
    assert CALLS == []


async def test_another_process_sees_that_a_parent_waits_without_an_event_of_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/resting.db"
    async with ps.open(url) as penstock, ps.open(url) as other:
        run = await penstock.start(family(2))
        await until(lambda: run.status == "waiting")
        events = run.state.seq

        async with asyncio.timeout(10):
            while [one.status for one in await other.store.runs()] != ["waiting"] * 3:  # noqa: ASYNC110 - another process would ask, too
                await asyncio.sleep(0.01)

        assert run.state.seq == events
        drive, question = asked(penstock)
        await drive.send(Decide(decision=question.decision, verb="approve"))
        assert (await run.result()).ok
        assert {one.status for one in await other.store.runs()} == {"succeeded"}
