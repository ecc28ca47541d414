"""Who answers, who stands by, and why the others do not."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policy.selection import Candidate, Passed, Standing, better_of_two, dearest, select

draws = st.tuples(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
reasons = st.sampled_from(["", "", "", "for a reason"])


def standing(name: str, *, tier: int = 0, lane: int = 0, order: int = 0, **rest: object) -> Standing:
    candidate = Candidate(name=name, tier=tier, lane=lane, order=order)
    return Standing(candidate=candidate, **rest)  # type: ignore[arg-type]  # as the field is


@st.composite
def fields(draw: st.DrawFn) -> list[Standing]:
    """Candidates that stand in every way there is."""
    return [
        standing(
            f"m{number}",
            tier=draw(st.integers(0, 2)),
            lane=draw(st.integers(0, 3)),
            order=draw(st.integers(0, 3)),
            disabled=draw(reasons),
            breaker=draw(reasons),
            bucket=draw(reasons),
            bulkhead=draw(reasons),
            throttle=draw(reasons),
            score=draw(st.floats(0, 1)),
            left=draw(st.floats(0, 1)),
        )
        for number in range(draw(st.integers(0, 8)))
    ]


def blocked(one: Standing) -> bool:
    return bool(one.disabled or one.breaker or one.bucket or one.bulkhead or one.throttle)


@given(fields(), draws, st.integers(0, 2), st.none() | st.integers(0, 3))
def test_every_candidate_is_either_in_the_chain_or_told_why_not(
    standings: list[Standing], chance: tuple[float, float], tier: int, allowed: int | None
) -> None:
    made = select(standings, draws=chance, tier=tier, allowed=allowed)
    passed = [one.name for one in made.passed]

    assert sorted([*made.chain, *passed]) == sorted(one.candidate.name for one in standings)
    assert all(one.reason for one in made.passed)
    assert not any(blocked(one) for one in standings if one.candidate.name in made.chain)


@given(fields(), draws, st.integers(0, 2), st.none() | st.integers(0, 3))
def test_a_dearer_lane_than_allowed_is_never_in_the_chain(
    standings: list[Standing], chance: tuple[float, float], tier: int, allowed: int | None
) -> None:
    made = select(standings, draws=chance, tier=tier, allowed=allowed)
    lanes = {one.candidate.name: one.candidate.lane for one in standings}
    meant = [one.candidate.lane for one in standings if one.candidate.tier == tier]

    if allowed is not None:
        assert all(lanes[name] <= allowed for name in made.chain)
    elif meant:
        assert all(lanes[name] <= max(meant) for name in made.chain)


@given(fields(), draws)
def test_lower_tiers_stand_behind_higher_ones_and_are_called_degraded(
    standings: list[Standing], chance: tuple[float, float]
) -> None:
    made = select(standings, draws=chance, allowed=3)
    tiers = {one.candidate.name: one.candidate.tier for one in standings}

    assert [tiers[name] for name in made.chain] == sorted(tiers[name] for name in made.chain)
    assert made.degraded == {name for name in made.chain if tiers[name] > 0}


@given(fields(), draws, st.integers(0, 9))
def test_a_call_that_names_its_model_is_never_answered_by_another(
    standings: list[Standing], chance: tuple[float, float], number: int
) -> None:
    made = select(standings, draws=chance, pin=f"m{number}")

    assert set(made.chain) <= {f"m{number}"}
    assert not made.degraded


@pytest.mark.parametrize("obstacle", ["disabled", "breaker", "bucket", "bulkhead", "throttle"])
def test_each_obstacle_is_named(obstacle: str) -> None:
    made = select([standing("a", **{obstacle: "closed on Sundays"})], draws=(0.0, 0.0))

    assert made.passed == (Passed("a", obstacle, "closed on Sundays"),)  # type: ignore[arg-type]  # a literal


def test_obstacles_that_last_are_named_before_those_that_pass() -> None:
    dear = standing("dear", lane=2, tier=1, breaker="open", bulkhead="full")

    made = select([standing("cheap"), dear], draws=(0.0, 0.0))

    assert made.chain == ("cheap",)
    assert made.passed == (Passed("dear", "lane", "cost lane 2, and the call may use lanes up to 0"),)


def test_a_tier_above_the_one_asked_for_does_not_answer() -> None:
    made = select([standing("best", tier=0), standing("good", tier=1)], draws=(0.0, 0.0), tier=1)

    assert made.chain == ("good",)
    assert made.passed[0].obstacle == "tier"
    assert not made.degraded


def test_failing_over_costs_no_more_than_the_candidates_that_were_meant_to_answer() -> None:
    chain = [Candidate(name="a", lane=1), Candidate(name="b", lane=2), Candidate(name="c", tier=1, lane=3)]

    assert dearest(chain) == 2
    assert dearest(chain, allowed=3) == 3
    assert dearest(chain[2:]) == 3
    assert dearest([]) == 0


def test_the_heavier_of_two_is_chosen_and_weight_is_health_times_what_is_left() -> None:
    well = standing("well", score=0.9, left=0.1)
    free = standing("free", score=0.5, left=0.8)

    assert {better_of_two([well, free], (x, 0.0)).candidate.name for x in (0.0, 0.5)} == {"free"}


def test_every_one_but_the_worst_is_chosen_now_and_then() -> None:
    many = [standing(str(number), score=number / 10) for number in range(1, 6)]
    grid = [number / 20 for number in range(20)]

    chosen = Counter(better_of_two(many, pair).candidate.name for pair in product(grid, grid))

    assert set(chosen) == {"2", "3", "4", "5"}
    assert chosen["5"] > chosen["4"] > chosen["3"] > chosen["2"]


def test_behind_the_chosen_one_the_chain_is_as_configured() -> None:
    names = [standing(name, order=order, score=0.5) for order, name in enumerate("abcd")]

    assert select(names, draws=(0.99, 0.99)).chain == ("c", "a", "b", "d")
