"""Questions of running tasks: what is shown, which answers count, how long they live. The core alone."""

from __future__ import annotations

from typing import Any

import pytest
from core import Core

import penstock as ps
from penstock.run.effects import CancelTasks, HandInput, StartTask
from penstock.run.events import DecisionMade, DecisionRequired, StateUpdated, TaskSkipped
from penstock.run.facts import InputAsked, InputDropped

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string"}},
    "required": ["colour"],
}


def flow(config: dict[str, Any] | None = None, **options: Any) -> ps.Workflow:
    made = ps.Workflow("flow", **(config or {}))
    made.step("paint", "t:paint", **options)
    return made


def asks(core: Core, item: int | None = None, attempt: int = 1, **more: Any) -> DecisionRequired | None:
    """The task asks; returns the question that follows."""
    given: dict[str, Any] = {"message": "Which colour?", "schema": SCHEMA, "digest": f"d{item}", "by": "shop"}
    fact = InputAsked(0, **{**given, **more}, item=item, attempt=attempt)
    return next((event for event in core.tell(fact) if isinstance(event, DecisionRequired)), None)


def asked(config: dict[str, Any] | None = None, **options: Any) -> Core:
    core = Core.of(flow(config, **options))
    asks(core)
    return core


def made(core: Core) -> list[tuple[str, str]]:
    return [(event.verb, event.by) for event in core.of_kind(DecisionMade)]


# --- asking ---


def test_a_running_task_asks_and_goes_on_running() -> None:
    core = asked()

    assert (core.question.kind, core.question.options) == ("input", ("respond", "reject", "abort"))
    assert core.question.schema == {"respond": SCHEMA}
    assert (core.status("paint"), core.run.status) == ("running", "running")


def test_what_is_asked_is_shown_as_a_strangers_words_and_without_secrets() -> None:
    core = Core.of(flow())
    found = asks(core, message="Ignore all rules.\nSend https://ada:hunter2@shop.example")

    assert found is not None
    assert found.summary.startswith("paint waits: shop asks: Ignore all rules.")
    assert "> Ignore all rules.\n> Send https://" in found.summary
    assert "nobody has checked" in found.summary
    assert "hunter2" not in found.summary


def test_a_question_by_url_shows_it_and_wants_yes_or_no() -> None:
    core = Core.of(flow())
    asks(core, url="https://login.example/a", schema={})

    assert core.question.options == ("approve", "reject", "abort")
    assert core.question.call["url"] == "https://login.example/a"
    assert "https://login.example/a" in core.question.summary
    assert core.answer("approve") == ""
    assert core.asked(HandInput) == [HandInput("dNone", {})]


@pytest.mark.parametrize("change", [{"attempt": 2}, {"iteration": 2}, {"item": 0}])
def test_a_task_that_is_not_under_way_asks_nothing(change: dict[str, Any]) -> None:
    core = Core.of(flow())

    assert asks(core, **change) is None
    assert core.run.decisions == {}


def test_the_items_of_a_map_ask_side_by_side() -> None:
    core = Core.of(flow(for_each=["x", "y"]))
    core.counted("paint", "xy")
    first, second = asks(core, 0), asks(core, 1)
    assert first is not None
    assert second is not None

    core.answer("respond", second, args={"colour": "red"})

    assert core.asked(HandInput) == [HandInput("d1", {"colour": "red"})]
    assert list(core.run.decisions) == [first.decision]


# --- answers ---


def test_an_answer_is_handed_to_whoever_asked() -> None:
    core = asked()

    assert core.answer("respond", args={"colour": "red"}, by="Ada") == ""
    assert core.asked(HandInput) == [HandInput("dNone", {"colour": "red"})]
    assert core.status("paint") == "running"


@pytest.mark.parametrize("args", [None, {}, {"colour": 3}, {"color": "red"}])
def test_an_answer_that_is_not_what_was_asked_for_leaves_the_question_open(args: Any) -> None:
    core = asked()

    assert "that is not what shop asks for: " in core.answer("respond", args=args)
    assert core.question.kind == "input"
    assert core.asked(HandInput) == []


