"""Loops on the core alone: what re-opens, what is remembered, what waits, and what stops them."""

from __future__ import annotations

import pytest
from loops import critic, microloop, rounds, waiting_for_slow

from penstock.ids import StepId
from penstock.run.events import TaskCompleted, TaskSkipped, TaskStarted
from penstock.run.facts import BackoffElapsed
from penstock.run.scope import look_up
from penstock.testing.puppet import Puppet, puppet, routing, step
from penstock.workflow.spec import Retry

# --- iterations ---


def test_only_the_body_runs_again_as_the_next_iteration() -> None:
    p = microloop()
    p.returns("list")
    rounds(p, 2)
    rounds(p, 1, ok=True)

    assert p.started("list") == [1]
    assert p.started("author") == p.started("critic") == [1, 2, 3]
    ended = [(e.step, e.iteration) for e in p.events if isinstance(e, TaskCompleted)]
    assert len(ended) == len(set(ended))


def test_a_mail_step_beside_the_loop_sends_the_last_draft_and_not_the_first() -> None:
    p = microloop()
    p.returns("list")
    rounds(p, 1)
    assert p["mail"] == "waiting"

    rounds(p, 1, ok=True)
    assert (p["mail"], p["publish"]) == ("running", "running")
    assert p.started("mail") == [1]


def test_every_attempt_of_every_iteration_is_a_task_of_its_own() -> None:
    p = puppet(
        step(
            "work",
            retry=Retry(max_attempts=2, backoff=0.0),
            routing=routing(("output", "work"), max_iterations=3),
        )
    )
    p.raises("work")
    p.tell(BackoffElapsed(0, 1, None, 1))
    p.returns("work", True)
    p.raises("work")
    p.tell(BackoffElapsed(0, 2, None, 1))
    p.returns("work", False)

    tasks = [(e.iteration, e.attempt) for e in p.events if isinstance(e, TaskStarted)]
    assert tasks == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_conditions_see_the_iteration_and_the_cap() -> None:
    p = puppet(
        step("work", routing=routing(("iteration < max_iterations", "work"), max_iterations=3, next="end"))
    )
    for n in range(3):
        p.returns("work", n)

    assert [target for _, target, _ in p.taken] == ["work", "work", "end"]


def test_previous_is_null_the_first_time_and_then_the_last_iterations() -> None:
    p = puppet(
        step("author", when="previous.author.output == null || previous.author.output.n == iteration - 1"),
        step("critic", "author", when="previous.critic.status in [null, 'succeeded']",
             routing=routing(loop_target="author", max_iterations=3, next="end")),
    )  # fmt: skip
    for n in range(3):
        p.returns("author", {"n": n + 1})
        p.returns("critic", n)

    assert p.started("critic") == [1, 2, 3]


def test_a_step_skipped_in_one_iteration_may_run_in_the_next() -> None:
    p = puppet(
        step("author"),
        step("extra", "author", when="iteration == 2"),
        step(
            "critic",
            "extra",
            join="none_failed",
            routing=routing(loop_target="author", max_iterations=2, next="end"),
        ),
    )
    p.returns("author", 1)
    assert p["critic"] == "running"
    p.returns("critic", 1)
    p.returns("author", 2)
    assert p["extra"] == "running"
    p.returns("extra")
    p.returns("critic", 2)

    assert p.status == "succeeded"
    assert [(e.step, e.iteration) for e in p.events if isinstance(e, TaskSkipped)] == [("extra", 1)]


def test_previous_of_a_skipped_step_says_so_and_its_output_is_null() -> None:
    p = puppet(
        step("author"),
        step("extra", "author", when="iteration == 1"),
        step("critic", "author", "extra", join="none_failed",
             routing=routing(("previous.extra.status == 'skipped' && previous.extra.output == null", "end"),
                             loop_target="author", max_iterations=4, next="end")),
    )  # fmt: skip
    for n in range(3):
        p.returns("author", n)
        if p["extra"] == "running":
            p.returns("extra", n)
        p.returns("critic", n)

    assert [rule for _, _, rule in p.taken] == ["loop", "loop", "condition"]


