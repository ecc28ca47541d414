"""What people are asked about: calls that can be made, and what is at stake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked import STORES, answer, ended, history, opened, questions, url

import penstock as ps
from penstock.run.events import DecisionRequired, TaskFailed


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url(request.param, tmp_path)


@ps.tool(effect="read")
async def same(n: Any) -> Any:
    return n


@pytest.mark.parametrize("options", [{}, {"for_each": ["prod"]}])
async def test_nobody_is_asked_about_a_call_that_its_tool_would_refuse(
    store: str, options: dict[str, Any]
) -> None:
    calls: list[int] = []

    @ps.tool(effect="read")
    async def look() -> str:
        return "three"

    @ps.tool(effect="destructive")
    async def erase(count: int) -> None:
        calls.append(count)

    flow = ps.Workflow("erasing")
    flow.step("look", look)
    flow.step("erase", erase, count="${ steps.look.output }", **options)
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        result = await ended(run)
        events = await history(run)

    assert (result.status, calls) == ("failed", [])
    assert [event for event in events if isinstance(event, DecisionRequired)] == []
    failed = next(event for event in events if isinstance(event, TaskFailed))
    assert (failed.kind, failed.error) == ("arguments", "argument count: Expected `int`, got `str`")


async def test_nor_about_a_child_that_would_refuse_its_inputs(store: str) -> None:
    child = ps.Workflow("child")
    child.input("count", int)
    child.step("a", same, n="${ inputs.count }")
    flow = ps.Workflow("parent")
    flow.step("look", same, n="three")
    flow.step("call", child, count="${ steps.look.output }", approval="always")
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        result = await ended(run)
        failed = [event for event in await history(run) if isinstance(event, TaskFailed)]

    assert result.status == "failed"
    assert [event.kind for event in failed] == ["arguments"]


async def test_whoever_is_asked_is_told_what_is_destructive_however_it_came_to_be_asked(store: str) -> None:
    @ps.tool(effect="destructive")
    async def erase() -> None:
        pass

    flow = ps.Workflow("w")
    flow.step("erase", erase, approval="always")
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        (asked,) = await questions(run)
        await answer(run, asked, "reject")
        await ended(run)

    assert "Risk: what it calls is destructive; nothing depends on it" in asked.summary


async def test_and_not_that_something_harmless_is(store: str) -> None:
    flow = ps.Workflow("w")
    flow.step("a", same, n=1, approval="always")
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        (asked,) = await questions(run)
        await answer(run, asked, "approve")
        await ended(run)

    assert "Risk: nothing depends on it" in asked.summary
