"""What may still be asked of a provider, by its headers, by counting, and by what it refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policy.buckets import (
    HOLD,
    NOTHING,
    ONE,
    WIDEST,
    Bucket,
    Cost,
    Limit,
    exhausted,
    fed,
    free_at,
    left,
    of_limits,
    refused,
    remaining,
    reserve,
    settle,
    why_not,
)


def requests(limit: float, remaining: float | None = None, **rest: float) -> Limit:
    return Limit(dimension="requests", limit=limit, remaining=remaining, **rest)


def tokens(limit: float, remaining: float | None = None) -> Limit:
    return Limit(dimension="tokens", limit=limit, remaining=remaining)


def drained(bucket: Bucket, *, now: float) -> tuple[Bucket, int]:
    """Take requests until there are none."""
    taken = 0
    while (after := reserve(bucket, now=now)) is not None:
        bucket, taken = after, taken + 1
        assert taken < 10_000
    return bucket, taken


# --- counting ---


def test_what_nobody_limits_is_granted() -> None:
    assert not why_not(Bucket(), Cost(tokens=1e9), now=0.0)
    assert remaining(Bucket(), now=0.0) == 1.0


def test_a_full_bucket_grants_its_limit_at_once_and_the_next_when_the_window_has_passed() -> None:
    bucket, taken = drained(of_limits([requests(10)]), now=0.0)

    assert taken == 10
    assert why_not(bucket, now=59.0) == "0 requests left, 1 needed"
    assert drained(bucket, now=63.1)[1] == 10


@given(
    st.integers(1, 30),
    st.lists(st.tuples(st.floats(0, 20), st.integers(1, 40)), max_size=60),
)
def test_a_bucket_never_grants_more_than_its_limit_in_any_window(
    limit: int, steps: list[tuple[float, int]]
) -> None:
    bucket, now, grants = of_limits([requests(limit)]), 0.0, []
    for seconds, wanted in steps:
        now += seconds
        for _ in range(wanted):
            after = reserve(bucket, now=now)
            if after is None:
                break
            bucket = after
            grants.append(now)
    for last in grants:
        assert sum(last - 60.0 < one <= last for one in grants) <= limit


@given(
    st.lists(
        st.tuples(st.floats(0, 30), st.floats(0, 500), st.floats(0, 900), st.floats(-5, 1_200) | st.none()),
        max_size=40,
    )
)
def test_what_is_left_is_never_negative_and_never_more_than_the_limit(
    steps: list[tuple[float, float, float, float | None]],
) -> None:
    bucket, now = of_limits([requests(20), tokens(1_000)]), 0.0
    for seconds, estimate, used, said in steps:
        now += seconds
        bucket = fed(bucket, [tokens(1_000, said)], now=now)
        cost = Cost(tokens=estimate)
        after = reserve(bucket, cost, now=now)
        if after is not None:
            bucket = settle(after, cost, Cost(tokens=used), began=now, now=now + 0.5)
        for meter in bucket.meters.values():
            assert 0.0 <= left(meter, now=now + 0.5) <= meter.limit
            assert all(slot.taken >= 0.0 for slot in meter.slots)
            assert len(meter.slots) <= 23


def test_what_was_reserved_and_not_used_comes_back_and_what_was_used_beyond_is_taken() -> None:
    full = of_limits([tokens(1_000)])
    bucket = reserve(full, Cost(tokens=800), now=0.0)
    assert bucket is not None

    saved = settle(bucket, Cost(tokens=800), Cost(tokens=300), began=0.0, now=5.0)
    over = settle(bucket, Cost(tokens=800), Cost(tokens=900), began=0.0, now=5.0)

    assert left(saved.meters["tokens"], now=5.0) == 700.0
    assert left(over.meters["tokens"], now=5.0) == 100.0


def test_a_call_larger_than_a_whole_window_goes_when_everything_is_there() -> None:
    bucket = reserve(of_limits([tokens(1_000)]), Cost(tokens=5_000), now=0.0)

    assert bucket is not None
    assert why_not(bucket, Cost(tokens=1), now=1.0)


# --- headers ---


def test_headers_say_what_is_left_and_it_refills_steadily_from_there() -> None:
    bucket = fed(Bucket(), [requests(60, 2)], now=0.0)

    bucket, taken = drained(bucket, now=0.0)
    assert taken == 2
    assert why_not(bucket, now=0.9)
    assert drained(bucket, now=3.0)[1] == 3


@pytest.mark.parametrize(
    "lie",
    [
        Limit(dimension="tokens", limit=-1, remaining=-1),
        Limit(dimension="tokens", limit=0, remaining=0),
        Limit(dimension="tokens", limit=100, remaining=101),
        Limit(dimension="tokens", limit=100, remaining=5, window=0),
        Limit(dimension="tokens"),
    ],
)
def test_figures_that_cannot_be_true_change_nothing(lie: Limit) -> None:
    before = fed(Bucket(), [tokens(1_000, 400)], now=0.0)

    assert fed(before, [lie], now=1.0).meters == before.meters


def test_calls_that_have_not_been_answered_are_taken_off_what_a_header_says() -> None:
    bucket = fed(Bucket(), [requests(60, 5)], now=0.0, pending=Cost(requests=3))

    assert drained(bucket, now=0.0)[1] == 2


def test_a_configured_limit_holds_whatever_the_provider_would_allow() -> None:
    bucket = fed(of_limits([requests(3)]), [requests(5_000, 4_999)], now=0.0)

    assert drained(bucket, now=0.0)[1] == 3


def test_headers_older_than_a_window_are_not_believed_any_more() -> None:
    bucket = fed(Bucket(), [requests(60, 0)], now=0.0)

    assert drained(bucket, now=61.0)[1] == 60


def test_the_scarcest_thing_decides_how_much_is_left() -> None:
    bucket = fed(Bucket(), [requests(100, 90), tokens(1_000, 100)], now=0.0)

    assert remaining(bucket, now=0.0) == pytest.approx(0.1)


# --- refusals ---


@given(st.floats(0, 1, exclude_max=True))
def test_a_hint_is_obeyed_and_not_much_more(draw: float) -> None:
    bucket = refused(Bucket(), hint=3.0, began=0.0, now=0.1, draw=draw)

    assert why_not(bucket, now=3.09).startswith("rate limited for another")
    assert remaining(bucket, now=3.0) == 0.0
    assert not why_not(bucket, now=3.1 + WIDEST)


def test_without_a_hint_the_wait_is_two_minutes_and_grows() -> None:
    bucket, now, waits = Bucket(), 0.0, []
    for _ in range(6):
        bucket = refused(bucket, hint=None, began=now, now=now)
        assert bucket.closed_until is not None
        waits.append(bucket.closed_until - now)
        now = bucket.closed_until

    assert waits == [120.0, 180.0, 270.0, 405.0, 600.0, 600.0]


def test_a_hint_that_was_obeyed_and_was_wrong_is_not_believed_to_the_letter_again() -> None:
    bucket, now, waits = Bucket(), 0.0, []
    for _ in range(4):
        bucket = refused(bucket, hint=0.1, began=now, now=now)
        assert bucket.closed_until is not None
        waits.append(round(bucket.closed_until - now, 3))
        now = bucket.closed_until

    assert waits == [0.1, 1.0, 1.5, 2.25]


def test_calls_sent_before_the_refusal_came_back_are_the_same_refusal() -> None:
    bucket = refused(Bucket(), hint=3.0, began=0.0, now=1.0)
    again = refused(bucket, hint=2.5, began=0.5, now=1.1)

    assert again == bucket
    assert refused(bucket, hint=None, began=0.5, now=1.1) == bucket


def test_a_success_sent_after_the_refusal_ends_the_series() -> None:
    bucket = refused(Bucket(), hint=0.1, began=0.0, now=0.0)
    bucket = refused(bucket, hint=0.1, began=0.2, now=0.2)
    assert bucket.refusals == 1

    bucket = settle(bucket, ONE, ONE, began=1.5, now=1.6)
    assert bucket.refusals == 0


@given(st.floats(0, 0.1), st.floats(0.5, 4), st.floats(0, 1, exclude_max=True))
def test_the_real_pace_is_learned_from_two_refusals_whatever_the_headers_claim(
    offset: float, rate: float, draw: float
) -> None:
    """A provider that lets a few through at once and then so many a second, and says it has plenty."""
    plenty = [requests(5_000, 4_999, reset=0.012)]
    bucket, level, before, passed, refusals = fed(Bucket(), plenty, now=0.0), 5.0, 0.0, 0, 0
    for number in range(200):  # ten a second for twenty seconds
        now = offset + number / 10
        after = reserve(bucket, now=now)
        if after is None:
            continue
        level, before = min(5.0, level + (now - before) * rate), now
        if level >= 1.0:
            level, passed = level - 1.0, passed + 1
            bucket = fed(settle(after, ONE, ONE, began=now, now=now), plenty, now=now)
        else:
            refusals += 1
            after = settle(after, ONE, NOTHING, began=now, now=now, ok=False)
            hint = (1.0 - level) / rate
            bucket = refused(after, hint=hint, began=now, now=now, draw=draw)

    assert refusals <= 3
    assert passed >= 0.9 * min(200, 5.0 + 20.0 * rate) - 1


def test_refusals_far_apart_teach_no_pace() -> None:
    bucket = refused(Bucket(), hint=0.5, began=0.0, now=0.0)
    bucket = settle(bucket, ONE, ONE, began=100.0, now=100.0)
    bucket = refused(bucket, hint=0.5, began=3_600.0, now=3_600.0)

    assert bucket.every is None


def test_a_learned_pace_is_lifted_while_nobody_complains_and_then_forgotten() -> None:
    bucket = Bucket(every=10.0, paced_at=0.0, next_at=1_000.0)

    assert why_not(bucket, now=1.0) == "paced at a request every 10 s"
    assert why_not(bucket, now=121.0) == "paced at a request every 8.1 s"
    assert not why_not(bucket, now=600.0)


# --- quota ---


def test_a_quota_that_ran_out_is_left_alone_for_an_hour_then_two_up_to_a_day() -> None:
    bucket, now, waits = Bucket(), 0.0, []
    for _ in range(7):
        bucket = exhausted(bucket, hint=None, now=now)
        assert bucket.closed_until is not None
        waits.append((bucket.closed_until - now) / HOLD)
        now = bucket.closed_until

    assert waits == [1, 2, 4, 8, 16, 24, 24]


def test_a_quota_with_a_hint_is_left_alone_for_that_long() -> None:
    assert exhausted(Bucket(), hint=24_367.0, now=0.0).closed_until == 24_367.0


# --- when to ask again ---


def test_a_bucket_that_grants_is_free_now() -> None:
    assert free_at(of_limits([requests(5)]), now=7.0) == 7.0


def test_a_closed_bucket_is_free_when_it_opens() -> None:
    closed = refused(Bucket(), hint=12.0, began=0.0, now=1.0)

    assert free_at(closed, now=2.0) == pytest.approx(13.0)


@given(st.integers(1, 20), st.lists(st.floats(0, 20), max_size=40), st.booleans())
def test_what_is_not_granted_now_is_granted_at_the_moment_that_was_named(
    limit: int, waits: list[float], told: bool
) -> None:
    bucket, now = of_limits([requests(limit)]) if not told else Bucket(), 0.0
    for seconds in waits:
        now += seconds
        if told:
            bucket = fed(bucket, [requests(limit, 0.0)], now=now)
        bucket = reserve(bucket, now=now) or bucket

    at = free_at(bucket, now=now)

    assert at >= now
    assert not why_not(bucket, now=at + 0.001)
    assert bool(why_not(bucket, now=now)) == (at > now)