def test_a_step_may_loop_to_itself() -> None:
    p = puppet(step("poll", routing=routing(("output.ready", "end"), loop_target="poll", max_iterations=5)))
    for n in range(3):
        p.returns("poll", {"ready": n == 2, "n": n})

    assert p.status == "succeeded"
    assert p.started("poll") == [1, 2, 3]


def test_a_dormant_target_in_the_body_sleeps_again_in_the_next_iteration() -> None:
    p = puppet(
        step("ask", routing=routing(("output", "left"), next="right")),
        step("left"),
        step("right"),
        step("check", "left", "right", join="none_failed",
             routing=routing(("output", "ask"), max_iterations=3, next="end")),
    )  # fmt: skip
    p.returns("ask", True)
    assert (p["left"], p["right"]) == ("running", "skipped")
    p.returns("left")
    p.returns("check", True)
    assert (p["ask"], p["left"], p["right"]) == ("running", "dormant", "dormant")

    p.returns("ask", False)
    assert (p["left"], p["right"]) == ("skipped", "running")
    p.returns("right")
    p.returns("check", False)
    assert p.status == "succeeded"


def test_a_step_of_the_body_that_was_chosen_from_outside_needs_no_other_choice() -> None:
    p = puppet(
        step("ask", routing=routing(("output", "side"), next="check")),
        step("draft"),
        step("side", "draft", routing=routing(next="check")),
        step("check", "draft", routing=routing(loop_target="draft", max_iterations=2, next="end")),
    )
    p.returns("ask", False)
    p.returns("draft", 1)
    p.returns("check", 1)
    p.returns("draft", 2)
    assert (p["side"], p["check"]) == ("skipped", "running")
    p.returns("check", 2)

    assert p.status == "succeeded"


def test_a_back_target_that_is_reached_by_a_route_need_not_be_routed_to_again() -> None:
    p = puppet(
        step("ask", routing=routing(next="draft")),
        step("draft"),
        step("check", "draft", routing=routing(("output", "draft"), max_iterations=2, next="end")),
    )
    p.returns("ask")
    p.returns("draft")
    p.returns("check", True)

    assert p["draft"] == "running"
    p.returns("draft")
    p.returns("check", True)
    assert p.status == "succeeded"


def test_a_forward_target_of_a_body_step_outside_the_loop_waits_for_the_loop() -> None:
    p = puppet(
        step("author", routing=routing(("output.side", "side"), next="critic")),
        step("critic", routing=routing(("output", "author"), max_iterations=2, next="end_")),
        step("side"),
        step("end_"),
    )
    p.returns("author", {"side": False})
    p.returns("critic", True)
    p.returns("author", {"side": False})
    p.returns("critic", True)

    assert (p["side"], p["end_"]) == ("skipped", "running")


# --- what waits for the body ---


def test_body_steps_in_flight_finish_before_the_loop_turns() -> None:
    p = waiting_for_slow()
    assert p.taken == [("critic", "author", "loop")]
    assert p.running == ["slow"]
    assert p.iteration("author") == 1

    p.returns("slow")
    assert p.running == ["author"]
    assert p.iteration("slow") == 2


def test_a_body_step_that_fails_in_flight_lets_the_loop_turn() -> None:
    p = waiting_for_slow()
    p.raises("slow")
    assert (p.running, p.run.failures) == (["author"], 0)
    for name in ("author", "quick", "slow", "critic"):
        p.returns(name, 2)

    assert p.status == "succeeded"


