"""Routes on the core alone: what starts, what is skipped, what a router's dependents wait for."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.ids import StepId
from penstock.run.commands import InjectTasks, RetryStep, SkipStep
from penstock.testing.puppet import Puppet, puppet, routing, step
from penstock.workflow.spec import Step


def fork(**parts: Any) -> Step:
    """A router between `left` and `right`."""
    return step("ask", routing=routing(("output.way == 'left'", "left"), next="right", **parts))


LEFT, RIGHT = step("left"), step("right")


# --- dormant targets and settling ---


def test_a_target_starts_only_when_routed_to_and_the_other_is_skipped() -> None:
    p = puppet(fork(), LEFT, RIGHT)
    assert (p["left"], p["right"]) == ("dormant", "dormant")

    p.returns("ask", {"way": "left"})

    assert (p["left"], p["right"]) == ("running", "skipped")
    assert p.skip("right") == ("not_routed", "ask went elsewhere")
    p.returns("left")
    assert p.status == "succeeded"


def test_the_skip_of_a_target_cascades_as_not_routed() -> None:
    p = puppet(fork(), LEFT, RIGHT, step("after", "right"), step("end_", "after"))
    p.returns("ask", {"way": "left"})

    assert p.skip("after") == ("not_routed", "needs right, which was skipped")
    assert p.skip("end_")[0] == "not_routed"


def test_a_join_after_two_branches_runs_with_whichever_was_taken() -> None:
    p = puppet(fork(), LEFT, RIGHT, step("join", "left", "right", join="none_failed"))
    p.returns("ask", {"way": "right"})
    p.returns("right")

    assert p["join"] == "running"


def test_a_routed_target_still_waits_for_its_other_needs() -> None:
    p = puppet(fork(), step("slow"), step("left", "slow"), RIGHT)
    p.returns("ask", {"way": "left"})
    assert p["left"] == "waiting"

    p.returns("slow")
    assert p["left"] == "running"


def test_a_target_whose_other_need_failed_ends_upstream_failed_and_names_it() -> None:
    p = puppet(fork(), step("slow"), step("left", "slow"), RIGHT)
    p.returns("ask", {"way": "left"})
    p.raises("slow")

    assert p.skip("left") == ("upstream_failed", "needs slow, which failed")


def test_a_dormant_target_is_not_blamed_before_it_is_routed_to() -> None:
    p = puppet(fork(), step("slow"), step("left", "slow"), RIGHT)
    p.raises("slow")
    assert p["left"] == "dormant"

    p.returns("ask", {"way": "left"})
    assert p.skip("left") == ("upstream_failed", "needs slow, which failed")


def test_a_route_satisfies_the_need_on_the_router() -> None:
    p = puppet(
        step("ask", routing=routing(next="left", branches={"failed": "right"})),
        step("left", "ask"),
        step("right", "ask"),
    )
    p.raises("ask")

    assert (p["left"], p["right"]) == ("skipped", "running")
    p.returns("right")
    assert p.status == "succeeded"


def test_ordinary_dependents_of_a_router_start_when_it_settles() -> None:
    p = puppet(
        step("work", routing=routing(("output.again", "work"), max_iterations=3, next="left")),
        LEFT,
        step("after", "work"),
    )
    p.returns("work", {"again": True})
    assert p.running == ["work"]

    p.returns("work", {"again": False})
    assert p.running == ["left", "after"]


def test_a_target_of_two_routers_is_skipped_only_when_both_have_gone_elsewhere() -> None:
    p = puppet(
        step("one", routing=routing(("output", "shared"), next="end")),
        step("two", "busy", routing=routing(("output", "shared"), next="own")),
        step("busy"),
        step("shared"),
        step("own"),
    )
    p2 = puppet(
        step("one", routing=routing(("output", "shared"), next="other")),
        step("busy"),
        step("two", "busy", routing=routing(("output", "shared"), next="other")),
        step("shared"),
        step("other"),
    )
    p2.returns("one", False)
    assert (p2["shared"], p2["other"]) == ("dormant", "running")
    p2.returns("busy")
    p2.returns("two", True)
    assert p2["shared"] == "running"
    assert p["shared"] == "dormant"


def test_a_target_chosen_twice_runs_once() -> None:
    p = puppet(
        step("one", routing=routing(next="shared")),
        step("two", routing=routing(next="shared")),
        step("shared"),
    )
    p.returns("one")
    p.returns("two")
    p.returns("shared")

    assert p.started("shared") == [1]
    assert p.status == "succeeded"


def test_when_no_router_ran_the_target_is_skipped_too() -> None:
    p = puppet(step("gone", when="1 == 2", routing=routing(next="left")), LEFT, step("beside"))

    assert p.skip("left") == ("not_routed", "gone did not route here")


def test_when_the_router_could_not_run_the_target_counts_as_failed() -> None:
    p = puppet(step("bad"), step("ask", "bad", routing=routing(next="left")), LEFT, step("after", "left"))
    p.raises("bad")

    assert p.skip("left") == ("upstream_failed", "needs a route of ask, which did not run")
    assert p.skip("after")[0] == "upstream_failed"
    assert p.status == "failed"


def test_a_skipped_router_is_settled_for_those_that_wait_at_the_barrier() -> None:
    p = puppet(
        step("work"),
        step(
            "check", "work", when="1 == 2", routing=routing(loop_target="work", max_iterations=2, next="end")
        ),
        step("mail", "work"),
    )
    p.returns("work")

    assert p["mail"] == "running"


def test_a_router_may_be_a_target_itself() -> None:
    p = puppet(
        step("a", routing=routing(next="b")),
        step("b", routing=routing(("output", "c"), next="d")),
        step("c"),
        step("d"),
    )
    p.returns("a")
    p.returns("b", True)
    p.returns("c")

    assert p.taken == [("a", "b", "next"), ("b", "c", "condition")]
    assert p.status == "succeeded"


def test_a_router_that_is_not_routed_to_takes_its_own_targets_with_it() -> None:
    p = puppet(fork(), step("left", routing=routing(next="deep")), RIGHT, step("deep"))
    p.returns("ask", {"way": "right"})

    assert p.skip("deep")[0] == "not_routed"


def test_a_route_to_a_step_below_a_skipped_need_is_no_way_around_it() -> None:
    p = puppet(fork(), step("off", when="1 == 2"), step("left", "off"), RIGHT)
    p.returns("ask", {"way": "left"})

    assert p.skip("left")[0] == "condition"


def test_a_step_knows_by_which_route_it_was_reached() -> None:
    p = puppet(fork(), step("left", when="route.rule == 'condition' && route.from == 'ask'"), RIGHT)
    p.returns("ask", {"way": "left"})

    assert p["left"] == "running"


# --- what is on record ---


def test_a_route_says_what_was_asked_what_it_came_to_and_what_else_was_possible() -> None:
    p = puppet(fork(), LEFT, RIGHT)
    p.returns("ask", {"way": "right"})

    (route,) = p.routes
    assert (route.target, route.rule, route.needs_human, route.tie_breaker_used) == (
        "right",
        "next",
        False,
        False,
    )
    assert route.candidates == ("left", "right")
    assert route.evaluated_conditions == ({"expr": "output.way == 'left'", "target": "left", "value": False},)


def test_hostile_outputs_are_only_values() -> None:
    for output in (
        {"next_step_id": "left", "way": "${ steps.left }"},
        {"way": "left\n- id: evil\n  uses: py:os:system"},
        "left",
        {"__proto__": {"way": "left"}},
        {"target": "left", "routing": {"next": "left"}, "status": "left"},
    ):
        p = puppet(fork(), LEFT, RIGHT)
        p.returns("ask", output)
        assert p.taken == [("ask", "right", "next")]
        assert p["left"] == "skipped"


def test_a_branch_may_be_named_after_anything() -> None:
    branches = {"__proto__": "left", "end": "right"}
    p = puppet(step("ask", routing=routing(branches=branches, on="output", next="right")), LEFT, RIGHT)
    p.returns("ask", "__proto__")

    assert p.taken == [("ask", "left", "branch")]


def test_branches_look_at_the_status_in_the_output_unless_told_otherwise() -> None:
    p = puppet(step("ask", routing=routing(branches={"ok": "left"}, next="right")), LEFT, RIGHT)
    p.returns("ask", {"status": "ok"})

    assert p.taken == [("ask", "left", "branch")]


# --- expressions that fail ---


@pytest.mark.parametrize(
    ("policy", "taken", "status"),
    [
        ("fallthrough", ("ask", "right", "next"), "succeeded"),
        ("default", ("ask", "right", "next"), "succeeded"),
        ("halt", ("ask", None, "halt"), "partial"),
        (None, ("ask", "right", "next"), "succeeded"),
    ],
)
def test_an_expression_that_fails_follows_the_steps_policy(policy: Any, taken: Any, status: str) -> None:
    p = puppet(
        step("ask", routing=routing(("output.no == 1", "left"), next="right"), on_expr_error=policy),
        LEFT,
        RIGHT,
    )
    p.returns("ask", {})
    if taken[1]:
        p.returns(taken[1])

    assert p.taken == [taken]
    assert p.status == status


def test_the_workflows_policy_is_for_steps_without_one() -> None:
    router = step("ask", routing=routing(("output.no == 1", "left"), next="right"))
    p = puppet(router, LEFT, RIGHT, on_expr_error="halt")
    p.returns("ask", {})

    assert p.taken == [("ask", None, "halt")]
    assert p.run.reason.startswith("ask: output.no == 1")


def test_a_value_too_large_to_decide_by_is_an_error_that_says_so() -> None:
    p = puppet(fork(), LEFT, RIGHT)
    p.returns("ask", {"way": "x" * 100_000})

    assert "larger than 64 KB" in p.routes[0].evaluated_conditions[0]["error"]
    assert p.taken == [("ask", "right", "next")]


# --- failed routers ---


def failing(**parts: Any) -> Puppet:
    return puppet(
        step("ask", routing=routing(branches={"failed": "repair"}, next="on", **parts)),
        step("on"),
        step("repair"),
        step("after", "ask"),
        outputs={"done": "${ steps.repair.output }"},
    )


def test_a_failure_that_has_a_branch_is_dealt_with() -> None:
    p = failing()
    p.raises("ask")
    assert (p["repair"], p["on"]) == ("running", "skipped")

    p.returns("repair", 1)
    p.collects(done=1)
    assert (p.status, p.run.failures) == ("succeeded", 0)


def test_ordinary_dependents_of_a_failed_router_do_not_run_although_it_was_routed() -> None:
    p = failing()
    p.raises("ask")

    assert p.skip("after") == ("upstream_failed", "needs ask, which failed")


def test_a_failure_without_a_branch_fails_the_run_and_the_targets_with_it() -> None:
    p = puppet(fork(), LEFT, RIGHT)
    p.raises("ask")

    assert p.taken == [("ask", None, "failed")]
    assert p.skip("left") == ("upstream_failed", "needs a route of ask, which failed")
    assert p.status == "failed"
    assert p.run.reason == "step ask failed: boom"


def test_a_condition_that_does_not_ask_about_the_failure_is_not_for_it() -> None:
    p = puppet(step("ask", routing=routing(("output == null", "left"), next="right")), LEFT, RIGHT)
    p.raises("ask")

    assert p.taken == [("ask", None, "failed")]


def test_a_condition_that_reads_the_status_routes_a_failure() -> None:
    p = puppet(step("ask", routing=routing(("status == 'failed'", "left"), next="right")), LEFT, RIGHT)
    p.raises("ask")
    p.returns("left")

    assert p.taken == [("ask", "left", "condition")]
    assert p.status == "succeeded"


def test_a_router_with_on_error_continue_is_routed_like_one_that_succeeded() -> None:
    p = puppet(
        step("ask", routing=routing(("output == null", "left"), next="right"), on_error="continue"),
        LEFT,
        RIGHT,
        step("after", "ask"),
    )
    p.raises("ask")

    assert p.taken == [("ask", "left", "condition")]
    assert p.running == ["left", "after"]


def test_a_failure_whose_route_leads_to_a_failure_is_counted_once() -> None:
    p = failing()
    p.raises("ask")
    p.raises("repair")
    p.collects(done=None)

    assert (p.status, p.run.reason) == ("failed", "step repair failed: boom")


# --- end ---


def test_end_starts_nothing_new_and_lets_what_runs_finish() -> None:
    p = puppet(
        step("ask", routing=routing(("output", "end"), next="left")),
        LEFT,
        step("busy"),
        step("after", "busy"),
    )
    p.returns("ask", True)
    assert (p["left"], p["busy"], p["after"]) == ("skipped", "running", "skipped")
    assert p.skip("after") == ("run_ended", "ended by the route of ask")

    p.returns("busy")
    assert p.status == "succeeded"


def test_a_router_that_ends_after_the_end_does_not_choose_any_more() -> None:
    p = puppet(step("ask", routing=routing(next="end")), step("other", routing=routing(next="left")), LEFT)
    p.returns("ask")
    p.returns("other")

    assert p.taken == [("ask", "end", "next")]
    assert (p["left"], p.status) == ("skipped", "succeeded")


def test_a_failure_before_the_end_still_fails_the_run() -> None:
    p = puppet(step("bad"), step("ask", routing=routing(next="end")), step("busy"))
    p.raises("bad")
    p.returns("ask")
    p.returns("busy")

    assert p.status == "failed"


def test_a_task_that_waits_to_be_tried_again_is_under_way_and_finishes_after_the_end() -> None:
    from penstock.run.facts import BackoffElapsed
    from penstock.workflow.spec import Retry

    p = puppet(
        step("flaky", retry=Retry(max_attempts=2, backoff=1.0)), step("ask", routing=routing(next="end"))
    )
    p.raises("flaky")
    p.returns("ask")
    assert p.status == "running"

    p.tell(BackoffElapsed(0, 1, None, 1))
    p.returns("flaky")
    assert p.status == "succeeded"


def test_end_takes_back_a_question_to_a_person() -> None:
    p = puppet(
        step("who", routing=routing(next="human", branches={"l": "left"})),
        LEFT,
        step("busy"),
        step("ask", "busy", routing=routing(next="end")),
    )
    p.returns("who", {})
    p.returns("busy")
    p.returns("ask")

    assert p.status == "succeeded"


# --- commands ---


def test_a_dormant_step_can_be_skipped_and_a_route_to_it_leads_nowhere() -> None:
    p = puppet(fork(), LEFT, RIGHT)
    assert p.send(SkipStep(step=StepId("left"))) == ""
    p.returns("ask", {"way": "left"})

    assert p.skip("left")[0] == "command"
    assert p.status == "succeeded"


def test_retry_step_of_a_failed_router_lets_it_choose_again() -> None:
    p = puppet(fork(), LEFT, RIGHT, step("busy"))
    p.raises("ask")
    assert p["left"] == "skipped"

    assert p.send(RetryStep(step=StepId("ask"))) == ""
    assert (p["ask"], p["left"], p["right"]) == ("running", "dormant", "dormant")
    p.returns("ask", {"way": "left"})
    p.returns("left")
    p.returns("busy")
    assert p.status == "succeeded"


def test_retry_step_clears_the_name_of_a_need_for_targets_that_still_sleep() -> None:
    p = puppet(fork(), step("slow"), step("left", "slow"), RIGHT)
    p.raises("slow")
    p.send(RetryStep(step=StepId("slow")))
    p.returns("slow")
    p.returns("ask", {"way": "left"})

    assert p["left"] == "running"


def test_retry_step_of_a_failed_target_runs_it_again_without_another_route() -> None:
    p = puppet(fork(), LEFT, RIGHT, step("after", "left"), step("busy"))
    p.returns("ask", {"way": "left"})
    p.raises("left")
    p.send(RetryStep(step=StepId("left")))

    assert (p["left"], p["after"]) == ("running", "waiting")
    assert len(p.taken) == 1


def test_opening_a_router_again_from_a_fork_lets_it_choose_again() -> None:
    p = puppet(fork(), LEFT, RIGHT)
    p.returns("ask", {"way": "left"})
    p.returns("left")
    p.restarts("ask", "left", "right")

    assert (p["ask"], p["left"], p["right"]) == ("running", "dormant", "dormant")
    p.returns("ask", {"way": "right"})
    p.returns("right")
    assert (p["left"], p.status) == ("skipped", "succeeded")


def test_opening_only_a_target_that_was_passed_by_passes_it_by_again() -> None:
    p = puppet(fork(), LEFT, RIGHT)
    p.returns("ask", {"way": "left"})
    p.returns("left")
    p.restarts("right")

    assert (p["right"], p.status) == ("skipped", "succeeded")


def test_an_injected_router_routes_among_the_steps_it_came_with() -> None:
    p = puppet(step("busy"))
    added = (step("ask", routing=routing(("output", "left"), next="right")), LEFT, RIGHT)
    assert p.send(InjectTasks(steps=added)) == ""
    assert p.running == ["busy", "ask"]

    p.returns("ask", True)
    assert (p["left"], p["right"]) == ("running", "skipped")


# --- maps, approvals ---


def test_a_map_takes_one_route_by_its_aggregate() -> None:
    p = puppet(
        step("each", for_each="[1, 2]", routing=routing(("output.all(x, x > 0)", "left"), next="right")),
        LEFT,
        RIGHT,
    )
    p.counts("each", [1, 2])
    p.returns("each", 1, item=0)
    assert p.taken == []
    p.returns("each", 2, item=1)

    assert p.taken == [("each", "left", "condition")]


def test_a_router_that_needs_approval_routes_after_its_call() -> None:
    p = puppet(step("ask", approval="always", routing=routing(next="left")), LEFT)
    p.prepares("ask")
    p.answer("reject")

    assert p.taken == [("ask", None, "failed")]
    assert p.status == "failed"


def test_a_skipped_router_under_approval_leaves_its_targets_unrouted() -> None:
    p = puppet(step("ask", approval="always", routing=routing(next="left")), LEFT)
    p.prepares("ask")
    p.answer("skip")

    assert p.skip("left")[0] == "not_routed"
    assert p.status == "succeeded"
