"""Budgets: when someone is told, when someone is asked, and what the answers do. The core alone."""

from __future__ import annotations

from typing import Any

import pytest
from core import Core

import penstock as ps
from penstock.ids import StepId
from penstock.run.commands import RequestDecision
from penstock.run.events import BudgetWarned, DecisionRequired, TaskFailed
from penstock.run.facts import RunReopened
from penstock.run.usage import used


def steps(count: int, **budget: Any) -> ps.Workflow:
    """Steps one after the other."""
    flow = ps.Workflow("w", budget=budget) if budget else ps.Workflow("w")
    before: list[str] = []
    for n in range(count):
        flow.step(f"s{n}", "t:s", needs=before)
        before = [f"s{n}"]
    return flow


def warned(core: Core) -> list[tuple[str, float, float, str | None]]:
    return [(e.budget, e.used, e.limit, e.step) for e in core.of_kind(BudgetWarned)]


def test_four_fifths_of_a_budget_are_worth_one_warning() -> None:
    core = Core.of(steps(7, tool_calls=10))
    for n in range(7):
        core.returned(f"s{n}")
    assert warned(core) == []
    core = Core.of(steps(10, tool_calls=10))
    for n in range(10):
        core.returned(f"s{n}")

    assert warned(core) == [("tool_calls", 8, 10, None)]
    assert core.run.status == "succeeded"


def test_at_its_end_someone_is_asked_and_nothing_new_starts() -> None:
    flow = steps(3, tool_calls=2)
    flow.step("slow", "t:slow", estimate="1h")
    core = Core.of(flow)
    core.returned("s0")

    assert core.question.kind == "budget"
    assert core.question.options == ("raise", "finish", "abort")
    assert core.question.call == {"budget": "tool_calls", "used": 2, "limit": 2}
    assert core.run.status == "running", "what runs goes on"
    core.returned("slow")
    assert (core.run.status, core.status("s1")) == ("waiting", "ready")
    assert len(core.of_kind(DecisionRequired)) == 1


@pytest.mark.parametrize(("args", "limit"), [(None, 4), ({"tool_calls": 3}, 3)])
def test_raise_gives_more(args: Any, limit: int) -> None:
    core = Core.of(steps(5, tool_calls=2))
    core.returned("s0")
    core.returned("s1")
    assert core.answer("raise", args=args, by="ada") == ""
    for n in range(2, limit):
        core.returned(f"s{n}")

    assert core.question.call["limit"] == limit
    assert [made["verb"] for made in core.run.decided] == ["raise"]


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"tool_calls": 2}, "2 would not help: 2 is used already"),
        ({"tool_calls": "many"}, "raise takes one number"),
        ({"tool_calls": True}, "raise takes one number"),
        ({"usd": 5}, "raise takes one number"),
        ({"tool_calls": 5, "usd": 5}, "raise takes one number"),
    ],
)
def test_a_raise_that_would_not_help_is_refused(args: dict[str, Any], reason: str) -> None:
    core = Core.of(steps(3, tool_calls=2))
    core.returned("s0")
    core.returned("s1")

    assert reason in core.answer("raise", args=args)
    assert core.question.kind == "budget"


def test_twice_nothing_is_nothing_so_an_amount_is_needed() -> None:
    core = Core.of(steps(1, tool_calls=0))

    assert "raise needs an amount" in core.answer("raise")
    assert core.answer("raise", args={"tool_calls": 1}) == ""
    core.returned("s0")
    assert core.run.status == "succeeded"


def test_finish_ends_with_what_there_is() -> None:
    flow = steps(3, tool_calls=2)
    flow.output("first", "${ steps.s0.output }")
    core = Core.of(flow)
    core.returned("s0", 1)
    core.returned("s1", 1)
    core.answer("finish", message="enough")
    core.collected(first=1)

    assert (core.run.status, core.run.reason) == ("partial", "enough")
    assert core.status("s2") == "skipped"


def test_finish_keeps_a_map_from_starting_more_items() -> None:
    flow = ps.Workflow("w", budget={"tool_calls": 2})
    flow.step("each", "t:each", for_each=[1, 2, 3])
    core = Core.of(flow)
    core.counted("each", [1, 2, 3])
    core.returned("each", 1, item=0)
    core.returned("each", 1, item=1)
    assert core.run.status == "waiting"
    core.answer("finish")

    assert core.run.decisions == {}
    assert core.run.status == "failed"
    assert "1 of 3 items did not run" in core.of_kind(TaskFailed)[-1].error


def test_finish_lets_items_that_run_finish_first() -> None:
    flow = ps.Workflow("w", budget={"tool_calls": 2})
    flow.step("each", "t:each", for_each=[1, 2, 3])
    core = Core.of(flow)
    core.counted("each", [1, 2, 3])
    core.answer("finish")
    assert core.run.status == "running"
    core.returned("each", 1, item=0)
    core.returned("each", 1, item=1)

    assert core.run.status == "failed"
    assert len(core.started()) == 3


def test_finish_gives_up_what_waits_to_be_tried_again() -> None:
    flow = ps.Workflow("w", budget={"tool_calls": 1})
    flow.step("a", "t:a", retry={"max_attempts": 3, "backoff": 1})
    core = Core.of(flow)
    core.raised("a")
    core.elapse()
    assert core.question.kind == "budget"
    core.answer("finish")

    assert core.run.decisions == {}
    assert core.run.status == "failed"
    assert len(core.started()) == 1


