"""The order in which the rules of a router apply, as a function of what they come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.policy.routing import Asking, Choice, Tie, branch_key, choose, fallback
from penstock.workflow import expr
from penstock.workflow.expr import MISSING, Expression, Failure
from penstock.workflow.graph import END, HUMAN
from penstock.workflow.names import Scope
from penstock.workflow.routes import Router

FIX, SHIP, BACK, ON = 1, 2, 3, 4
SCOPE = Scope(names=frozenset(("output", "status", "iteration")))


def expression(source: str) -> Expression:
    return expr.compile(source, SCOPE)


def asking(
    output: Any = None,
    *,
    closed: Mapping[int, str] | None = None,
    failed: bool = False,
    on_error: Any = "fallthrough",
) -> Asking:
    def look_up(path: Any) -> Any:
        value: Any = {"output": output, "status": "failed" if failed else "succeeded", "iteration": 1}
        for key in path:
            value = value.get(key, MISSING) if isinstance(value, dict) else MISSING
        return value

    return Asking(
        evaluate=lambda one: one.evaluate(look_up),
        closed=lambda target: (closed or {}).get(target, ""),
        failed=failed,
        on_error=on_error,
    )


def router(*conditions: tuple[str, int], on: str = "", **parts: Any) -> Router:
    made = tuple((expression(source), target) for source, target in conditions)
    return Router(conditions=made, on=expression(on) if on else None, **parts)


def chosen(router: Router, asking: Asking) -> tuple[int | None, str]:
    found = choose(router, asking)
    assert isinstance(found, Choice)
    return found.target, found.rule


FULL = router(
    ("output.n == 1", FIX),
    ("output.n < 3", SHIP),
    on="output.kind",
    branches={"fix": FIX, "3": SHIP, "failed": BACK, "over": END, "who": HUMAN},
    loop_target=BACK,
    next=ON,
)


@pytest.mark.parametrize(
    ("output", "choice"),
    [
        ({"n": 1, "kind": "over"}, (FIX, "condition")),
        ({"n": 2, "kind": "over"}, (SHIP, "condition")),
        ({"n": 3, "kind": "fix"}, (FIX, "branch")),
        ({"n": 3, "kind": 3}, (SHIP, "branch")),
        ({"n": 3, "kind": "over"}, (END, "branch")),
        ({"n": 3, "kind": "who"}, (HUMAN, "branch")),
        ({"n": 3, "kind": "other"}, (BACK, "loop")),
    ],
)
def test_the_first_hit_wins_conditions_then_branches_then_the_loop(output: Any, choice: Any) -> None:
    assert chosen(FULL, asking(output)) == choice


def test_when_the_way_back_is_closed_the_way_on_is_taken_and_says_why() -> None:
    found = choose(FULL, asking({"n": 3, "kind": ""}, closed={BACK: "enough"}))

    assert found == Choice(ON, "next", found.evaluated, reason="enough")


def test_a_cap_never_hides_a_condition() -> None:
    closed = {BACK: "enough"}
    back = router(("output.again", BACK), ("true == output.ok", SHIP), next=ON, loop_target=BACK)

    assert chosen(back, asking({"again": True, "ok": True}, closed=closed)) == (SHIP, "condition")
    assert chosen(back, asking({"again": True, "ok": False}, closed=closed)) == (ON, "next")
    assert chosen(back, asking({"again": True, "ok": True})) == (BACK, "condition")


def test_a_closed_target_is_on_record_beside_the_condition_that_held() -> None:
    found = choose(router(("output.again", BACK), next=ON), asking({"again": True}, closed={BACK: "enough"}))

    assert found.evaluated == ({"expr": "output.again", "target": BACK, "value": True, "closed": "enough"},)


def test_a_closed_branch_leaves_the_rules_after_it() -> None:
    branches = router(on="output", branches={"again": BACK}, next=ON)

    assert chosen(branches, asking("again", closed={BACK: "enough"})) == (ON, "next")


def test_without_a_way_on_a_cap_leaves_no_target_and_says_so() -> None:
    loop = router(loop_target=BACK)

    assert choose(loop, asking(closed={BACK: "enough"})) == Choice(None, "cap", reason="enough")


def test_without_any_rule_that_applies_there_is_no_target() -> None:
    assert chosen(router(("output.ok", SHIP)), asking({"ok": False})) == (None, "none")


def test_a_condition_that_comes_to_something_else_than_true_does_not_hold() -> None:
    assert chosen(router(("output.ok", SHIP), next=ON), asking({"ok": "yes"})) == (ON, "next")


# --- expressions that fail ---


BROKEN = router(
    ("output.missing == 1", FIX), ("output.ok", SHIP), on="output.kind", branches={"b": BACK}, next=ON
)


@pytest.mark.parametrize(
    ("policy", "output", "choice"),
    [
        ("fallthrough", {"ok": True, "kind": "b"}, (SHIP, "condition")),
        ("fallthrough", {"ok": False, "kind": "b"}, (BACK, "branch")),
        ("fallthrough", {"ok": False}, (ON, "next")),
        ("default", {"ok": True, "kind": "b"}, (ON, "next")),
        ("halt", {"ok": True, "kind": "b"}, (None, "halt")),
    ],
)
def test_what_an_expression_that_fails_does_is_up_to_the_policy(
    policy: str, output: Any, choice: Any
) -> None:
    assert chosen(BROKEN, asking(output, on_error=policy)) == choice


@pytest.mark.parametrize(("policy", "choice"), [("default", (ON, "next")), ("halt", (None, "halt"))])
def test_a_branch_value_that_fails_follows_the_same_policy(policy: str, choice: Any) -> None:
    branches = router(on="output.kind", branches={"b": SHIP}, loop_target=BACK, next=ON)

    assert chosen(branches, asking({}, on_error=policy)) == choice


def test_default_means_next_and_neither_the_loop_nor_a_tie_breaker() -> None:
    loop = router(("output.x", SHIP), loop_target=BACK, next=ON, tie_targets=(SHIP, ON))

    assert chosen(loop, asking({}, on_error="default")) == (ON, "next")
    assert isinstance(choose(loop, asking({})), Tie)


def test_a_halt_names_the_expression_that_failed() -> None:
    found = choose(BROKEN, asking({}, on_error="halt"))

    assert isinstance(found, Choice)
    assert found.reason.startswith("output.missing == 1: ")


def test_every_expression_is_on_record_with_its_value_or_its_error() -> None:
    found = choose(BROKEN, asking({"ok": False, "kind": "z"}))

    assert [set(entry) for entry in found.evaluated] == [
        {"expr", "target", "error"},
        {"expr", "target", "value"},
        {"expr", "value"},
    ]


def test_a_long_text_is_recorded_only_by_its_beginning() -> None:
    found = choose(router(on="output", branches={"x": SHIP}, next=ON), asking("y" * 10_000))

    assert found.evaluated[0]["value"] == "y" * 200


def test_what_an_expression_cost_is_on_record_when_there_is_a_clock() -> None:
    ticks = iter(range(0, 100_000, 1500))
    given = asking({"ok": True})
    timed = Asking(given.evaluate, given.closed, clock=lambda: next(ticks))

    assert choose(router(("output.ok", SHIP)), timed).evaluated[0]["us"] == 1.5


# --- failed routers ---


def test_a_failed_router_is_routed_only_by_its_branch_for_failures() -> None:
    assert chosen(FULL, asking(None, failed=True)) == (BACK, "branch")


def test_a_failed_router_is_routed_by_conditions_that_read_the_status() -> None:
    minds = router(("output.ok || true", SHIP), ("status == 'failed'", FIX), next=ON)

    assert chosen(minds, asking(None, failed=True)) == (FIX, "condition")


def test_neither_loop_nor_next_nor_a_tie_breaker_is_for_a_failure() -> None:
    plain = router(loop_target=BACK, next=ON, tie_targets=(SHIP, ON))

    assert chosen(plain, asking(None, failed=True)) == (None, "failed")


# --- ties ---


def test_two_open_candidates_make_a_tie_and_one_does_not() -> None:
    tied = router(tie_targets=(FIX, SHIP, BACK), loop_target=BACK, next=ON)

    assert choose(tied, asking(closed={BACK: "enough"})) == Tie((FIX, SHIP))
    assert chosen(tied, asking(closed={BACK: "enough", FIX: "no"})) == (ON, "next")


def test_a_tie_breaker_is_not_asked_when_a_rule_has_chosen() -> None:
    tied = router(("output.ok", SHIP), tie_targets=(FIX, SHIP), next=ON)

    assert chosen(tied, asking({"ok": True})) == (SHIP, "condition")


def test_the_way_without_an_answer_is_the_loop_and_then_next() -> None:
    tied = router(tie_targets=(FIX, SHIP), loop_target=BACK, next=ON)

    assert fallback(tied, lambda _: "").target == BACK
    assert fallback(tied, {BACK: "enough"}.get).target == ON  # type: ignore[arg-type]  # None is no reason


# --- keys ---


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("yes", "yes"), (True, "true"), (None, "null"), (3, "3"), (3.0, "3"), (2.5, "2.5"), ([1], None),
        ({"a": 1}, None), ("", ""), ("__proto__", "__proto__"), (1e300, str(int(1e300))),
    ],
)  # fmt: skip
def test_a_value_is_written_as_a_key_as_one_would_in_a_file(value: Any, key: str | None) -> None:
    assert branch_key(value) == key


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_number_that_is_none_is_a_key_of_nothing_one_writes(value: float) -> None:
    assert branch_key(value) in (None, "null")


def test_a_failure_carries_its_source() -> None:
    given = asking({})
    assert isinstance(given.evaluate(expression("output.x")), Failure)
