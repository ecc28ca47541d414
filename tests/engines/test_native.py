"""What the native engine does with tasks: timeouts, threads, maps, children, cancellation. Virtual time."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engines.drive import DEEPEST, GRACE
from penstock.run.events import Event, TaskCompleted, TaskFailed, TaskStarted, WorkflowCompleted
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


# --- timeouts ---


def test_a_task_times_out_after_thirty_seconds_unless_its_step_says_otherwise() -> None:
    flow = ps.Workflow("w")
    flow.step("default", sleeps, seconds=100)
    flow.step("short", sleeps, seconds=100, timeout="2s")
    flow.step("long", sleeps, seconds=100, timeout="5m")

    ran = run(flow)

    assert ran.failure("default").error.startswith("timed out after 30 s")
    assert ran.failure("short").error.startswith("timed out after 2 s")
    assert ran.failure("short").kind == "timeout"
    assert ran.result.steps["long"].status == "succeeded"
    assert ran.seconds == 100


def test_a_timed_out_read_is_tried_again() -> None:
    calls = []

    async def slow_once() -> str:
        calls.append(1)
        await asyncio.sleep(60 if len(calls) == 1 else 0)
        return "at last"

    flow = ps.Workflow("w")
    flow.step("a", slow_once, effect="read", retry={"max_attempts": 2, "backoff": 1, "jitter": 0})

    ran = run(flow)

    assert ran.result.ok
    assert ran.seconds == 31


def test_a_function_that_hangs_in_its_thread_times_out_and_holds_nobody_up() -> None:
    def hangs() -> None:
        clock.sleep(10_000)

    flow = ps.Workflow("w")
    flow.step("hangs", hangs, timeout=3)
    flow.step("next", nothing, needs="hangs", join="all_done")

    ran = run(flow)

    assert ran.failure("hangs").kind == "timeout"
    assert ran.result.steps["next"].status == "succeeded"
    assert ran.seconds == 3


def test_a_coroutine_that_swallows_cancellation_is_given_up_after_a_grace() -> None:
    flow = ps.Workflow("w")
    flow.step("stubborn", stubborn, timeout=3)
    flow.step("next", nothing, needs="stubborn", join="all_done")

    ran = run(flow)

    assert ran.failure("stubborn").error.startswith("timed out after 3 s; it did not stop when cancelled")
    assert ran.abandoned == 1
    assert ran.result.steps["next"].status == "succeeded"
    assert ran.seconds == 3 + GRACE


def test_a_task_that_is_told_to_stop_but_returns_within_the_grace_has_succeeded() -> None:
    """It did what it was asked to: that is the truth, and its result is of use."""

    async def late() -> str:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            return "late"
        return "never"

    flow = ps.Workflow("w")
    flow.output("x", flow.step("late", late, timeout=3))

    ran = run(flow)

    assert (ran.result.status, ran.result.outputs, ran.seconds) == ("succeeded", {"x": "late"}, 3)


def test_a_timed_out_write_is_not_repeated_even_if_it_raises_something_else_on_its_way_out() -> None:
    async def writes() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            raise OSError("connection reset") from None

    flow = ps.Workflow("w")
    flow.step("writes", writes, timeout=3, retry=5)

    ran = run(flow)

    assert len(ran.of(TaskStarted, "writes")) == 1
    assert ran.failure("writes").kind == "timeout"
    assert "connection reset" in ran.failure("writes").error


def test_the_whole_run_times_out_and_says_so() -> None:
    flow = ps.Workflow("w", timeout="10s")
    flow.step("quick", sleeps, seconds=1)
    flow.step("slow", sleeps, seconds=20)
    flow.step("after", nothing, needs="slow")

    ran = run(flow)

    assert (ran.result.status, ran.result.reason) == ("failed", "timed out after 10 s")
    assert ran.seconds == 10
    assert ran.result.steps["after"].reason == "timed out after 10 s"
    assert not ran.left


def test_a_run_that_times_out_with_something_to_show_for_it_is_partial() -> None:
    flow = ps.Workflow("w", timeout=10)
    quick = flow.step("quick", sleeps, seconds=1)
    flow.step("slow", sleeps, seconds=20)
    flow.output("quick", quick)

    ran = run(flow)

    assert (ran.result.status, ran.result.outputs) == ("partial", {"quick": 1})


def test_the_runs_time_runs_out_while_a_task_is_already_in_its_grace() -> None:
    flow = ps.Workflow("w", timeout=5)
    flow.step("stubborn", stubborn, timeout=3)

    assert run(flow).seconds == 3 + GRACE


# --- retries ---


def test_backoff_doubles_between_attempts() -> None:
    async def fails() -> None:
        raise ValueError("no")

    flow = ps.Workflow("w")
    flow.step("a", fails, retry={"max_attempts": 4, "backoff": "2s", "jitter": 0})

    ran = run(flow)

    started = [event.at for event in ran.of(TaskStarted, "a")]
    assert [later - earlier for earlier, later in pairwise(started)] == [2, 4, 8]
    assert ran.result.steps["a"].attempts == 4
    assert ran.failure("a").name == "ValueError"


def test_a_step_without_retry_uses_the_workflows() -> None:
    async def fails() -> None:
        raise ValueError("no")

    flow = ps.Workflow("w", retry={"max_attempts": 3, "backoff": 0})
    flow.step("a", fails)
    flow.step("b", fails, retry=1)

    steps = run(flow).result.steps

    assert (steps["a"].attempts, steps["b"].attempts) == (3, 1)


def test_a_waiting_attempt_leaves_its_slot_to_others() -> None:
    calls: list[str] = []

    async def fails_once() -> None:
        calls.append("a")
        if calls.count("a") == 1:
            raise ValueError("no")

    async def other() -> None:
        calls.append("b")

    flow = ps.Workflow("w", max_parallel=1)
    flow.step("a", fails_once, retry={"max_attempts": 2, "backoff": 10})
    flow.step("b", other)

    assert run(flow).result.ok
    assert calls == ["a", "b", "a"]


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


# --- what steps are given and give back ---


def test_a_step_that_changes_its_arguments_affects_nobody() -> None:
    seen: list[Any] = []

    async def give() -> dict[str, Any]:
        return {"list": [1]}

    async def spoil(data: dict[str, Any], also: list[int]) -> None:
        seen.append(copy.deepcopy((data, also)))
        data["list"].append("spoilt")
        also.append(99)

    flow = ps.Workflow("w", max_parallel=1)
    flow.input("also", default=[7])
    given = flow.step("give", give)
    one = flow.step("one", spoil, data=given, also="${ inputs.also }")
    flow.step("two", spoil, data=given, also="${ inputs.also }", needs=one)
    flow.output("given", given)

    assert run(flow).result.outputs == {"given": {"list": [1]}}
    assert seen == [({"list": [1]}, [7])] * 2


def test_what_a_step_returned_may_be_changed_afterwards_without_effect() -> None:
    kept: dict[str, Any] = {"n": [1]}

    async def give() -> dict[str, Any]:
        return kept

    async def change() -> None:
        kept["n"].append(2)

    flow = ps.Workflow("w")
    given = flow.step("give", give)
    flow.step("change", change, needs=given)
    flow.output("given", given)

    assert run(flow).result.outputs == {"given": {"n": [1]}}


@pytest.mark.parametrize("value", [object(), {1, object()}, "\ud800", {"a": b"\xff", "b": object()}])
def test_an_output_that_is_not_json_fails_the_step_clearly(value: Any) -> None:
    async def give() -> Any:
        return value

    flow = ps.Workflow("w")
    flow.step("a", give, retry=3)

    ran = run(flow)

    assert ran.failure("a").kind == "output"
    assert "not JSON" in ran.failure("a").error
    assert len(ran.of(TaskStarted, "a")) == 1


@pytest.mark.parametrize(
    ("value", "arrives"), [((1, 2), [1, 2]), (None, None), (1.5, 1.5), ({"a": (True,)}, {"a": [True]})]
)
def test_an_output_arrives_as_json_would_carry_it(value: Any, arrives: Any) -> None:
    async def give() -> Any:
        return value

    flow = ps.Workflow("w")
    flow.output("x", flow.step("a", give))

    assert run(flow).result.outputs == {"x": arrives}


def test_context_variables_do_not_leak_between_steps() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outside")
    seen: dict[str, str] = {}

    async def sets(name: str) -> None:
        seen[name] = variable.get()
        variable.set(name)

    def sets_in_thread(name: str) -> None:
        seen[name] = variable.get()
        variable.set(name)

    flow = ps.Workflow("w")
    flow.step("a", sets, name="a")
    flow.step("b", sets, name="b", needs="a")
    flow.step("c", sets_in_thread, name="c", needs="b")
    flow.step("d", sets_in_thread, name="d", needs="c")

    async def main() -> None:
        variable.set("the caller's")
        async with Rig() as rig:
            await rig.run(flow)
        assert variable.get() == "the caller's"

    clock.run(main())

    assert seen == dict.fromkeys("abcd", "the caller's")


def test_plain_functions_run_in_threads_beside_each_other() -> None:
    meeting = threading.Barrier(3, timeout=10)

    def meets() -> str:
        meeting.wait()
        return threading.current_thread().name

    flow = ps.Workflow("w")
    for n in range(3):
        flow.output(f"t{n}", flow.step(f"s{n}", meets))

    outputs = run(flow).result.outputs

    assert len(set(outputs.values())) == 3
    assert threading.main_thread().name not in outputs.values()


def test_a_step_may_ask_which_task_it_is() -> None:
    async def who(task: ps.Task) -> str:
        return f"{task.run} {task.step} {task.attempt} {task.item} {task.idempotency_key}"

    flow = ps.Workflow("w")
    flow.output("who", flow.step("a", who))

    assert run(flow).result.outputs == {"who": "run a 1 None run/a.1"}


def test_a_bad_argument_fails_the_step_before_it_is_called() -> None:
    called = []

    async def typed(n: int) -> None:
        called.append(n)

    flow = ps.Workflow("w")
    flow.step("a", typed, n="${ inputs.n }")
    flow.input("n", default="three")

    ran = run(flow)

    assert "argument n" in ran.failure("a").error
    assert not called


def test_a_raised_step_does_not_stay_running() -> None:
    def raises_stop() -> None:
        raise StopIteration

    async def raises_cancelled() -> None:
        raise asyncio.CancelledError

    async def exits() -> None:
        sys.exit(3)

    def exits_in_thread() -> None:
        sys.exit(3)

    async def raises_group() -> None:
        raise ExceptionGroup("two", [ValueError("a"), ValueError("b")])

    flow = ps.Workflow("w")
    for function in (raises_stop, raises_cancelled, exits, exits_in_thread, raises_group):
        flow.step(function.__name__, function)

    ran = run(flow)

    assert {step.status for step in ran.result.steps.values()} == {"failed"}
    assert all(step.reason for step in ran.result.steps.values())


def test_a_failure_keeps_the_users_part_of_the_trace_and_no_absolute_path() -> None:
    async def direct() -> None:
        raise KeyError("gone")

    async def asks(task: ps.Task) -> None:
        raise KeyError(task.step)

    def blocking() -> None:
        raise KeyError("gone")

    flow = ps.Workflow("w")
    for function in (direct, asks, blocking):
        flow.step(function.__name__, function)

    ran = run(flow)

    assert ran.failure("direct").error == "KeyError: 'gone'"
    for step in ("direct", "asks", "blocking"):
        trace = ran.failure(step).trace
        assert f"in {step}" in trace
        assert trace.count("File ") == 1
        assert str(Path(__file__).parent) not in trace


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


# --- cancellation ---


def test_aborting_at_once_takes_no_time_and_calls_nothing() -> None:
    called: list[int] = []

    async def work() -> None:
        called.append(1)

    flow = ps.Workflow("w")
    for n in range(5):
        flow.step(f"s{n}", work)

    async def act(_rig: Rig, handle: ps.RunHandle) -> None:
        await handle.send(ps.Abort())

    ran = steer(flow, act)

    assert (ran.result.status, ran.seconds, ran.abandoned, ran.left) == ("aborted", 0, 0, [])
    assert not called


def test_abort_lets_steps_clean_up_and_leaves_no_orphan() -> None:
    cleaned: list[float] = []

    async def careful() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(2)
            cleaned.append(asyncio.get_running_loop().time())

    flow = ps.Workflow("w")
    flow.step("a", careful, timeout=200)
    flow.step("b", careful, timeout=200)

    async def act(_rig: Rig, handle: ps.RunHandle) -> None:
        await asyncio.sleep(1)
        await handle.send(ps.Abort())

    ran = steer(flow, act)

    assert cleaned == [3, 3]
    assert (ran.seconds, ran.left, ran.result.status) == (3, [], "aborted")


def test_abort_during_the_grace_of_a_timed_out_task_ends_the_run() -> None:
    flow = ps.Workflow("w")
    flow.step("stubborn", stubborn, timeout=3)

    async def act(_rig: Rig, handle: ps.RunHandle) -> None:
        await asyncio.sleep(4)
        await handle.send(ps.Abort())

    assert steer(flow, act).result.status == "aborted"


def test_abort_leaves_no_timer_behind() -> None:
    async def fails() -> None:
        raise ValueError("no")

    flow = ps.Workflow("w", timeout=1000)
    flow.step("a", fails, retry={"max_attempts": 3, "backoff": "10m"})

    async def act(_rig: Rig, handle: ps.RunHandle) -> None:
        await asyncio.sleep(1)
        await handle.send(ps.Abort())

    ran = steer(flow, act)

    assert (ran.seconds, ran.left) == (1, [])


def test_whoever_waits_for_a_result_may_be_cancelled_and_the_run_goes_on() -> None:
    flow = ps.Workflow("w")
    flow.step("a", sleeps, seconds=5)

    async def act(_rig: Rig, handle: ps.RunHandle) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await handle.result()

    assert steer(flow, act).result.ok


def test_closing_penstock_stops_every_run() -> None:
    flow = ps.Workflow("w")
    flow.step("a", sleeps, seconds=25)

    async def main() -> list[str]:
        async with Rig() as rig:
            handles = [await rig.start(flow, id=f"r{n}") for n in range(3)]
            # Ids of one's own choosing must not get in the way.
            for id in ("close", "stop", "parent", "r0!stop"):
                await handles[0].send(ps.Message(id=id, text="hello"))  # type: ignore[arg-type]
            await asyncio.sleep(1)
        assert asyncio.get_running_loop().time() == 1
        return [(await handle.result()).status for handle in handles]

    assert clock.run(main()) == ["aborted"] * 3


def test_a_function_that_hangs_does_not_keep_the_process_alive() -> None:
    program = """
