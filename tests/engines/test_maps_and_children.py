"""A step that is many tasks, and a step that is a run of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from ran import nothing, run, sleeps, steer

import penstock as ps
from penstock.engines.children import DEEPEST
from penstock.run.events import TaskCompleted
from penstock.testing import clock
from penstock.testing.rig import Rig

# --- maps ---


def test_a_map_gives_its_results_in_input_order_whatever_order_they_come_in() -> None:
    flow = ps.Workflow("w")
    mapped = flow.step("a", sleeps, for_each=[3, 1, 2], seconds="${ item }")
    flow.output("all", mapped)

    ran = run(flow)

    assert ran.result.outputs == {"all": [3, 1, 2]}
    assert [event.item for event in ran.of(TaskCompleted, "a")] == [1, 2, 0, None]
    assert ran.seconds == 3


def test_a_map_over_nothing_gives_an_empty_list() -> None:
    flow = ps.Workflow("w")
    flow.output("all", flow.step("a", sleeps, for_each=[], seconds="${ item }"))

    ran = run(flow)

    assert (ran.result.status, ran.result.outputs) == ("succeeded", {"all": []})


def test_a_maps_own_limit_keeps_its_slots_filled() -> None:
    """Two at a time, the next as soon as one ends: no batches."""
    flow = ps.Workflow("w")
    flow.step("a", sleeps, for_each=[4, 1, 1, 1, 1], max_parallel=2, seconds="${ item }")

    assert run(flow).seconds == 4


def test_a_map_shares_the_slots_of_its_run() -> None:
    flow = ps.Workflow("w", max_parallel=2)
    flow.step("a", sleeps, for_each=[1] * 6, seconds="${ item }")

    assert run(flow).seconds == 3


def test_a_failed_item_fails_the_step_when_running_ones_have_ended_and_no_new_one_starts() -> None:
    finished = []

    async def picky(n: int) -> None:
        await asyncio.sleep(n)
        if n == 1:
            raise ValueError("one")
        finished.append(n)

    flow = ps.Workflow("w")
    flow.step("a", picky, for_each=[1, 5, 2, 3], max_parallel=2, n="${ item }")

    ran = run(flow)

    assert ran.result.steps["a"].reason == "item 0 failed: ValueError: one"
    assert finished == [5]


def test_kept_failures_are_null_in_the_result() -> None:
    async def odd(n: int) -> int:
        if n % 2 == 0:
            raise ValueError("even")
        return n

    flow = ps.Workflow("w")
    flow.output("all", flow.step("a", odd, for_each=[1, 2, 3], on_item_error="keep", n="${ item }"))

    ran = run(flow)

    assert (ran.result.status, ran.result.outputs) == ("succeeded", {"all": [1, None, 3]})


def test_a_map_over_a_steps_output_and_its_fields() -> None:
    async def lists() -> dict[str, Any]:
        return {"files": [{"name": "a"}, {"name": "b"}]}

    async def read(name: str) -> str:
        return name.upper()

    flow = ps.Workflow("w")
    found = flow.step("list", lists)
    flow.output("all", flow.step("read", read, for_each=found.output.files, name="${ item.name }"))

    assert run(flow).result.outputs == {"all": ["A", "B"]}


@pytest.mark.parametrize("what", ["${ inputs.x }", "${ inputs.x.missing }"])
def test_a_for_each_that_is_no_list_fails_the_step_and_says_so(what: str) -> None:
    flow = ps.Workflow("w")
    flow.input("x", default={"a": 1})
    flow.step("a", nothing, for_each=what)

    ran = run(flow)

    assert ran.failure("a").kind == "expression"
    assert ran.failure("a").error.startswith("for_each: ")


def test_what_a_map_sets_is_set_once_from_the_whole() -> None:
    flow = ps.Workflow("w", reducers={"seen": "append"})
    flow.step("a", sleeps, for_each=[2, 1], seconds="${ item }", set={"seen": "${ output }"})

    assert run(flow).result.state.keys == {"seen": [2, 1]}


# --- children ---


def child_of(*, fails: bool = False, seconds: float = 0) -> ps.Workflow:
    async def work(x: int) -> int:
        await asyncio.sleep(seconds)
        if fails:
            raise ValueError("not today")
        return x * 2

    child = ps.Workflow("child")
    child.output("doubled", child.step("work", work, x=child.input("x", int)))
    return child


def test_a_child_is_a_run_of_its_own_and_its_outputs_are_the_steps() -> None:
    flow = ps.Workflow("parent")
    flow.output("y", flow.step("call", child_of(), x=21).output.doubled)

    async def main() -> None:
        async with Rig() as rig:
            result = await rig.run(flow)
            assert (result.status, result.outputs) == ("succeeded", {"y": 42})
            records = {record.run: record for record in await rig.store.runs()}
            assert records["run/call.1.1"].parent == "run"  # type: ignore[index]
            assert records["run/call.1.1"].status == "succeeded"  # type: ignore[index]

    clock.run(main())


def test_a_failing_child_fails_its_step_and_nothing_more() -> None:
    flow = ps.Workflow("parent")
    flow.step("call", child_of(fails=True), x=1, on_error="continue")
    flow.step("beside", nothing)

    ran = run(flow)

    assert ran.failure("call").kind == "child"
    assert "child run ended failed: step work failed: ValueError: not today" in ran.failure("call").error
    assert ran.result.ok


def test_every_attempt_at_a_child_is_a_new_run() -> None:
    flow = ps.Workflow("parent")
    flow.step("call", child_of(fails=True), x=1, retry={"max_attempts": 3, "backoff": 0})

    async def main() -> None:
        async with Rig() as rig:
            await rig.run(flow)
            assert {str(record.run) for record in await rig.store.runs()} == {
                "run", "run/call.1.1", "run/call.1.2", "run/call.1.3",
            }  # fmt: skip

    clock.run(main())


def test_children_of_a_map_are_runs_of_their_own_also_when_the_step_is_tried_again() -> None:
    calls: list[int] = []

    async def fails_first(x: int) -> int:
        calls.append(x)
        if len(calls) == 1:
            raise ValueError("first")
        return x

    child = ps.Workflow("child")
    child.output("x", child.step("work", fails_first, x=child.input("x", int)))
    flow = ps.Workflow("parent")
    flow.step("call", child, for_each=[1, 2], x="${ item }")
    flow.step("busy", sleeps, seconds=10)

    async def act(_rig: Rig, handle: ps.RunHandle) -> None:
        await asyncio.sleep(1)
        await handle.send(ps.RetryStep(step="call"))  # type: ignore[arg-type]

    ran = steer(flow, act)

    assert ran.result.ok, ran.result.reason


def test_a_childs_inputs_are_checked() -> None:
    flow = ps.Workflow("parent")
    flow.step("call", child_of(), x="many")

    assert "whole number" in run(flow).failure("call").error


def test_aborting_a_parent_aborts_its_children_first() -> None:
    flow = ps.Workflow("parent")
    flow.step("call", child_of(seconds=25), x=1)

    async def act(rig: Rig, handle: ps.RunHandle) -> None:
        await asyncio.sleep(1)
        await handle.send(ps.Abort(reason="enough"))
        await handle.result()
        (child,) = await rig.store.runs(parent="run")
        assert child.status == "aborted"

    ran = steer(flow, act)

    assert (ran.result.status, ran.seconds, ran.left, ran.abandoned) == ("aborted", 1, [], 0)


def test_a_child_that_times_out_is_stopped() -> None:
    flow = ps.Workflow("parent")
    flow.step("call", child_of(seconds=25), x=1, timeout=5)

    ran = run(flow)

    assert ran.failure("call").kind == "timeout"
    assert (ran.seconds, ran.left) == (5, [])


def test_a_workflow_that_calls_itself_without_end_is_stopped() -> None:
    flow = ps.Workflow("ouroboros")
    flow.step("again", "workflow:ouroboros")

    ran = run(flow)

    assert f"nested {DEEPEST} deep" in ran.result.reason