def test_everything_outside_waits_for_the_outermost_router_whose_body_it_depends_on() -> None:
    p = puppet(
        step("outer"),
        step("inner", "outer", routing=routing(("output", "inner"), max_iterations=2, next="check")),
        step("check", routing=routing(("output", "outer"), max_iterations=2, next="end_")),
        step("mail", "inner"),
        step("end_"),
    )
    p.returns("outer", 1)
    p.returns("inner", False)
    assert p["mail"] == "waiting"
    p.returns("check", False)

    assert (p["mail"], p["end_"]) == ("running", "running")


def test_a_step_outside_with_any_success_waits_for_the_loop_as_well() -> None:
    p = puppet(
        step("author"),
        step("critic", "author", routing=routing(("output", "author"), max_iterations=2, next="end_")),
        step("other"),
        step("first", "author", "other", join="any_success"),
        step("end_"),
    )
    p.returns("author", 1)
    p.returns("other")
    assert p["first"] == "waiting"
    p.returns("critic", False)

    assert p["first"] == "running"


def test_a_step_outside_that_failed_upstream_meanwhile_is_judged_by_the_last_iteration() -> None:
    p = puppet(
        step("author", on_error="fail"),
        step(
            "critic",
            "author",
            join="all_done",
            routing=routing(("output", "author"), max_iterations=2, next="end_"),
        ),
        step("mail", "author"),
        step("end_"),
    )
    p.raises("author")
    assert p["mail"] == "waiting"
    p.returns("critic", True)
    p.returns("author", 2)
    p.returns("critic", False)

    assert p["mail"] == "running"
    p.returns("mail")
    p.returns("end_")
    assert p.status == "succeeded"


# --- caps ---


@pytest.mark.parametrize("times", [1, 2, 3, 5])
def test_max_iterations_is_how_often_the_router_runs_in_all(times: int) -> None:
    p = puppet(step("list"), step("author", "list"), critic(times=times), step("publish"), *map(step, "xyz"))
    p.returns("list")
    rounds(p, times)

    assert p["publish"] == "running"
    assert p.started("critic") == list(range(1, times + 1))
    assert p.taken[-1] == ("critic", "publish", "next")
    assert p.routes[-1].reason == f"max_iterations: {times} is reached"


def test_a_cap_with_next_is_an_ordinary_route_and_the_run_succeeds() -> None:
    p = microloop(times=2)
    p.returns("list")
    rounds(p, 2)
    p.returns("mail")
    p.returns("publish")

    assert (p.status, p.run.reason) == ("succeeded", "")


def test_a_cap_without_next_settles_empty_and_the_run_ends_partial() -> None:
    p = microloop(times=2, next=None)
    p.returns("list")
    rounds(p, 2)
    assert (p["mail"], p.skip("publish")[0]) == ("running", "not_routed")
    p.returns("mail")

    assert p.taken[-1] == ("critic", None, "cap")
    assert (p.status, p.run.reason) == ("partial", "critic: max_iterations: 2 is reached")


def test_a_cap_never_hides_a_condition() -> None:
    p = microloop(times=1, next=None)
    p.returns("list")
    rounds(p, 1, ok=True)

    assert p.taken == [("critic", "publish", "condition")]


def test_a_run_that_has_no_way_left_and_nothing_to_show_has_failed() -> None:
    p = puppet(
        step("work", routing=routing(loop_target="work", max_iterations=2)),
        outputs={"x": "${ steps.work.output.x }"},
    )
    p.returns("work", {"x": 1})
    p.returns("work", {"x": 2})
    p.collects(x=None)

    assert p.status == "failed"


def test_the_fuse_ends_the_run_with_its_best_state() -> None:
    p = puppet(step("work", routing=routing(loop_target="work", max_iterations=10, next="end")))
    p.run.openings = 10
    p.events.clear()
    from penstock.run.decide import decide
    from penstock.run.facts import TaskReturned

    batch = decide(p.run, TaskReturned(0, 1), 5.0)
    assert [getattr(e, "rule", "") for e in batch][1] == "fuse"
    assert p.run.status == "partial"
    assert p.run.reason == "work: the run has opened 10 steps; 1 allow 10"


