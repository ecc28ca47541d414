"""Moments mean the same after a suspend, a clock step and a reboot."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.policy.breaker import CLOSED, Breaker, opened
from penstock.policy.buckets import ONE, Bucket, Limit, of_limits, reserve
from penstock.policy.moments import Saved, moved, shift

seconds = st.floats(0, 1e6)


@given(seconds, seconds, st.floats(-3_600, 3_600))
def test_within_one_boot_a_step_of_the_wall_clock_moves_nothing(
    now: float, later: float, step: float
) -> None:
    saved = Saved("boot-1", now, 1e9)

    assert shift(saved, boot="boot-1", now=now + later, wall=1e9 + later + step) == 0.0


@given(seconds, st.floats(1, 86_400), seconds, st.floats(-1e5, 1e5))
def test_after_a_reboot_a_wait_is_never_longer_than_it_was(
    before: float, wait: float, now: float, away: float
) -> None:
    by = shift(Saved("boot-1", before, 1e9), boot="boot-2", now=now, wall=1e9 + away)
    then = moved(Breaker(phase="open", until=before + wait), by).until

    assert then is not None
    assert then - now <= wait + 1e-3


def test_after_a_reboot_the_time_the_machine_was_away_is_taken_off_the_wait() -> None:
    by = shift(Saved("boot-1", 5_000.0, 1e9), boot="boot-2", now=12.0, wall=1e9 + 70.0)

    assert moved(Breaker(phase="open", until=5_100.0), by).until == 12.0 + 30.0


def test_a_wall_clock_that_went_back_during_the_reboot_leaves_the_wait_whole() -> None:
    by = shift(Saved("boot-1", 5_000.0, 1e9), boot="boot-2", now=12.0, wall=1e9 - 3_600.0)

    assert moved(Breaker(phase="open", until=5_100.0), by).until == 112.0


def test_moments_inside_of_other_states_move_too_and_never_stays_never() -> None:
    bucket = reserve(of_limits([Limit(dimension="requests", limit=5)]), ONE, now=100.0)
    assert bucket is not None

    there = moved(bucket, 50.0)

    assert there.meters["requests"].slots[0].since == 150.0
    assert there.closed_until is None
    assert moved(there, 0.0) is there


def test_states_survive_json() -> None:
    bucket = reserve(of_limits([Limit(dimension="requests", limit=5)]), ONE, now=100.0)
    breaker = opened(CLOSED, now=3.0)

    assert msgspec.json.decode(msgspec.json.encode(bucket), type=Bucket) == bucket
    assert msgspec.json.decode(msgspec.json.encode(breaker), type=Breaker) == breaker
