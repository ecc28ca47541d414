"""What steps are given, what they give back, and what expressions make of it."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import math
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from ran import nothing, run, sleeps

import penstock as ps
from penstock.run.events import TaskStarted
from penstock.testing import clock
from penstock.testing.rig import Rig

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


@pytest.mark.parametrize(
    "value",
    [
        object(), {1, object()}, "\ud800", {"a": b"\xff", "b": object()}, math.nan, -math.inf,
        {"a": None, "b": [1.5, (math.inf,)]},
    ],
)  # fmt: skip
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