# --- nested loops ---


def nested() -> Puppet:
    return puppet(
        step("outer"),
        step("inner", "outer"),
        step("again", "inner", routing=routing(("output", "inner"), max_iterations=2, next="check")),
        step("check", routing=routing(("output", "outer"), max_iterations=2, next="end_")),
        step("end_"),
    )


def test_an_outer_pass_resets_the_inner_counters() -> None:
    p = nested()
    for n in range(2):
        p.returns("outer", n)
        for m in range(2):
            p.returns("inner", (n, m))
            p.returns("again", True)
        assert p.taken[-1] == ("again", "check", "next")
        p.returns("check", True)
    p.returns("end_")

    assert p.status == "succeeded"
    assert p.started("inner") == [1, 2, 3, 4]
    assert p.started("outer") == [1, 2]
    assert p.started("check") == [1, 2]


def test_within_an_outer_pass_the_iteration_that_expressions_see_starts_at_1_again() -> None:
    p = nested()
    i = p.run.graph.index[StepId("inner")]
    seen = []
    for n in range(2):
        p.returns("outer", n)
        for m in range(2):
            seen.append(look_up(p.run, ("iteration",), i))
            p.returns("inner", (n, m))
            p.returns("again", True)
        p.returns("check", True)

    assert seen == [1, 2, 1, 2]


def test_an_outer_loop_that_turns_takes_an_inner_one_that_was_about_to_with_it() -> None:
    p = puppet(
        step("check", "again", "quick", join="any_success",
             routing=routing(loop_target="outer", max_iterations=2, next="end_")),
        step("outer"),
        step("quick", "outer"),
        step("inner", "outer"),
        step("slow", "inner"),
        step("again", "inner", "slow", join="any_success",
             routing=routing(loop_target="inner", max_iterations=2, next="end_")),
        step("end_"),
    )  # fmt: skip
    p.returns("outer", 1)
    p.returns("inner", 1)
    p.returns("again", 1)
    p.returns("quick", 1)
    p.returns("check", 1)
    assert p.running == ["slow"]
    p.returns("slow", 1)

    assert p.running == ["outer"]
    assert {p.iteration(s) for s in ("check", "outer", "quick", "inner", "slow", "again")} == {2}


def test_an_outer_pass_forgets_how_the_inner_rounds_went() -> None:
    p = puppet(
        step("outer"),
        step("inner", "outer", routing=routing(("output.again", "inner"), max_iterations=3, next="check")),
        step("check", routing=routing(("output", "outer"), max_iterations=2, next="end_")),
        step("end_"),
        step("more"),
    )
    p.returns("outer", 1)
    p.returns("inner", {"again": True})
    p.returns("inner", {"again": True})
    p.returns("inner", {"again": False})
    p.returns("check", True)
    p.returns("outer", 2)
    p.returns("inner", {"again": True})
    assert p.taken[-1] == ("inner", "inner", "condition")
    p.returns("inner", {"again": True})

    assert p.taken[-1] == ("inner", "inner", "condition")


def test_an_inner_router_that_is_skipped_does_not_keep_the_outer_loop() -> None:
    p = puppet(
        step("outer"),
        step(
            "inner",
            "outer",
            when="steps.outer.output == 1",
            routing=routing(("output", "inner"), max_iterations=2, next="check"),
        ),
        step("other", "outer"),
        step("check", "other", routing=routing(("output", "outer"), max_iterations=3, next="end_")),
        step("end_"),
    )
    p.returns("outer", 1)
    p.returns("inner", False)
    p.returns("other")
    assert p["check"] == "running"
    p.returns("check", True)
    p.returns("outer", 2)
    assert p["inner"] == "skipped"
    p.returns("other")

    assert p.skip("check")[0] == "not_routed"
    assert p.status == "succeeded"
