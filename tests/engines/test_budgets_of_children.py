"""What a child uses is the parent's, and what the parent has left is all that a child may use."""

from __future__ import annotations

import asyncio
from typing import Any

import penstock as ps
from penstock.run.commands import Decide


@ps.tool(effect="read")
async def look() -> int:
    return 1


def family(calls: int, **budget: Any) -> ps.Workflow:
    child = ps.Workflow("child")
    for n in range(calls):
        child.step(f"c{n}", look, needs=[f"c{n - 1}"] if n else [])
    parent = ps.Workflow("parent", budget=budget)
    parent.step("one", child)
    parent.step("two", look, needs=["one"])
    return parent


async def question(penstock: ps.Penstock) -> tuple[Any, Any]:
    async with asyncio.timeout(10):
        while True:
            for drive in penstock.engine.live.values():
                if drive.run.decisions:
                    return drive, next(iter(drive.run.decisions.values()))
            await asyncio.sleep(0)


async def test_the_calls_of_a_child_count_in_its_parent() -> None:
    async with ps.open("memory:") as penstock:
        run = await penstock.start(family(3, tool_calls=10))
        result = await run.result()

    assert result.usage["tool_calls"] == 5  # the child's three, the step that is the child, and the last one


async def test_a_parent_is_asked_when_its_child_has_used_up_the_budget() -> None:
    async with ps.open("memory:") as penstock:
        run = await penstock.start(family(3, tool_calls=4))
        drive, asked = await question(penstock)
        assert (drive.id, asked.kind) == (run.id, "budget")
        await drive.send(Decide(decision=asked.decision, verb="finish"))
        result = await run.result()

    assert result.status == "partial"


async def test_a_child_is_asked_when_what_its_parent_has_left_is_used_up() -> None:
    async with ps.open("memory:") as penstock:
        run = await penstock.start(family(5, tool_calls=3))
        drive, asked = await question(penstock)
        assert drive.id.startswith(f"{run.id}/")
        assert (asked.kind, asked.call["limit"]) == ("budget", 2)
        await drive.send(Decide(decision=asked.decision, verb="abort"))
        result = await run.result()

    assert result.status == "failed"
