"""Detours on the core alone: a call with automatic return, so deep and no deeper."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.ids import StepId
from penstock.run.commands import Abort, RetryStep
from penstock.testing.puppet import Puppet, puppet, routing, step


def asking(**parts: Any) -> Puppet:
    """A router that may clarify something first."""
    rules = routing(("output.unclear && detour == null", "clarify"), ("detour.output.ok", "left"),
                    next="right", detour="clarify", **parts)  # fmt: skip
    return puppet(step("ask", routing=rules), step("clarify"), step("left"), step("right"))


def test_a_detour_runs_and_the_caller_chooses_again_without_running_again() -> None:
    p = asking()
    p.returns("ask", {"unclear": True})
    assert (p.running, p["left"], p["right"]) == (["clarify"], "dormant", "dormant")

    p.returns("clarify", {"ok": True})
    p.returns("left")
    assert p.taken == [("ask", "clarify", "condition"), ("ask", "left", "condition")]
    assert p.started("ask") == [1]
    assert p.status == "succeeded"


def test_without_the_detour_its_step_is_skipped_like_any_target() -> None:
    p = asking()
    p.returns("ask", {"unclear": False})

    assert p.skip("clarify") == ("not_routed", "ask went elsewhere")
    assert p.taken == [("ask", "right", "next")]


def test_a_detour_that_no_rule_names_is_taken_before_the_first_choice() -> None:
    p = puppet(
        step("ask", routing=routing(("detour.output == 1", "left"), next="right", detour="gather")),
        step("gather"),
        step("left"),
        step("right"),
    )
    p.returns("ask")
    assert p.taken == [("ask", "gather", "detour")]
    p.returns("gather", 1)

    assert p.taken[-1] == ("ask", "left", "condition")


def test_the_caller_of_a_detour_is_one_of_its_needs_that_succeeded() -> None:
    p = puppet(
        step("off", when="false"),
        step("ask", routing=routing(next="right", detour="gather")),
        step("gather", "off", "ask", join="any_success"),
        step("right"),
    )
    p.returns("ask")
    assert p.running == ["gather"]
    p.returns("gather")
    p.returns("right")

    assert p.status == "succeeded"


def test_a_failed_router_makes_no_detour_of_its_own_accord() -> None:
    p = puppet(
        step("ask", routing=routing(branches={"failed": "left"}, next="right", detour="gather")),
        step("gather"),
        step("left"),
        step("right"),
    )
    p.raises("ask")

    assert p.taken == [("ask", "left", "branch")]


def test_a_failure_may_detour_to_its_repair() -> None:
    p = puppet(
        step("ask", routing=routing(("status == 'failed' && detour.status == 'succeeded'", "left"),
                                    branches={"failed": "repair"}, next="right", detour="repair")),
        step("repair"),
        step("left"),
        step("right"),
    )  # fmt: skip
    p.raises("ask")
    p.returns("repair")

    assert p.taken == [("ask", "repair", "branch"), ("ask", "left", "condition")]
    p.returns("left")
    assert p.status == "succeeded"


def test_a_detour_is_taken_once_per_iteration() -> None:
    p = puppet(
        step("ask", routing=routing(("output", "clarify"), next="right", detour="clarify")),
        step("clarify"),
        step("right"),
    )
    p.returns("ask", True)
    p.returns("clarify")

    assert p.taken == [("ask", "clarify", "condition"), ("ask", "right", "next")]
    assert p.routes[-1].evaluated_conditions[0]["closed"] == "the detour has been taken"
    assert p.routes[-1].candidates == ("right",)


def test_ordinary_dependents_of_the_caller_wait_for_the_return() -> None:
    p = puppet(
        step("ask", routing=routing(next="right", detour="gather")),
        step("gather"),
        step("right"),
        step("after", "ask"),
    )
    p.returns("ask")
    assert p["after"] == "waiting"
    p.returns("gather")

    assert p.running == ["right", "after"]


@pytest.mark.parametrize("join", ["all_success", "none_failed", "any_success", "all_done"])
def test_a_detour_may_read_what_its_caller_gave(join: Any) -> None:
    p = puppet(
        step("ask", routing=routing(("output", "gather"), next="right", detour="gather")),
        step("gather", "ask", join=join),
        step("right", "ask"),
        step("after", "gather"),
    )
    p.returns("ask", True)
    assert p.running == ["gather"]
    p.returns("gather")
    p.returns("right")
    p.returns("after")

    assert p.status == "succeeded"


def test_a_detour_that_another_router_has_woken_waited_for_the_call() -> None:
    p = puppet(
        step("other", routing=routing(next="gather")),
        step("ask", routing=routing(next="right", detour="gather")),
        step("gather", "ask"),
        step("right"),
    )
    p.returns("other")
    assert p["gather"] == "waiting"
    p.returns("ask")

    assert p["gather"] == "running"


def test_a_detour_within_a_detour_may_read_what_every_caller_gave() -> None:
    p = puppet(
        step("ask", routing=routing(next="right", detour="one")),
        step("one", "ask", routing=routing(next="end_", detour="two")),
        step("two", "ask", "one"),
        step("right", "ask", "two"),
        step("end_", "one"),
    )
    p.returns("ask")
    p.returns("one")
    assert p.running == ["two"]
    p.returns("two")
    p.returns("right")
    p.returns("end_")

    assert p.status == "succeeded"


def test_a_detour_may_read_what_its_caller_gave_in_every_iteration() -> None:
    p = puppet(
        step("ask", routing=routing(loop_target="ask", next="right", detour="gather", max_iterations=2)),
        step("gather", "ask"),
        step("right", "gather"),
    )
    for n in range(2):
        p.returns("ask", n)
        p.restarts()
        p.returns("gather", n)
    p.returns("right")

    assert p.status == "succeeded"
    assert p.started("gather") == [1, 2]


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_a_detour_that_comes_to_nothing_returns_all_the_same(status: str) -> None:
    when = "1 == 2" if status == "skipped" else ""
    p = puppet(
        step("ask", routing=routing((f"detour.status == '{status}' && detour.output == null", "left"),
                                    next="right", detour="gather")),
        step("gather", when=when),
        step("left"),
        step("right"),
    )  # fmt: skip
    p.returns("ask")
    if status == "failed":
        p.raises("gather")

    assert p.taken[-1] == ("ask", "left", "condition")
    p.returns("left")
    assert p.status == ("failed" if status == "failed" else "succeeded")


def test_a_detour_whose_needs_failed_returns_all_the_same() -> None:
    p = puppet(
        step("bad"),
        step("ask", routing=routing(next="right", detour="gather")),
        step("gather", "bad"),
        step("right"),
    )
    p.raises("bad")
    p.returns("ask")

    assert p.skip("gather")[0] == "upstream_failed"
    assert p["right"] == "running"


def test_a_detour_may_route_and_returns_when_it_settles() -> None:
    p = puppet(
        step("ask", routing=routing(next="right", detour="gather")),
        step("gather", routing=routing(("output.again", "gather"), max_iterations=3, next="note")),
        step("note"),
        step("right"),
    )
    p.returns("ask")
    p.returns("gather", {"again": True})
    assert p["right"] == "dormant"
    p.returns("gather", {"again": False})

    assert p.running == ["note", "right"]


def chain(depth: int) -> Puppet:
    """Routers d0 … each of which makes a detour to the next one."""
    steps = []
    for n in range(depth):
        steps += [step(f"d{n}", routing=routing(next=f"n{n}", detour=f"d{n + 1}")), step(f"n{n}")]
    return puppet(*steps, step(f"d{depth}"))


def test_detours_nest_three_deep_and_return_in_turn() -> None:
    p = chain(3)
    for n in range(4):
        assert p.running == [f"d{n}"]
        p.returns(f"d{n}")

    assert [route[:2] for route in p.taken] == [
        ("d0", "d1"), ("d1", "d2"), ("d2", "d3"), ("d2", "n2"), ("d1", "n1"), ("d0", "n0"),
    ]  # fmt: skip
    assert p.run.frames == []


def test_the_fourth_detour_is_refused_and_the_run_goes_on() -> None:
    p = chain(4)
    for n in range(4):
        p.returns(f"d{n}")

    assert p.taken[3] == ("d3", "n3", "next")
    assert p.skip("d4") == ("not_routed", "d3 went elsewhere")
    for n in range(4):
        p.returns(f"n{n}")
    assert p.status == "succeeded"


def test_a_refused_detour_is_on_record_with_its_reason() -> None:
    steps = []
    for n in range(4):
        rules = routing(("output", f"d{n + 1}"), next=f"n{n}", detour=f"d{n + 1}")
        steps += [step(f"d{n}", routing=rules), step(f"n{n}")]
    p = puppet(*steps, step("d4"))
    for n in range(4):
        p.returns(f"d{n}", True)

    assert p.routes[3].evaluated_conditions[0]["closed"] == "detours are nested 3 deep"


@pytest.mark.parametrize("moment", range(5))
def test_the_stack_survives_a_restart_at_any_depth(moment: int) -> None:
    p = chain(3)
    for n in range(4):
        if n == moment:
            p.restarts()
        p.returns(f"d{n}")
    if moment == 4:
        p.restarts()

    assert p.running == ["n0", "n1", "n2"]


def test_two_routers_may_share_a_detour_and_both_return() -> None:
    p = puppet(
        step("one", routing=routing(next="a", detour="gather")),
        step("two", routing=routing(next="b", detour="gather")),
        step("gather"),
        step("a"),
        step("b"),
    )
    p.returns("one")
    p.returns("two")
    p.returns("gather", 1)

    assert p.running == ["a", "b"]
    assert p.started("gather") == [1]


def test_a_detour_that_is_over_already_returns_at_once() -> None:
    p = puppet(
        step("one", routing=routing(next="a", detour="gather")),
        step("two", routing=routing(("detour.output == 1", "b"), next="c", detour="gather")),
        step("gather"),
        *map(step, "abc"),
    )
    p.returns("one")
    p.returns("gather", 1)
    p.returns("two")

    assert p.taken[-2:] == [("two", "gather", "detour"), ("two", "b", "condition")]
    assert p["b"] == "running"


# --- detours in loops ---


def looping() -> Puppet:
    return puppet(
        step("author"),
        step("critic", "author", routing=routing(("output.ok", "publish"), loop_target="author",
                                                 max_iterations=3, next="publish", detour="gather")),
        step("gather"),
        step("publish"),
    )  # fmt: skip


def test_a_detour_of_a_loop_may_be_taken_in_every_iteration() -> None:
    p = looping()
    for n in range(2):
        p.returns("author", n)
        p.returns("critic", {"ok": n == 1})
        p.returns("gather", n)

    assert [route[1] for route in p.taken] == ["gather", "author", "gather", "publish"]
    assert p.started("gather") == [1, 2]
    assert p.started("critic") == [1, 2]


def test_a_nested_detour_of_a_loop_is_taken_in_every_iteration_as_well() -> None:
    p = puppet(
        step("work", routing=routing(loop_target="work", max_iterations=2, next="end_", detour="one")),
        step("one", routing=routing(next="note", detour="two")),
        step("two"),
        step("note"),
        step("end_"),
    )
    for n in range(2):
        p.returns("work", n)
        p.returns("one", n)
        p.returns("two", n)

    assert p.started("one") == p.started("two") == [1, 2]


def test_what_depends_on_the_detour_of_a_loop_waits_for_the_loop() -> None:
    ways = routing(tie=("work", "end_", "other"), max_iterations=2, next="end_", detour="gather")
    p = puppet(
        step("work", routing=ways), step("gather"), step("mail", "gather"), step("end_"), step("other")
    )
    p.returns("work", 1)
    p.returns("gather", 1)
    assert p["mail"] == "waiting"
    p.breaks_tie("work", "work")
    p.returns("work", 2)
    p.returns("gather", 2)
    p.breaks_tie("work", "end_")

    assert p.running == ["mail", "end_"]


def test_a_detour_that_loops_has_its_rounds_in_every_iteration() -> None:
    p = puppet(
        step("work", routing=routing(loop_target="work", max_iterations=2, next="end_", detour="gather")),
        step("gather", routing=routing(loop_target="gather", max_iterations=2, next="end_")),
        step("end_"),
    )
    for n in range(2):
        p.returns("work", n)
        p.returns("gather", n)
        p.returns("gather", -n)

    assert p.started("gather") == [1, 2, 3, 4]
    assert p.started("work") == [1, 2]


def test_a_detour_that_goes_back_before_its_caller_is_forgotten_with_it() -> None:
    p = puppet(
        step("author"),
        step("critic", "author", routing=routing(("output.lost", "rethink"), next="end_", detour="rethink")),
        step("rethink", routing=routing(("output", "author"), max_iterations=2, next="end_")),
        step("end_"),
    )
    p.returns("author", 1)
    p.returns("critic", {"lost": True})
    p.returns("rethink", True)
    assert (p.running, p.run.frames, p.iteration("critic")) == (["author"], [], 2)
    p.returns("author", 2)
    p.returns("critic", {"lost": False})
    p.returns("end_")

    assert p.status == "succeeded"


def test_a_restart_in_a_detour_of_a_loop_changes_nothing() -> None:
    p = looping()
    for n in range(2):
        p.returns("author", n)
        p.returns("critic", {"ok": n == 1})
        p.restarts()
        p.returns("gather", n)
        p.restarts()
    p.returns("publish")

    assert p.status == "succeeded"
    assert [route[1] for route in p.taken] == ["gather", "author", "gather", "publish"]


# --- people and commands ---


def test_after_a_detour_a_person_may_be_asked() -> None:
    p = puppet(
        step("ask", routing=routing(("output", "left"), next="human", detour="gather")),
        step("gather"),
        step("left"),
    )
    p.returns("ask", False)
    p.returns("gather")

    (question,) = p.questions
    assert question.schema["respond"]["properties"]["target"]["enum"] == ["left", "end"]
    p.answer("respond", target="left")
    assert p["left"] == "running"


def test_a_person_may_choose_the_detour_and_is_asked_again_after_it() -> None:
    p = puppet(
        step(
            "ask",
            routing=routing(("output", "gather"), next="human", branches={"x": "left"}, detour="gather"),
        ),
        step("gather"),
        step("left"),
    )
    p.returns("ask", False)
    p.answer("respond", target="gather")
    assert p.running == ["gather"]
    p.returns("gather")

    assert len(p.questions) == 2
    p.answer("respond", target="left")
    assert p["left"] == "running"


def test_a_tie_breaker_may_choose_the_detour() -> None:
    p = puppet(
        step("ask", routing=routing(tie=("gather", "left", "right"), next="right", detour="gather")),
        *map(step, ("gather", "left", "right")),
    )
    p.returns("ask")
    p.breaks_tie("ask", "gather")
    p.returns("gather")
    assert p.ties == [("gather", "left", "right"), ("left", "right")]
    p.breaks_tie("ask", "left")

    assert p["left"] == "running"


def test_an_abort_in_a_detour_ends_the_run() -> None:
    p = asking()
    p.returns("ask", {"unclear": True})
    p.send(Abort())
    p.returns("clarify", {"ok": True})

    assert p.status == "aborted"
    assert p.taken == [("ask", "clarify", "condition")]


def test_retry_step_of_a_failed_detour_runs_it_again_although_the_caller_has_gone_on() -> None:
    p = puppet(step("ask", routing=routing(next="right", detour="gather")), step("gather"), step("right"))
    p.returns("ask")
    p.raises("gather")
    assert p["right"] == "running"
    assert p.send(RetryStep(step=StepId("gather"))) == ""
    assert p["gather"] == "running"
    p.returns("gather")
    p.returns("right")

    assert p.status == "succeeded"
    assert len(p.taken) == 2


def test_retry_step_of_the_caller_makes_the_detour_again() -> None:
    p = puppet(
        step(
            "ask",
            routing=routing(
                ("status == 'failed' && detour == null", "repair"), next="right", detour="repair"
            ),
        ),
        step("repair"),
        step("right"),
        step("busy"),
    )
    p.raises("ask")
    p.returns("repair")
    assert (p["right"], p.taken[-1]) == ("skipped", ("ask", None, "failed"))
    p.send(RetryStep(step=StepId("ask")))
    p.returns("ask")
    p.returns("right")
    p.returns("busy")

    assert p.status == "succeeded"


def test_a_detour_that_ended_while_the_run_was_stopped_returns_when_it_goes_on() -> None:
    p = puppet(
        step("ask", routing=routing(("detour.output", "left"), next="right", detour="gather")),
        step("gather"), step("left"), step("right"),
    )  # fmt: skip
    p.returns("ask")
    p.send(Abort())
    p.returns("gather", True)
    p.restarts()

    assert p.running == ["left"]
