"""One figure for how well a model is doing, and the figures behind it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policy.health import (
    FRESHNESS,
    KEPT,
    LATENCY,
    SUCCESS,
    UNKNOWN,
    WINDOW,
    Health,
    first_byte_timeout,
    freshness,
    observed,
    percentiles,
    score,
    success,
    system_health,
)


def after(*seconds: float, ok: bool = True, first_byte: float = 0.0) -> Health:
    health = UNKNOWN
    for one in seconds:
        health = observed(health, ok=ok, now=0.0, seconds=one, first_byte=first_byte)
    return health


outcomes = st.lists(
    st.tuples(st.booleans(), st.floats(0, 100), st.floats(0, 1_000), st.floats(0, 60)), max_size=150
)


@given(outcomes, st.floats(0, 10))
def test_the_score_is_between_nothing_and_one_and_the_window_is_bounded(
    steps: list[tuple[bool, float, float, float]], typical: float
) -> None:
    health, now = UNKNOWN, 0.0
    for ok, seconds, wait, first in steps:
        now += wait
        health = observed(health, ok=ok, now=now, seconds=seconds, first_byte=first)
        assert 0.0 <= score(health, now=now, typical=typical) <= 1.0
        assert len(health.outcomes) <= KEPT
        assert all(one.at > now - WINDOW for one in health.outcomes)


def test_the_weights_are_sixty_twenty_twenty() -> None:
    assert (SUCCESS, LATENCY, FRESHNESS) == (0.6, 0.2, 0.2)


def test_a_model_nobody_has_asked_scores_best_so_that_somebody_does() -> None:
    assert score(UNKNOWN, now=0.0) == pytest.approx(1.0)


def test_failures_cost_more_than_slowness() -> None:
    assert score(after(30.0, 30.0), now=0.0) > score(after(0.1, 0.1, ok=False), now=0.0)


def test_of_two_that_never_fail_the_faster_scores_higher() -> None:
    assert score(after(0.5), now=0.0) > score(after(5.0), now=0.0)


@given(st.floats(0, 1e5), st.floats(0, 1e5))
def test_the_longer_a_model_has_not_been_asked_the_more_it_is_worth_finding_out(a: float, b: float) -> None:
    early, later = sorted((a, b))

    assert freshness(after(1.0), now=early) <= freshness(after(1.0), now=later) < 1.0


def test_what_is_out_of_the_window_does_not_count() -> None:
    assert success(after(*[1.0] * 50, ok=False), now=1.0) < 0.1
    assert success(after(*[1.0] * 50, ok=False), now=WINDOW) == 1.0


def test_percentiles_are_of_answers_that_arrived() -> None:
    health = observed(after(*(float(n) for n in range(1, 100))), ok=False, now=0.0, seconds=1_000.0)

    assert percentiles(health, now=0.0) == (50.0, 95.0, 99.0)
    assert percentiles(UNKNOWN, now=0.0) is None


def test_the_average_follows_the_newest_answers() -> None:
    health = after(1.0, 2.0)

    assert health.ema == pytest.approx(1.2)
    assert observed(health, ok=False, now=0.0, seconds=60.0).ema == health.ema


# --- the first byte ---


def test_nothing_known_means_the_longest_timeout() -> None:
    assert first_byte_timeout(UNKNOWN, now=0.0) == 60.0


def test_one_quick_answer_narrows_it_and_a_hundred_narrow_it_further() -> None:
    one = first_byte_timeout(after(1.0, first_byte=0.4), now=0.0)
    many = first_byte_timeout(after(*[1.0] * 100, first_byte=0.4), now=0.0)

    assert one == pytest.approx(8.0)
    assert many == pytest.approx(0.4 * 4.7)


@given(outcomes, st.floats(0.1, 5), st.floats(5, 100))
def test_it_stays_between_its_bounds_and_above_what_is_usual(
    steps: list[tuple[bool, float, float, float]], least: float, most: float
) -> None:
    health = UNKNOWN
    for ok, seconds, _, first in steps:
        health = observed(health, ok=ok, now=0.0, seconds=seconds, first_byte=first)
    timeout = first_byte_timeout(health, now=0.0, least=least, most=most)

    assert least <= timeout <= most


# --- the system ---


def test_system_health_is_the_share_of_capacity_that_is_not_open() -> None:
    assert system_health([(50, False), (50, True)]) == 0.5
    assert system_health([(50, True), (10, True)]) == 0.0
    assert system_health([(50, False), (10, True), (40, False)]) == 0.9
    assert system_health([]) == 0.0


@given(st.lists(st.tuples(st.integers(0, 100), st.booleans())))
def test_system_health_is_between_nothing_and_one(capacities: list[tuple[int, bool]]) -> None:
    assert 0.0 <= system_health(capacities) <= 1.0


def test_a_window_survives_json() -> None:
    health = after(1.0, 2.0, first_byte=0.5)

    assert msgspec.json.decode(msgspec.json.encode(health), type=Health) == health
