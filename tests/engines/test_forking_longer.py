"""A fork with a definition that only adds steps: what is kept stays valid, what is new runs."""

from __future__ import annotations

import asyncio

import penstock as ps
from penstock.cli.view import View
from penstock.run.events import TaskStarted
from penstock.testing import clock
from penstock.testing.rig import Rig

CALLS: list[str] = []


@ps.tool(effect="read")
async def note(name: str, before: str = "") -> str:
    CALLS.append(name)
    return f"{before}{name}"


def flow(*, longer: bool) -> ps.Workflow:
    made = ps.Workflow("w")
    a = made.step("a", note, name="a")
    if longer:
        made.step("b", note, name="b", before=a)
        made.step("c", note, name="c")
    return made


def test_only_the_steps_that_were_added_run() -> None:
    CALLS.clear()

    async def main() -> None:
        async with Rig(note) as rig:
            assert (await rig.run(flow(longer=False))).ok
            fork = await rig.penstock.fork("run", flow=flow(longer=True))
            result = await fork.result()

            assert result.ok
            assert CALLS == ["a", "b", "c"]
            assert {step: one.status for step, one in result.steps.items()} == dict.fromkeys(
                "abc", "succeeded"
            )
            started = [event.step for event in rig.events(fork.id) if isinstance(event, TaskStarted)]
            assert started[-2:] == ["b", "c"]

    clock.run(main())


def test_a_fork_counts_its_own_time_not_that_of_the_run_it_came_from() -> None:
    async def main() -> None:
        async with Rig(note) as rig:
            assert (await rig.run(flow(longer=False))).ok
            await asyncio.sleep(3600)
            fork = await rig.penstock.fork("run", flow=flow(longer=True))
            result = await fork.result()

            assert result.duration < 60
            view = View()
            for event in rig.events(fork.id):
                view.take(event)
            assert view.at - view.started == result.duration

    clock.run(main())
