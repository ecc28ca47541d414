"""Timeouts of tasks and of runs, and what is tried again. Virtual time."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from ran import nothing, run, sleeps, stubborn

import penstock as ps
from penstock.engines.tasks import GRACE
from penstock.errors import UpstreamUnavailable
from penstock.ids import RunId
from penstock.run.events import TaskStarted
from penstock.testing import clock
from penstock.testing.rig import Rig

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


def test_a_function_that_says_when_to_ask_again_is_not_asked_before() -> None:
    calls = []

    async def busy_once() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise UpstreamUnavailable("the index is being built", retry_after=40)
        return "at last"

    flow = ps.Workflow("w")
    flow.step("a", busy_once, retry={"max_attempts": 2, "backoff": 1, "jitter": 0})

    ran = run(flow)

    assert ran.result.ok
    assert ran.seconds == 40
    assert (ran.failure("a").kind, ran.failure("a").name) == ("unavailable", "UpstreamUnavailable")


def test_a_run_is_unavailable_when_that_is_why_it_failed_and_nothing_else_is() -> None:
    async def away() -> None:
        raise UpstreamUnavailable("nobody is there")

    async def boom() -> None:
        raise ValueError

    alone, both, dealt_with = ps.Workflow("alone"), ps.Workflow("both"), ps.Workflow("dealt-with")
    for flow in (alone, both, dealt_with):
        flow.step("away", away, on_error="continue" if flow is dealt_with else None)
        flow.step("boom", boom if flow is not alone else nothing)

    assert [run(flow).result.unavailable for flow in (alone, both, dealt_with)] == [True, False, False]


# --- a process that ends in between ---


@pytest.mark.parametrize(("away", "again"), [(10.0, 60.0), (500.0, 500.0)])
def test_a_wait_goes_on_after_a_restart_for_what_is_left_of_it(away: float, again: float) -> None:
    calls: list[float] = []

    @ps.tool(effect="read")
    async def flaky() -> int:
        calls.append(asyncio.get_running_loop().time())
        if len(calls) == 1:
            raise OSError
        return 1

    async def main() -> None:
        async with Rig(flaky) as rig:
            flow = ps.Workflow("w")
            flow.step("a", flaky, retry={"max_attempts": 2, "backoff": 60, "jitter": 0})
            await rig.start(flow)
            await asyncio.sleep(5)
            rig.penstock.engine.live[RunId("run")].let_go("the process died")
            await asyncio.sleep(away - 5)

            result = await (await rig.penstock.resume("run")).result()

            assert result.ok
            assert calls == [0.0, pytest.approx(again, abs=1e-3)]

    clock.run(main())
