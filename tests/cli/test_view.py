"""The fold behind the live view and `show`."""

from __future__ import annotations

import asyncio

import pytest

import penstock as ps
from penstock.cli.view import View
from penstock.engines.base import step_results
from penstock.engines.plain import summary_of
from penstock.ids import RunId, StepId
from penstock.run.commands import Decide
from penstock.run.decide import decide
from penstock.run.events import TaskStarted
from penstock.run.facts import (
    CommandReceived,
    Fact,
    ItemsCounted,
    RunReopened,
    RunRequested,
    StorageStalled,
    TaskOrphaned,
    TaskRaised,
)
from penstock.run.state import Run


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


def agree(view: View, run: Run) -> None:
    """The view says of every step, and of the run, what the fold says."""
    words = {"retrying": "backoff", "waiting": "waiting"}
    states = {row.id: words.get(row.state, row.state) for row in view.rows.values()}
    ready = {"ready": "waiting"}
    assert states == {id: ready.get(s.status, s.status) for id, s in step_results(run).items()}
    assert view.status == run.status
    assert list(view.decisions) == list(run.decisions)
    assert sum(layer.active for layer in view.layers.values()) == len(view.active)


def told(flow: ps.Workflow, *facts: Fact) -> tuple[View, Run]:
    """What the core makes of these facts; the view agrees after each."""
    graph = flow.graph
    run, view = Run(RunId("r"), graph), View(zip(graph.ids, graph.layers, strict=True))
    for now, fact in enumerate((RunRequested({}), *facts)):
        for event in decide(run, fact, float(now)):
            view.take(event)
        agree(view, run)
    return view, run


def answered(verb: str, **more: object) -> CommandReceived:
    return CommandReceived(Decide(id="c", decision="r:4", verb=verb, **more))


@pytest.mark.parametrize("verb", ["retry", "accept", "skip", "reject"])
def test_a_step_that_waits_for_a_decision_is_asking_until_it_is_made(verb: str) -> None:
    flow = ps.Workflow("asks")
    flow.step("after", ok, needs=[flow.step("mail", ok)])

    asking, _ = told(flow, TaskOrphaned(0))
    given = {"output": 1} if verb == "accept" else None
    over, run = told(flow, TaskOrphaned(0), answered(verb, args=given))

    assert asking.rows["mail"].state == "asking"
    assert asking.status == "waiting"
    assert over.decisions == {}
    assert run.commands == {"c": ""}


def test_an_item_that_waits_for_a_decision_is_counted() -> None:
    flow = ps.Workflow("asks")
    flow.step("each", ok, for_each="[1, 2]", value="${ item }")
    counted, graph = ItemsCounted(0, [1, 2]), flow.graph
    run, view = Run(RunId("r"), graph), View(zip(graph.ids, graph.layers, strict=True))

    for fact in (RunRequested({}), counted, TaskOrphaned(0, item=0), TaskOrphaned(0, item=1)):
        for event in decide(run, fact, 1.0):
            view.take(event)

    assert view.rows["each"].asks == 2
    assert view.status == run.status == "waiting"
    for id in list(run.decisions):
        for event in decide(run, CommandReceived(Decide(id=id, decision=id, verb="retry")), 2.0):
            view.take(event)
    assert view.rows["each"].asks == 0
    assert view.status == run.status == "running"


def test_what_is_opened_again_after_the_end_is_no_longer_over() -> None:
    flow = ps.Workflow("again")
    flow.step("after", ok, needs=[flow.step("bad", ok)])
    failed = TaskRaised(0, "no good")

    view, run = told(flow, failed, RunReopened("once more", reopened=(StepId("bad"), StepId("after"))))

    assert not view.ended
    assert not view.failed
    assert view.rows["bad"].state == "running"
    assert run.status == "running"


def test_what_a_stop_kept_from_running_is_open_again_when_the_stop_is_taken_back() -> None:
    flow = ps.Workflow("stopped")
    flow.step("after", ok, needs=[flow.step("slow", ok)])
    stop = CommandReceived(ps.Abort(id="a", reason="enough"))

    view, _ = told(flow, stop, TaskRaised(0, "cancelled: enough", "cancelled"), RunReopened("once more"))

    assert not view.ended
    assert view.stopping == ""
    assert view.rows["slow"].state == "running"


def test_a_pause_lasts_until_its_own_cause_is_lifted() -> None:
    flow = ps.Workflow("paused")
    flow.step("a", ok)

    view, _ = told(
        flow,
        CommandReceived(ps.Pause(id="p")),
        StorageStalled("the disk is full"),
        RunReopened("by another process"),
        CommandReceived(ps.Resume(id="r")),
    )

    assert view.status == "running"


def test_steps_of_an_earlier_version_of_the_definition_are_not_shown() -> None:
    flow = ps.Workflow("changed")
    flow.step("new", ok)
    view = View([("new", 0)])

    view.take(TaskStarted(1, 1.0, StepId("old")))

    assert list(view.rows) == ["new"]