def test_raise_lets_a_map_go_on() -> None:
    flow = ps.Workflow("w", budget={"tool_calls": 1})
    flow.step("each", "t:each", for_each=[1, 2, 3])
    core = Core.of(flow)
    core.counted("each", [1, 2, 3])
    core.returned("each", 1, item=0)
    core.answer("raise", args={"tool_calls": 10})
    for n in (1, 2):
        core.returned("each", 1, item=n)

    assert core.run.status == "succeeded"


def test_abort_stops_the_run() -> None:
    core = Core.of(steps(3, tool_calls=2))
    core.returned("s0")
    core.returned("s1")
    core.answer("abort", message="too dear")

    assert (core.run.status, core.run.reason) == ("aborted", "too dear")


# --- what counts ---


def test_tool_calls_count_items_and_attempts_but_not_maps() -> None:
    flow = ps.Workflow("w", budget={"tool_calls": 100})
    flow.step("each", "t:each", for_each=[1, 2], retry={"max_attempts": 2, "backoff": 0})
    core = Core.of(flow)
    core.counted("each", [1, 2])
    core.raised("each", item=0)
    core.elapse()
    core.returned("each", item=0)
    core.returned("each", item=1)

    assert used(core.run)["tool_calls"] == 3


def test_money_and_tokens_count_when_a_task_says_what_it_cost() -> None:
    core = Core.of(steps(3, usd=1.0, tokens=1000))
    core.returned("s0", usage={"usd": 0.85, "tokens": 10})
    assert warned(core) == [("usd", 0.85, 1.0, None)]
    core.returned("s1", usage={"usd": 0.2})

    assert core.question.call == {"budget": "usd", "used": pytest.approx(1.05), "limit": 1.0}


def test_a_result_that_its_gate_refused_has_cost_what_it_cost() -> None:
    flow = ps.Workflow("w", budget={"usd": 10})
    flow.step("a", "t:a", gate=[{"expr": "output > 1"}])
    core = Core.of(flow)
    core.returned("a", 0, usage={"usd": 1.0})
    assert core.run.usage["usd"] == 1.0
    core.checked("a", "failed", output=0)
    core.elapse()
    core.returned("a", 5, usage={"usd": 2.0})
    core.checked("a", "passed", output=5)

    assert core.run.usage["usd"] == 3.0


def test_a_step_has_a_budget_of_its_own_and_the_others_do_not_draw_on_it() -> None:
    flow = ps.Workflow("w")
    flow.step("a", "t:a", retry={"max_attempts": 5, "backoff": 0}, budget={"tool_calls": 2})
    flow.step("b", "t:b", retry={"max_attempts": 5, "backoff": 0})
    core = Core.of(flow)
    for step in "bbbaa":
        core.raised(step)
        core.elapse()

    assert core.question.call["budget"] == "a/tool_calls"
    assert "of a for tool_calls" in core.question.summary
    core.answer("raise")
    core.returned("a")
    core.returned("b")
    assert core.run.status == "succeeded"


# --- time ---


def test_waiting_for_a_person_is_not_time_at_work() -> None:
    core = Core.of(steps(3, wall="100s"))
    core.now += 30
    core.send(RequestDecision())
    core.returned("s0")
    core.now += 10_000
    core.answer("approve")
    core.now += 40
    core.returned("s1")

    assert core.run.worked == pytest.approx(70)
    assert core.run.decisions == {}


def test_a_pause_is_not_time_at_work() -> None:
    core = Core.of(steps(2, wall="100s"))
    core.send(ps.Pause())
    core.now += 500
    core.send(ps.Resume())
    core.returned("s0")

    assert core.run.worked == 0


def test_nobody_worked_while_no_process_drove_the_run() -> None:
    core = Core.of(steps(2, wall="100s"))
    core.now += 5
    core.send(ps.Message(text="still here"))
    core.now += 10_000
    core = core.taken_up()
    core.returned("s0")

    assert core.run.worked == pytest.approx(5)
    assert core.run.decisions == {}


def test_time_that_is_up_asks_before_the_next_start() -> None:
    core = Core.of(steps(3, wall="100s"))
    core.now += 90
    core.returned("s0")
    assert warned(core) == [("wall", 90, 100, None)]
    core.now += 20
    core.returned("s1")

    assert core.question.call == {"budget": "wall", "used": 110, "limit": 100}


def test_a_step_may_have_a_limit_of_its_own_time() -> None:
    flow = ps.Workflow("w")
    flow.step("a", "t:a", retry={"max_attempts": 5, "backoff": 0}, budget={"wall": "50s"})
    flow.step("b", "t:b", retry={"max_attempts": 5, "backoff": 0})
    core = Core.of(flow)
    core.now += 30
    core.raised("a")
    core.elapse()
    core.now += 30
    core.raised("a")
    core.elapse()

    assert core.question.call == {"budget": "a/wall", "used": 60, "limit": 50}


# --- another process ---


@pytest.mark.parametrize("kept", [False, True])
def test_what_was_used_and_raised_survives_a_restart(kept: bool) -> None:
    core = Core.of(steps(9, tool_calls=2))
    core.returned("s0")
    core.returned("s1")
    core = core.taken_up(kept=kept)
    assert len(core.of_kind(DecisionRequired)) == 1
    core.answer("raise")
    core = core.taken_up(kept=kept)
    core.returned("s2")
    core.returned("s3")

    assert core.question.call["used"] == 4


def test_a_run_without_budgets_keeps_no_books() -> None:
    core = Core.of(steps(2))
    core.returned("s0", usage=None)
    core.tell(RunReopened("again"))

    assert (core.run.usage, core.run.worked) == ({}, 0.0)
    assert core.status("s1") == "running"
    assert StepId("s1") in core.run.graph.index