import time, penstock as ps
def hangs(): time.sleep(600)
flow = ps.Workflow("w")
flow.step("a", hangs, timeout=0.1)
print(ps.run(flow).status)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )

    assert done.stdout.strip() == "failed"


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


# --- expressions ---


def test_names_that_arguments_may_use() -> None:
    async def echo(**given: Any) -> dict[str, Any]:
        return given

    flow = ps.Workflow("w")
    flow.input("n", int)
    flow.step("first", echo, x=1, set={"k": "${ output.x }"})
    given = {
        "n": "${ inputs.n + 1 }",
        "run": "${ run.id }",
        "name": "${ run.workflow }",
        "status": "${ steps.first.status }",
        "context": "${ context.k }",
        "iteration": "${ iteration }",
        "attempts": "${ attempts }",
        "before": "${ previous.first.output }",
    }
    flow.output("got", flow.step("a", echo, with_=given))

    assert run(flow, n=1).result.outputs["got"] == {
        "n": 2,
        "run": "run",
        "name": "w",
        "status": "succeeded",
        "context": 1,
        "iteration": 1,
        "attempts": [],
        "before": None,
    }


def test_an_argument_that_cannot_be_computed_fails_the_step_without_calling_it() -> None:
    flow = ps.Workflow("w")
    flow.input("x", default={})
    flow.step("a", sleeps, seconds="${ inputs.x.missing }", retry=3)

    ran = run(flow)

    assert ran.failure("a").kind == "expression"
    assert len(ran.of(TaskStarted, "a")) == 1


@pytest.mark.parametrize(
    ("policy", "status"),
    [(None, "failed"), ("halt", "failed"), ("fallthrough", "skipped"), ("default", "skipped")],
)
def test_a_condition_that_cannot_be_evaluated_follows_its_policy(policy: Any, status: str) -> None:
    flow = ps.Workflow("w")
    flow.input("x", default={})
    flow.step("a", nothing, when="inputs.x.missing == 1", on_expr_error=policy)

    result = run(flow).result

    assert result.steps["a"].status == status
    assert "missing" in result.steps["a"].reason


def test_a_later_output_is_visible_to_a_condition_that_was_compiled_before() -> None:
    async def give(n: int) -> int:
        return n

    flow = ps.Workflow("w")
    for n in range(3):
        flow.step(f"give{n}", give, n=n, needs=[f"use{n - 1}"] if n else [])
        flow.step(f"use{n}", nothing, when=f"steps.give{n}.output == {n}")

    assert run(flow).result.counts == {"succeeded": 6}


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
