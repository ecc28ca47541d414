"""Loops into which something comes: questions, commands, forks, restarts; and maps and approvals within."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from loops import critic, microloop, rounds, waiting_for_slow

from penstock.ids import StepId
from penstock.run.commands import Abort, Decide, InjectTasks, Pause, Resume, RetryStep, SkipStep
from penstock.run.events import DecisionMade, TaskStarted
from penstock.run.facts import BackoffElapsed
from penstock.testing.puppet import Puppet, puppet, routing, step

# --- a question inside ---


def waiting_inside() -> Puppet:
    """An inner router waits for a person when the outer loop turns: its target does not wait for it."""
    p = puppet(
        step("draft"),
        step("inner", "draft", routing=routing(("output == 1", "human"), next="end")),
        step("quick", "draft"),
        step("outer", "inner", "quick", join="any_success",
             routing=routing(("output.ok", "end"), loop_target="draft", max_iterations=3)),
    )  # fmt: skip
    p.returns("draft", 1)
    p.returns("inner", 1)
    p.returns("quick", 1)
    return p


def test_a_question_inside_a_loop_that_turns_is_withdrawn_on_record() -> None:
    p = waiting_inside()
    (asked,) = p.run.decisions.values()

    p.returns("outer", {"ok": False})

    (made,) = [event for event in p.events if isinstance(event, DecisionMade)]
    assert (made.decision, made.verb, made.message) == (
        asked.decision,
        "withdrawn",
        "inner is opened again",
    )
    assert p.run.decisions == {}
    assert p.iteration("inner") == 2


def test_nobody_can_answer_a_question_that_was_withdrawn() -> None:
    p = waiting_inside()
    (asked,) = p.run.decisions.values()
    p.returns("outer", {"ok": False})

    said = p.send(Decide(decision=asked.decision, verb="respond", args={"target": "end"}))

    assert said == f"no open decision {asked.decision!r}"


# --- commands, forks and restarts ---


def test_retry_step_inside_a_loop_stays_in_its_iteration() -> None:
    p = puppet(
        step("list"),
        step("author", "list"),
        critic(),
        step("mail", "author"),
        step("publish", "author"),
        step("busy"),
    )
    p.returns("list")
    rounds(p, 1)
    p.raises("author")
    assert p["critic"] == "skipped"

    assert p.send(RetryStep(step=StepId("author"))) == ""
    assert (p["author"], p.iteration("author"), p["critic"], p["publish"]) == (
        "running",
        2,
        "waiting",
        "dormant",
    )
    assert p["mail"] == "waiting"
    rounds(p, 1, ok=True)
    for name in ("mail", "publish", "busy"):
        p.returns(name)
    assert p.status == "succeeded"


def test_opening_a_loop_again_from_a_fork_goes_on_in_its_iteration() -> None:
    p = microloop()
    p.returns("list")
    rounds(p, 2)
    rounds(p, 1, ok=True)
    p.returns("mail")
    p.returns("publish")
    p.restarts("author", "critic", "mail", "publish")

    assert p.running == ["author"]
    assert p.iteration("author") == 3
    p.returns("author", "other")
    assert p["mail"] == "waiting"
    p.returns("critic", {"ok": False})
    assert p.taken[-1] == ("critic", "publish", "next")
    p.returns("mail")
    p.returns("publish")
    assert p.status == "succeeded"


@pytest.mark.parametrize("moment", range(7))
def test_a_restart_at_any_moment_of_a_loop_changes_nothing(moment: int) -> None:
    p = microloop()
    moves: list[Callable[[], None]] = [
        lambda: p.returns("list"),
        lambda: p.returns("author", 1),
        lambda: p.returns("critic", {"ok": False}),
        lambda: p.returns("author", 2),
        lambda: p.returns("critic", {"ok": True}),
        lambda: p.returns("publish"),
        lambda: p.returns("mail"),
    ]
    for n, move in enumerate(moves):
        if n == moment:
            p.restarts()
        move()

    assert p.status == "succeeded"
    assert p.taken == [("critic", "author", "loop"), ("critic", "publish", "condition")]
    assert p.started("author") == [1, 2]


def test_a_restart_while_the_loop_waits_for_a_body_step_turns_it_later() -> None:
    p = waiting_for_slow()
    p.restarts()
    p.returns("slow")

    assert p.running == ["author"]


def test_an_abort_while_the_loop_waits_for_a_body_step_ends_the_run() -> None:
    p = waiting_for_slow()
    p.send(Abort(reason="enough"))
    p.returns("slow")

    assert p.status == "aborted"


def test_the_end_of_the_run_does_not_wait_for_a_loop_that_was_about_to_turn() -> None:
    p = puppet(
        step("author"),
        step("quick", "author"),
        step("slow", "author"),
        step("critic", "quick", "slow", join="any_success",
             routing=routing(loop_target="author", max_iterations=2, next="end")),
        step("ask", routing=routing(next="end")),
    )  # fmt: skip
    p.returns("author", 1)
    p.returns("quick")
    p.returns("critic", 1)
    p.returns("ask")
    p.returns("slow")

    assert p.status == "succeeded"


def test_a_paused_run_turns_its_loop_and_starts_it_when_it_goes_on() -> None:
    p = microloop()
    p.returns("list")
    p.returns("author", 1)
    p.send(Pause())
    p.returns("critic", {"ok": False})
    assert (p["author"], p.iteration("author")) == ("waiting", 2)

    p.send(Resume())
    assert p["author"] == "running"


def test_a_body_step_may_be_skipped_by_command_and_returns_in_the_next_iteration() -> None:
    p = puppet(
        step("author"),
        step("extra", "author"),
        step("slow", "author"),
        step("critic", "extra", "slow", join="none_failed",
             routing=routing(loop_target="author", max_iterations=2, next="end")),
    )  # fmt: skip
    assert p.send(SkipStep(step=StepId("extra"))) == ""
    p.returns("author", 1)
    p.returns("slow")
    p.returns("critic", 1)
    p.returns("author", 2)

    assert p["extra"] == "running"


def test_a_step_injected_after_a_loop_waits_for_its_end() -> None:
    p = microloop()
    p.returns("list")
    p.returns("author", 1)
    assert p.send(InjectTasks(steps=(step("x", "author"),))) == ""
    assert p["x"] == "waiting"
    p.returns("critic", {"ok": False})
    p.returns("author", 2)
    p.returns("critic", {"ok": True})

    assert p["x"] == "running"


# --- maps in loops ---


def mapped(**parts: Any) -> Puppet:
    return puppet(
        step("each", for_each="[1, 2]", **parts),
        step("check", "each", routing=routing(("output", "each"), max_iterations=4, next="end")),
        step("a"),
    )


def test_a_map_in_a_loop_runs_all_its_items_again() -> None:
    p = mapped()
    for n in range(2):
        p.counts("each", [1, 2])
        p.returns("each", n, item=0)
        p.returns("each", n, item=1)
        p.returns("check", n == 0)
    p.returns("a")

    assert p.status == "succeeded"
    tasks = [
        (e.iteration, e.item, e.attempt) for e in p.events if isinstance(e, TaskStarted) and e.step == "each"
    ]
    assert tasks == [(1, None, 1), (1, 0, 1), (1, 1, 1), (2, None, 1), (2, 0, 1), (2, 1, 1)]


def test_a_map_may_have_another_number_of_items_each_time() -> None:
    p = mapped()
    p.counts("each", [1, 2, 3])
    for item in range(3):
        p.returns("each", 0, item=item)
    p.returns("check", True)
    p.counts("each", [])
    p.returns("check", False)
    p.returns("a")

    assert p.status == "succeeded"


def test_a_map_that_comes_to_the_same_three_times_is_a_stall() -> None:
    p = mapped()
    for _ in range(3):
        p.counts("each", [1, 2])
        p.returns("each", "x", item=1)
        p.returns("each", "x", item=0)
        p.returns("check", True)

    assert p.taken[-1] == ("check", "end", "stall")


def test_a_map_in_flight_finishes_before_the_loop_turns() -> None:
    p = puppet(
        step("author"),
        step("each", "author", for_each="[1, 2]"),
        step("quick", "author"),
        step("critic", "quick", "each", join="any_success",
             routing=routing(loop_target="author", max_iterations=2, next="end")),
    )  # fmt: skip
    p.returns("author", 1)
    p.counts("each", [1, 2])
    p.returns("quick")
    p.returns("critic", 1)
    p.returns("each", 1, item=0)
    assert p.iteration("author") == 1
    p.returns("each", 1, item=1)

    assert p.running == ["author"]


# --- approvals in loops ---


def test_a_call_that_was_being_made_ready_when_the_loop_turned_is_made_ready_anew() -> None:
    p = puppet(
        step("author"),
        step("quick", "author"),
        step("send", "author", approval="always"),
        step("critic", "quick", "send", join="any_success",
             routing=routing(loop_target="author", max_iterations=2, next="end_")),
        step("end_"),
    )  # fmt: skip
    p.returns("author", 1)
    p.returns("quick")
    p.returns("critic", 1)
    assert p.running == ["author"]
    p.prepares("send")  # of the first iteration: too late
    p.returns("author", 2)
    p.prepares("send")

    assert [question.iteration for question in p.questions] == [2]
    assert p["send"] == "asking"


def test_each_iteration_of_a_step_that_needs_approval_is_asked_about() -> None:
    p = puppet(
        step("send", approval="always", routing=routing(("output", "send"), max_iterations=2, next="end"))
    )
    for n in range(2):
        p.prepares("send")
        p.answer("approve")
        p.tell(BackoffElapsed(0, n + 1, None, 0))
        p.returns("send", n == 0)

    assert p.status == "succeeded"
    assert [question.iteration for question in p.questions] == [1, 2]


def test_a_loop_that_was_about_to_turn_when_the_run_was_stopped_turns_when_it_goes_on() -> None:
    p = puppet(
        step("author"), step("quick", "author"), step("slow", "author"),
        step("critic", "quick", "slow", join="any_success",
             routing=routing(loop_target="author", max_iterations=2, next="end")),
    )  # fmt: skip
    p.returns("author", 1)
    p.returns("quick")
    p.returns("critic", 1)
    p.send(Abort())
    p.returns("slow")
    p.restarts()

    assert p.running == ["author"]


def test_a_run_that_a_route_ended_goes_on_when_it_is_opened_again() -> None:
    p = puppet(step("ask", routing=routing(("output", "end"), next="left")), step("left"))
    p.returns("ask", True)
    p.restarts("ask", "left")

    assert p.running == ["ask"]


def test_a_loop_that_succeeds_when_it_is_opened_again_leaves_nothing_short() -> None:
    p = puppet(
        step("work", routing=routing(("output.ok", "after"), loop_target="work", max_iterations=2)),
        step("after"),
    )
    p.returns("work", {"ok": False, "n": 1})
    p.returns("work", {"ok": False, "n": 2})
    p.restarts("work", "after")
    p.returns("work", {"ok": True})
    p.returns("after")

    assert p.status == "succeeded"


def test_a_failure_that_a_next_round_made_good_is_not_blamed_for_another() -> None:
    p = puppet(
        step("author"),
        step("check", "author"),
        step("critic", "check", join="all_done",
             routing=routing(("output.ok", "end"), loop_target="author", max_iterations=3)),
        step("other"),
    )  # fmt: skip
    p.returns("author", 1)
    p.raises("check")
    p.returns("critic", {"ok": False})
    p.returns("author", 2)
    p.returns("check", 2)
    p.raises("other", "no paper")
    p.returns("critic", {"ok": True})

    assert (p.status, p.run.reason) == ("failed", "step other failed: no paper")
