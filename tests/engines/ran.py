"""Runs for tests of the engine: in virtual time, with everything that can be known about them afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import penstock as ps
from penstock.run.events import Event, TaskFailed
from penstock.testing import clock
from penstock.testing.history import violations
from penstock.testing.rig import Rig


@dataclass
class Ran:
    result: ps.Result
    events: list[Event]
    seconds: float
    abandoned: int
    left: list[str]

    def of(self, kind: type, step: str) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind) and event.step == step]  # type: ignore[attr-defined]

    def failure(self, step: str) -> TaskFailed:
        found: TaskFailed = self.of(TaskFailed, step)[-1]
        return found


def run(flow: ps.Workflow, *tools: Callable[..., Any], **inputs: Any) -> Ran:
    """Run to the end in virtual time; an honest history is part of the bargain."""

    async def main() -> Ran:
        loop = asyncio.get_running_loop()
        async with Rig(*tools) as rig:
            result = await rig.run(flow, inputs)
            await asyncio.sleep(0)
            left = [task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}]  # type: ignore[arg-type]
            assert violations(flow.build(), rig.batches()) == []
            return Ran(result, rig.events(), loop.time(), rig.penstock.engine.abandoned, left)

    return clock.run(main())


def steer(flow: ps.Workflow, act: Callable[[Rig, ps.RunHandle], Coroutine[Any, Any, None]]) -> Ran:
    """Run, and do something to the run meanwhile."""

    async def main() -> Ran:
        loop = asyncio.get_running_loop()
        async with Rig() as rig:
            handle = await rig.start(flow)
            await act(rig, handle)
            result = await handle.result()
            seconds = loop.time()
            await asyncio.sleep(0)
            left = [task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}]  # type: ignore[arg-type]
            assert violations(flow.build(), rig.batches()) == []
            return Ran(result, rig.events(), seconds, rig.penstock.engine.abandoned, left)

    return clock.run(main())


async def nothing() -> None:
    pass


async def sleeps(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


async def stubborn() -> None:
    """Goes on when it is cancelled. A second time it gives in: that is the loop's end, not the run's."""
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        await asyncio.sleep(1000)
