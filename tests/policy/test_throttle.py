"""How likely a request is turned away before it is sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policy.throttle import AT_MOST, FREE, WINDOW, Slot, Throttle, accepted, asked, chance, counts


def after(requests: int, accepts: int) -> Throttle:
    return Throttle((Slot(0.0, requests, accepts),))


@pytest.mark.parametrize(
    ("requests", "accepts", "expected"),
    [
        (10, 5, 0.0),
        (100, 50, 0.0),
        (100, 40, 0.198),
        (100, 10, 0.792),
        (1, 0, 0.0),
        (9, 0, 0.0),
        (1_000, 0, 0.9),
    ],
)
def test_it_acts_when_more_than_half_of_enough_requests_were_rejected(
    requests: int, accepts: int, expected: float
) -> None:
    assert chance(after(requests, accepts), now=1.0) == pytest.approx(expected, abs=0.001)


@given(st.lists(st.tuples(st.floats(0, 30), st.booleans(), st.floats(0, 1, exclude_max=True)), max_size=200))
def test_never_more_than_nine_in_ten_are_turned_away(steps: list[tuple[float, bool, float]]) -> None:
    throttle, now = FREE, 0.0
    for seconds, fine, draw in steps:
        now += seconds
        likely = chance(throttle, now=now)
        assert 0.0 <= likely <= AT_MOST
        throttle, go = asked(throttle, now=now, draw=draw)
        assert go or draw < likely
        if go and fine:
            throttle = accepted(throttle, now=now)
        assert len(throttle.slots) <= 13


@given(st.floats(0, 1, exclude_max=True))
def test_a_provider_that_accepts_everything_is_never_throttled(draw: float) -> None:
    throttle = FREE
    for number in range(50):
        throttle, go = asked(throttle, now=number / 10, draw=draw)
        assert go
        throttle = accepted(throttle, now=number / 10)


def test_a_request_counts_also_when_it_is_turned_away() -> None:
    throttle, go = asked(after(100, 0), now=1.0, draw=0.5)

    assert not go
    assert counts(throttle, now=1.0) == (101, 0)


def test_what_is_two_minutes_old_is_forgotten() -> None:
    assert chance(after(100, 0), now=WINDOW) == 0.0
