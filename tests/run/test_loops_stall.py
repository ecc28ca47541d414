"""Loops that get nowhere, and loops whose steps fail."""

from __future__ import annotations

import pytest
from loops import critic, microloop, rounds

from penstock.testing.puppet import puppet, routing, step

# --- stalls ---


@pytest.mark.parametrize(("next", "status"), [("publish", "succeeded"), (None, "partial")])
def test_three_equal_rounds_leave_the_loop_with_a_call_for_a_person(next: str | None, status: str) -> None:
    p = puppet(step("author"), critic(times=9, next=next), step("publish"), *map(step, "vwxyz"))
    for _ in range(3):
        p.returns("author", "same")
        p.returns("critic", {"ok": False})

    assert p.taken[-1] == ("critic", next, "stall")
    assert p.routes[-1].needs_human
    assert "the last 3 rounds came to the same" in p.routes[-1].reason
    for name in [*"vwxyz", *(["publish"] if next else [])]:
        p.returns(name)
    assert p.status == status


def test_a_stall_is_a_matter_of_the_whole_body() -> None:
    p = puppet(step("author"), critic(times=5), step("publish"))
    for n in range(4):
        p.returns("author", n)
        p.returns("critic", {"ok": False})

    assert [rule for _, _, rule in p.taken] == ["loop"] * 4


def test_two_equal_rounds_and_another_are_no_stall() -> None:
    p = puppet(step("author"), critic(times=6), step("publish"))
    for draft in ("a", "a", "b", "a", "a"):
        p.returns("author", draft)
        p.returns("critic", {"ok": False})

    assert [rule for _, _, rule in p.taken] == ["loop"] * 5


def test_a_stall_is_checked_only_when_a_back_edge_would_be_taken() -> None:
    p = puppet(step("author"), critic(times=5), step("publish"))
    for ok in (False, False, True):
        p.returns("author", "same")
        p.returns("critic", {"ok": ok, "x": 1})

    assert p.taken[-1] == ("critic", "publish", "condition")


def test_three_equal_errors_are_a_stall() -> None:
    p = puppet(
        step("work", routing=routing(branches={"failed": "work"}, max_iterations=6, next="publish")),
        step("publish"),
    )
    for _ in range(3):
        p.raises("work", "no connection")

    assert p.taken[-1] == ("work", "publish", "stall")
    assert p["publish"] == "running"
    p.returns("publish")
    assert p.status == "succeeded"


def test_different_errors_are_no_stall() -> None:
    p = puppet(
        step("work", routing=routing(branches={"failed": "work"}, max_iterations=6, next="publish")),
        step("publish"),
    )
    for n in range(3):
        p.raises("work", f"no connection {n}")

    assert p.taken[-1] == ("work", "work", "branch")


def test_a_person_may_want_another_round_of_a_stalled_loop() -> None:
    ways = routing(("output.ok", "publish"), loop_target="author", max_iterations=4, next="human")
    p = puppet(step("author"), step("critic", "author", routing=ways), step("publish"))
    for _ in range(3):
        p.returns("author", "same")
        p.returns("critic", {"ok": False})
    assert p.taken[-1] == ("critic", "human", "stall")

    p.answer("respond", target="author")
    assert p.taken[-1] == ("critic", "author", "human")
    assert p.running == ["author"]
    p.returns("author", "same")
    p.returns("critic", {"ok": False})
    assert p.run.decisions[p.questions[-1].decision].schema["respond"]["properties"]["target"]["enum"] == [
        "publish",
        "end",
    ]


def test_a_stall_holds_across_a_restart() -> None:
    p = puppet(step("author"), critic(times=5), step("publish"))
    for _ in range(3):
        p.restarts()
        p.returns("author", "same")
        p.restarts()
        p.returns("critic", {"ok": False})

    assert p.taken[-1] == ("critic", "publish", "stall")


# --- failures in loops ---


def test_a_router_that_fails_may_go_back_and_its_failure_is_forgotten_when_it_succeeds() -> None:
    p = puppet(
        step("author"),
        step(
            "critic", "author", routing=routing(branches={"failed": "author"}, max_iterations=3, next="end_")
        ),
        step("end_"),
    )
    p.returns("author", 1)
    p.raises("critic")
    assert (p["author"], p.run.failures) == ("running", 0)
    p.returns("author", 2)
    p.returns("critic")
    p.returns("end_")

    assert (p.status, p.run.failures) == ("succeeded", 0)


def test_a_router_that_fails_at_the_cap_has_failed() -> None:
    p = puppet(
        step("work", routing=routing(branches={"failed": "work"}, max_iterations=2, next="end_")),
        step("end_"),
    )
    p.raises("work", "one")
    p.raises("work", "two")

    assert p.status == "failed"
    assert p.run.reason == "step work failed: two"


def test_a_body_step_that_fails_takes_the_router_with_it_and_the_loop_is_over() -> None:
    p = microloop()
    p.returns("list")
    rounds(p, 1)
    p.raises("author")

    assert p.skip("critic") == ("upstream_failed", "needs author, which failed")
    assert p.skip("mail")[0] == "upstream_failed"
    assert p.skip("publish")[0] == "upstream_failed"
    assert p.status == "failed"
