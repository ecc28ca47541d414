"""The fold behind the live view and `show`."""

from __future__ import annotations

import asyncio

import penstock as ps
from penstock.cli.follow import summary_of
from penstock.cli.view import View


def fold(flow: ps.Workflow, *commands: object) -> tuple[View, dict[str, object]]:
    """Run a workflow, sending each command when a task has failed; the view and the engine's own account."""
    view, waiting = View(zip(flow.graph.ids, flow.graph.layers, strict=True)), list(commands)

    async def go() -> dict[str, object]:
        async with ps.open() as penstock:
            run = await penstock.start(flow)
            async for event in run.events():
                view.take(event)
                assert sum(view.counts.values()) == len(view.rows)
                assert sum(layer.over for layer in view.layers.values()) == view.over
                assert sum(layer.active for layer in view.layers.values()) == len(view.active)
                if waiting and view.failed:
                    await run.send(waiting.pop(0))
            return summary_of(await run.result())

    return view, asyncio.run(go())


async def ok(value: int = 0) -> int:
    return value


def test_the_view_agrees_with_the_engine_about_every_step() -> None:
    async def bad() -> None:
        raise ValueError

    flow = ps.Workflow("mixed")
    first = flow.step("first", ok, value=3)
    flow.step("each", ok, for_each="[1, 2, 3]", value="${ item }")
    flow.step("skipped", ok, when="1 > 2", value=first)
    flow.step("bad", bad, retry={"max_attempts": 3, "backoff": 0.001})
    flow.step("after", ok, needs=["bad"])
    flow.output("three", first)

    view, summary = fold(flow)

    mine = view.summary(summary["run_id"])
    del mine["duration_ms"], summary["duration_ms"]
    assert mine == summary
    assert view.counts["failed"] == 1
    assert view.rows["each"].items == view.rows["each"].done == 3
    assert view.rows["bad"].attempt == 3


def test_a_step_that_is_tried_again_by_command_counts_once() -> None:
    tried, again = [], asyncio.Event()

    async def second_time() -> int:
        tried.append(1)
        if len(tried) == 1:
            raise ValueError
        again.set()
        return 1

    flow = ps.Workflow("again")
    flow.step("slow", again.wait)
    flow.step("bad", second_time)
    flow.step("after", ok, needs=["bad"])

    view, summary = fold(flow, ps.RetryStep(step="bad"))

    assert summary["status"] == view.status == "succeeded"
    assert view.counts["succeeded"] == 3
    assert not view.failed


def test_added_steps_are_counted_in_their_layer() -> None:
    added = asyncio.Event()
    flow = ps.Workflow("growing")
    flow.step("wait", added.wait)
    view = View(zip(flow.graph.ids, flow.graph.layers, strict=True))

    async def go() -> None:
        async with ps.open(tools=[ps.tool(id="local:ok")(ok)]) as penstock:
            run = await penstock.start(flow)
            await run.send(ps.InjectTasks(steps=(ps.Step(id="more", uses="local:ok", needs=("wait",)),)))
            added.set()
            async for event in run.events():
                view.take(event)

    asyncio.run(go())

    assert view.rows["more"].layer == 1
    assert view.rows["more"].state == "succeeded"
    assert len(view.rows) == 2


def test_aborting_and_running_out_of_time_are_shown_as_stopping() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    flow = ps.Workflow("limited", timeout=0.01)
    flow.step("endless", forever)

    view, _ = fold(flow)

    assert view.stopping
    assert view.timed_out
    assert view.ended
