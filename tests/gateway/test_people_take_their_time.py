"""Waiting for a person never counts: neither against a step's time nor against a server's."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

import penstock as ps
from penstock.errors import LostCall
from penstock.ids import RunId, StepId
from penstock.testing import clock
from penstock.tools.base import Answer, Inquiry, Task
from penstock.tools.mcp.base import Listing, Waiting
from penstock.tools.mcp.config import Server
from penstock.tools.mcp.pool import Pool
from penstock.tools.mcp.upstream import Upstream

AN_HOUR = 3600.0


def ended(*, work: float) -> ps.Result:
    """A step with two seconds, which asks a person between two pieces of work."""

    @ps.tool(effect="read", id="desk:form")
    async def form(task: Task) -> str:
        await asyncio.sleep(work)
        with task.waiting():
            await asyncio.sleep(AN_HOUR)
        await asyncio.sleep(work)
        return "filled in"

    flow = ps.Workflow("asking")
    flow.step("form", form, timeout=2)

    async def go() -> ps.Result:
        async with ps.open("memory:") as penstock:
            return await (await penstock.start(flow)).result()

    return clock.run(go())


def test_the_time_of_a_step_stands_still_while_a_person_is_asked() -> None:
    assert ended(work=0.9).status == "succeeded"


def test_what_a_step_used_before_it_asked_is_not_forgotten() -> None:
    result = ended(work=1.1)

    assert result.status == "failed"
    assert "timed out after 2 s" in result.reason


class Asking:
    """A connection to a server that asks something in every call."""

    alive = True
    busy = False

    def __init__(self, work: float) -> None:
        self.over = asyncio.Event()
        self._work = work

    async def listing(self) -> Listing:
        return Listing(())

    async def call(self, _tool: str, _args: Any, *, waiting: Waiting, **_more: Any) -> str:
        await asyncio.sleep(self._work)
        with waiting():
            await asyncio.sleep(AN_HOUR)
        await asyncio.sleep(self._work)
        return "said"

    async def broken(self) -> None:
        await self.over.wait()


def called(*, work: float) -> str:
    @asynccontextmanager
    async def connect(_changed: Any) -> AsyncIterator[Asking]:
        yield Asking(work)

    async def go() -> str:
        upstream = Upstream(Server(name="asking", command="asking", timeout=2.0), connect)
        try:
            answer: str = await upstream.call("ask", {})
            return answer
        finally:
            await upstream.close()

    return clock.run(go())


def test_the_time_of_a_server_stands_still_while_a_person_is_asked() -> None:
    assert called(work=0.9) == "said"


def test_a_server_that_is_slow_itself_is_still_given_up() -> None:
    with pytest.raises(LostCall, match="no answer within 2 s"):
        called(work=1.1)


async def test_the_clocks_of_a_call_stand_still_exactly_while_its_server_asks() -> None:
    told: list[str] = []

    @contextmanager
    def waiting() -> Iterator[None]:
        told.append("stopped")
        yield
        told.append("going on")

    async def ask(_question: Inquiry) -> Answer:
        told.append("asked")
        return Answer("accept", {"colour": "red"})

    server = Server(name="good", command=sys.executable, args=("-m", "penstock.testing.mcp_server"))
    task = Task(RunId("r"), StepId("s"), 1, None, 1, waiting, ask)
    async with Pool({"good": server}, variables=dict(os.environ)) as pool:
        assert await pool.call("good", "paint", {"what": "door"}, task=task) == "door is red"

    assert told == ["stopped", "asked", "going on"]
