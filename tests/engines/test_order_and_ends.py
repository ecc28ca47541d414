"""Which step goes first when slots are scarce, and how a run says it went."""

from __future__ import annotations

import asyncio

import pytest
from ran import nothing, run, sleeps

import penstock as ps
from penstock.run.events import TaskStarted, WorkflowCompleted
from penstock.testing import clock
from penstock.testing.rig import Rig

# --- scarce slots ---


def test_when_slots_are_scarce_the_critical_path_comes_first() -> None:
    order: list[str] = []

    async def note(name: str) -> None:
        order.append(name)
        await asyncio.sleep(1)

    flow = ps.Workflow("w", max_parallel=1)
    flow.step("alone", note, name="alone")
    flow.step("head", note, name="head")
    flow.step("tail", note, name="tail", needs="head")

    run(flow)

    assert order[0] == "head"


def test_estimates_and_declared_durations_order_ready_steps() -> None:
    order: list[str] = []

    async def note(name: str) -> None:
        order.append(name)

    @ps.tool(duration=50)
    async def long() -> None:
        order.append("declared")

    flow = ps.Workflow("w", max_parallel=1)
    flow.step("short", note, name="short")
    flow.step("estimated", note, name="estimated", estimate="100s")
    flow.step("declared", long)

    run(flow)

    assert order == ["estimated", "declared", "short"]


def test_observed_durations_order_ready_steps() -> None:
    order: list[str] = []

    async def note(name: str) -> None:
        order.append(name)

    flow = ps.Workflow("w", max_parallel=1)
    for name in "abc":
        flow.step(name, note, name=name)

    async def main() -> None:
        async with Rig() as rig:
            handle = await rig.start(flow, durations={"a": 1, "b": 9, "c": 5})
            await handle.result()

    clock.run(main())

    assert order == ["b", "c", "a"]


def test_a_step_starts_as_soon_as_its_needs_allow_whatever_else_runs() -> None:
    flow = ps.Workflow("w")
    flow.step("slow", sleeps, seconds=20)
    flow.step("quick", sleeps, seconds=1)
    flow.step("next", sleeps, seconds=1, needs="quick")

    ran = run(flow)

    (start,) = ran.of(TaskStarted, "next")
    assert start.at - ran.events[0].at == 1


# --- status ---


def test_a_failure_with_an_output_left_is_partial_and_without_one_failed() -> None:
    async def fails() -> None:
        raise ValueError("no")

    flow = ps.Workflow("w")
    good = flow.step("good", sleeps, seconds=1)
    bad = flow.step("bad", fails)
    flow.output("bad", bad)
    assert run(flow).result.status == "failed"

    flow.output("good", good)
    ran = run(flow)
    assert (ran.result.status, ran.result.outputs) == ("partial", {"bad": None, "good": 1})
    assert ran.result.reason == "step bad failed: ValueError: no"


def test_an_output_that_cannot_be_produced_is_not_a_success() -> None:
    flow = ps.Workflow("w")
    done = flow.step("a", sleeps, seconds=1)
    flow.output("x", done.output.no_such_thing)

    result = run(flow).result

    assert result.status == "failed"
    assert result.reason.startswith("output x could not be produced")


def test_nothing_reports_success_for_a_run_that_did_nothing() -> None:
    with pytest.raises(ps.DefinitionError, match="max_parallel"):
        ps.Workflow("w", max_parallel=0)
    with pytest.raises(ps.DefinitionError, match="at least one step"):
        ps.Workflow("w").build()


def test_a_plan_that_goes_round_in_a_circle_is_refused_and_shown() -> None:
    flow = ps.Workflow("w")
    flow.step("a", nothing, needs="c")
    flow.step("b", nothing, needs="a")
    flow.step("c", nothing, needs="b")

    with pytest.raises(ps.DefinitionError, match=r"a -> b -> c -> a|a → b → c → a"):
        run(flow)


# --- the end ---


def test_the_last_event_is_the_end_and_the_store_knows_it() -> None:
    flow = ps.Workflow("w")
    flow.step("a", nothing)

    async def main() -> None:
        async with Rig() as rig:
            handle = await rig.start(flow)
            await handle.result()
            with pytest.raises(ps.CommandRejected, match="the run has ended"):
                await handle.send(ps.Abort())
            assert isinstance(rig.events()[-1], WorkflowCompleted)
            (record,) = await rig.store.runs()
            assert (record.status, record.events) == ("succeeded", len(rig.events()))

    clock.run(main())


def test_check_makes_an_exception_of_a_failed_run() -> None:
    async def fails() -> None:
        raise ValueError("no")

    flow = ps.Workflow("w")
    flow.step("a", fails)

    with pytest.raises(ps.RunFailed, match="ended failed: step a failed: ValueError: no"):
        run(flow).result.check()
