"""What a task cost is counted however it ends, and so is what a run asks models itself. The core alone."""

from __future__ import annotations

from typing import Any

import pytest
from core import Core

import penstock as ps
from penstock.ids import StepId
from penstock.run.events import ModelCalled, TaskFailed, WorkflowResumed, decode, encode
from penstock.run.facts import ModelsAsked, RunReopened
from penstock.run.usage import used

CALL = {"served_by": "", "cost": 0.5, "tokens": 20, "error": "nobody answers"}
USED = {"tokens": 20.0, "tool_calls": 3.0}


def flow(**parts: Any) -> ps.Workflow:
    made = ps.Workflow("w")
    made.step("a", "t:a", **parts)
    return made


def test_a_task_that_fails_costs_what_its_models_and_its_child_did() -> None:
    core = Core.of(flow())

    batch = core.raised("a", usage=USED, calls=(CALL,))

    assert [type(event) for event in batch[:2]] == [ModelCalled, TaskFailed]
    assert used(core.run) == {"usd": 0.5, "tokens": 40.0, "tool_calls": 4.0, "wall": 0.0}


def test_each_attempt_and_each_item_costs() -> None:
    core = Core.of(flow(for_each=[1, 2], retry={"max_attempts": 2, "backoff": 0}, on_item_error="keep"))
    core.counted("a", [1, 2])
    core.raised("a", 0, usage=USED)
    core.elapse()
    core.raised("a", 0, usage=USED)
    core.returned("a", "fine", 1, usage=USED)

    assert used(core.run)["tokens"] == 60


def test_the_budget_of_a_step_knows_of_its_failures() -> None:
    core = Core.of(flow(budget={"tokens": 20}, retry={"max_attempts": 3, "backoff": 0}))
    core.raised("a", usage=USED)
    core.elapse()

    assert core.question.call == {"budget": "a/tokens", "used": 20, "limit": 20}
    assert core.run.status == "waiting", "an attempt that may not begin is nothing that goes on"


def test_the_time_of_whoever_is_asked_about_it_is_not_counted() -> None:
    core = Core.of(flow(budget={"tokens": 20, "wall": "1h"}, retry={"max_attempts": 3, "backoff": 0}))
    core.raised("a", usage=USED)
    core.elapse()
    core.now += 10_000
    core.answer("raise")

    assert used(core.run)["wall"] == 0


def test_a_result_that_cannot_be_used_is_paid_for() -> None:
    core = Core.of(flow(set={"n": "${ output.missing.deep }"}))
    core.returned("a", 1, usage=USED, calls=(CALL,))

    assert core.status("a") == "failed"
    assert used(core.run)["tokens"] == 40


def test_models_that_a_run_asks_itself_are_on_record_until_its_end() -> None:
    core = Core.of(flow())
    (event,) = core.tell(ModelsAsked((CALL,), StepId("a")))
    assert isinstance(event, ModelCalled)
    assert (event.step, event.call) == ("a", CALL)
    core.returned("a")

    assert core.run.status == "succeeded"
    assert core.tell(ModelsAsked((CALL,))) == []
    assert used(core.run)["usd"] == 0.5


def test_a_further_attempt_counts_from_where_it_goes_on_and_has_what_is_left_now() -> None:
    made = ps.Workflow("w", budget={"tool_calls": 2})
    made.step("a", "t:a")
    made.step("b", "t:b", needs=["a"])
    core = Core.of(made)
    core.returned("a", usage={"tokens": 5.0})
    core.raised("b", usage=USED)
    assert core.run.status == "failed"

    core.tell(RunReopened("goes on", "fork", (StepId("b"),), allowance={"tokens": 7.0}))
    assert core.status("b") == "running", "its budget is its own, and not spent"
    assert used(core.run) == {"tool_calls": 1, "wall": 0.0}
    core.raised("b", usage={"tokens": 7.0})

    assert used(core.run) == {"tool_calls": 1.0, "tokens": 7.0, "wall": 0.0}
    assert core.taken_up(kept=True).run.allowance == {"tokens": 7.0}


def test_any_other_fork_goes_on_counting() -> None:
    core = Core.of(flow())
    core.raised("a", usage=USED)
    core.tell(RunReopened("forked", "fork", (StepId("a"),)))

    assert used(core.run)["tokens"] == 20


@pytest.mark.parametrize(
    "event", [TaskFailed(1, 2.0, StepId("a"), "no"), WorkflowResumed(1, 2.0, "taken up", "process")]
)
def test_what_is_not_said_is_not_written(event: Any) -> None:
    written = encode(event)

    assert b"usage" not in written
    assert b"allowance" not in written
    assert decode(written) == event
