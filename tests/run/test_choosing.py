"""Routes that the conditions leave open: a person picks one, or a tie-breaker does."""

from __future__ import annotations

import math
from typing import Any

import pytest

from penstock.run.commands import Abort, Pause, Resume
from penstock.testing.puppet import Puppet, puppet, routing, step

LEFT, RIGHT = step("left"), step("right")


# --- a person chooses ---


def human() -> Puppet:
    return puppet(
        step("ask", routing=routing(("output", "left"), next="human", branches={"r": "right"})), LEFT, RIGHT
    )


def test_human_asks_a_person_to_pick_one_of_the_declared_targets() -> None:
    p = human()
    p.returns("ask", False)

    (question,) = p.questions
    assert (question.kind, question.step, question.options) == ("route", "ask", ("respond", "abort"))
    assert question.decision == f"r:{question.seq}"
    assert question.schema["respond"]["properties"]["target"]["enum"] == ["left", "right", "end"]
    assert p.status == "waiting"
    assert p.routes[0].needs_human


def test_the_answer_takes_the_route_and_says_who_chose() -> None:
    p = human()
    p.returns("ask", False)
    assert p.answer("respond", target="right") == ""

    assert p.taken == [("ask", "human", "next"), ("ask", "right", "human")]
    assert p.routes[-1].reason == "chosen by someone"
    assert (p["left"], p["right"]) == ("skipped", "running")


@pytest.mark.parametrize("target", ["ask", "nobody", "human", None, 3, ["left"], {"a": 1}])
def test_an_answer_that_names_no_legal_target_is_refused_and_the_question_stays(target: Any) -> None:
    p = human()
    p.returns("ask", False)

    assert "choose a target" in p.answer("respond", target=target)
    assert p.status == "waiting"
    assert p.answer("respond", target="left") == ""


def test_a_person_may_end_the_run() -> None:
    p = human()
    p.returns("ask", False)
    p.answer("respond", target="end")

    assert p.status == "succeeded"


def test_a_person_may_abort_the_run() -> None:
    p = human()
    p.returns("ask", False)
    p.answer("abort")

    assert p.status == "aborted"


def test_others_go_on_while_a_person_thinks() -> None:
    p = puppet(
        step("ask", routing=routing(("output", "left"), next="human")),
        LEFT,
        step("busy"),
        step("after", "busy"),
    )
    p.returns("ask", False)
    p.returns("busy")

    assert (p.status, p["after"]) == ("running", "running")


def test_a_restart_while_a_person_thinks_neither_asks_again_nor_loses_the_answer() -> None:
    p = human()
    p.returns("ask", False)
    p.restarts()
    assert (len(p.questions), p.status) == (1, "waiting")

    p.answer("respond", target="left")
    p.restarts()
    assert p["left"] == "running"
    assert len(p.questions) == 1


def test_a_paused_run_takes_the_answer_and_starts_its_target_when_it_goes_on() -> None:
    p = human()
    p.returns("ask", False)
    p.send(Pause())
    p.answer("respond", target="left")
    assert p["left"] == "waiting"

    p.send(Resume())
    assert p["left"] == "running"


# --- tie-breakers ---


def tied(**parts: Any) -> Puppet:
    return puppet(step("ask", routing=routing(tie=("left", "right"), next="right", **parts)), LEFT, RIGHT)


def test_a_tie_breaker_gets_only_the_declared_targets_and_its_legal_answer_counts() -> None:
    p = tied()
    p.returns("ask", {})
    assert p.ties == [("left", "right")]
    assert p.taken == []

    p.breaks_tie("ask", "left", 0.9, reasoning="shorter")

    (route,) = p.routes
    assert (route.target, route.rule, route.confidence, route.reason) == (
        "left",
        "tie_breaker",
        0.9,
        "shorter",
    )
    assert (route.tie_breaker_used, route.needs_human) == (True, False)


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (("nobody", 1.0), "'nobody', which is not one of left, right"),
        (("ask", 1.0), "not one of"),
        (("end", 1.0), "not one of"),
        (("human", 1.0), "not one of"),
        (("", 1.0), "not one of"),
        (("left", 0.69), "not sure of left: 0.69 < 0.7"),
        (("left", math.nan), "not sure of left"),
        (("left", -math.inf), "not sure of left"),
        (("left", math.inf), "not between 0 and 1"),
        (("left", 95.0), "not between 0 and 1"),
    ],
)
def test_an_answer_that_is_illegal_or_unsure_falls_back_with_the_reason_on_record(
    answer: tuple[str, float], part: str
) -> None:
    p = tied()
    p.returns("ask", {})
    p.breaks_tie("ask", *answer)

    (route,) = p.routes
    assert (route.target, route.rule, route.needs_human, route.tie_breaker_used) == (
        "right",
        "next",
        True,
        False,
    )
    assert part in route.reason


def test_no_answer_falls_back_with_the_reason_on_record() -> None:
    p = tied()
    p.returns("ask", {})
    p.breaks_tie("ask", error="the tie-breaker did not answer within 30 s", confidence=0.0)

    assert (p.routes[0].target, p.routes[0].needs_human) == ("right", True)
    assert "did not answer" in p.routes[0].reason


def test_the_fallback_of_a_tie_is_the_loop_while_it_is_open() -> None:
    p = puppet(
        step(
            "work", routing=routing(tie=("left", "right"), loop_target="work", max_iterations=2, next="right")
        ),
        LEFT,
        RIGHT,
    )
    p.returns("work", {})
    p.breaks_tie("work", "nobody")
    p.returns("work", {})
    p.breaks_tie("work", "nobody")

    assert p.taken == [("work", "work", "loop"), ("work", "right", "next")]


def tied_again(*, times: int) -> Puppet:
    """A tie that was broken by going back, and stands again."""
    ways = routing(tie=("work", "left", "right"), max_iterations=times, next="right")
    p = puppet(step("work", routing=ways), LEFT, RIGHT)
    p.returns("work", 1)
    p.breaks_tie("work", "work")
    p.returns("work", 2)
    return p


def test_a_tie_breaker_is_not_offered_a_way_back_that_is_closed() -> None:
    p = tied_again(times=2)

    assert p.ties == [("work", "left", "right"), ("left", "right")]
    p.breaks_tie("work", "work")
    assert p.taken[-1] == ("work", "right", "next")


def test_an_answer_about_an_earlier_iteration_changes_nothing() -> None:
    p = tied_again(times=3)
    p.breaks_tie("work", "left", iteration=1)
    assert len(p.taken) == 1

    p.breaks_tie("work", "right")
    p.breaks_tie("work", "left")
    assert len(p.taken) == 2


def test_after_a_restart_a_tie_breaker_is_asked_once_more_and_once_only() -> None:
    p = tied_again(times=3)
    before = len(p.ties)
    p.restarts()

    assert len(p.ties) == before + 1
    p.breaks_tie("work", "left")
    assert p["left"] == "running"


# --- either ---


def test_a_run_that_is_aborted_while_a_router_waits_ends() -> None:
    for p in (human(), tied()):
        p.returns("ask", {})
        p.send(Abort(reason="enough"))
        assert p.status == "aborted"