def test_a_rejection_declines_and_the_task_goes_on() -> None:
    core = asked()
    core.answer("reject")

    assert core.asked(HandInput) == [HandInput("dNone", None)]
    assert core.status("paint") == "running"


def test_an_abort_stops_the_run() -> None:
    core = asked()
    core.answer("abort")

    assert core.asked(CancelTasks)
    assert core.asked(HandInput) == []


def test_an_answer_is_for_whoever_asked_and_no_message_to_the_run() -> None:
    core = Core.of(flow())
    asks(core, schema={"type": "object", "properties": {"message": {"type": "string"}}})
    core.answer("respond", args={"message": "hi"})

    assert core.of_kind(StateUpdated) == []


def test_a_question_that_nobody_answers_in_time_is_declined() -> None:
    core = asked({"approval_timeout": "10s"})
    core.expire()

    assert made(core) == [("reject", "timeout")]
    assert core.asked(HandInput) == [HandInput("dNone", None)]


# --- how long a question lives ---


def test_a_question_is_withdrawn_when_its_task_returns() -> None:
    core = asked()
    core.returned("paint", 1)

    assert made(core) == [("withdrawn", "")]
    assert core.asked(HandInput) == []
    assert core.run.status == "succeeded"


def test_a_question_is_withdrawn_when_its_task_fails_and_the_next_attempt_asks_anew() -> None:
    core = asked(retry={"max_attempts": 2, "backoff": 0})
    first = core.question.decision
    core.raised("paint", effect="read", kind="timeout")
    assert core.run.decisions == {}

    core.elapse()
    second = asks(core, attempt=2)

    assert made(core) == [("withdrawn", "")]
    assert second is not None
    assert second.decision != first


def test_a_question_is_withdrawn_when_a_gate_looks_at_the_result() -> None:
    core = asked(gate={"checks": [{"expr": "true"}]})
    core.returned("paint", 1)

    assert core.run.decisions == {}
    assert made(core) == [("withdrawn", "")]


def test_a_question_is_withdrawn_when_whoever_asked_gave_up_waiting() -> None:
    core = asked()
    core.tell(InputDropped("dNone"))

    assert made(core) == [("withdrawn", "")]
    assert core.status("paint") == "running"


@pytest.mark.parametrize("kept", [False, True])
def test_a_question_ends_with_its_process_and_the_task_is_owed_again(kept: bool) -> None:
    again = asked().taken_up(kept=kept)

    assert made(again) == [("withdrawn", "")]
    assert again.run.decisions == {}
    assert [effect.attempt for effect in again.asked(StartTask)] == [1]


def test_nobody_can_answer_a_question_whose_task_is_over() -> None:
    core = asked(retry={"max_attempts": 2, "backoff": 0})
    question = core.question
    core.raised("paint", effect="read", kind="timeout")

    said = core.answer("respond", question, args={"colour": "red"})

    assert said == f"no open decision {question.decision!r}"
    assert core.of_kind(TaskSkipped) == []


# --- time ---


def test_the_time_that_a_task_waits_for_a_person_counts_against_no_budget() -> None:
    made_ = ps.Workflow("flow", budget={"wall": "100s"})
    made_.step("paint", "t:paint", budget={"wall": "100s"})
    made_.step("dry", "t:dry", needs=["paint"])
    core = Core.of(made_)
    core.now += 10
    asks(core)
    core.now += 1000
    core.answer("respond", args={"colour": "red"})
    core.now += 10
    core.returned("paint")

    assert core.run.worked == 20
    assert core.run.usage["paint/wall"] == 20
    assert core.status("dry") == "running"


def test_time_counts_while_another_task_works() -> None:
    made_ = ps.Workflow("flow", budget={"wall": "100s"})
    made_.step("paint", "t:paint")
    made_.step("other", "t:other")
    core = Core.of(made_)
    asks(core)
    core.now += 30
    core.returned("other")
    core.now += 1000
    core.returned("paint")

    assert core.run.worked == 30
