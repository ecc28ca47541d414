"""How many calls at once, and how that follows what a provider can take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.policy.bulkhead import (
    HOLD,
    HOSTED,
    LOCAL,
    Bulkhead,
    of_size,
    overloaded,
    restarted,
    room,
    succeeded,
    why_not,
)


def test_ten_calls_at_once_for_local_ones_and_fifty_for_hosted_ones() -> None:
    assert room(of_size(LOCAL), 0) == 10
    assert room(Bulkhead(), 0) == HOSTED == 50


def test_a_full_bulkhead_says_so() -> None:
    assert why_not(of_size(2), 2) == "2 of 2 calls under way"
    assert not why_not(of_size(2), 1)


@given(
    st.integers(1, 60),
    st.lists(st.tuples(st.sampled_from(["ok", "overload", "restart"]), st.floats(0, 10)), max_size=80),
)
def test_the_limit_is_never_less_than_one_and_never_more_than_configured(
    most: int, steps: list[tuple[str, float]]
) -> None:
    bulkhead, now = of_size(most), 0.0
    for what, seconds in steps:
        now += seconds
        match what:
            case "ok":
                bulkhead = succeeded(bulkhead, in_flight=max(1, int(bulkhead.limit)), now=now)
            case "overload":
                bulkhead = overloaded(bulkhead, began=now, now=now)
            case _:
                bulkhead = restarted(bulkhead)
        assert 1 <= room(bulkhead, 0) <= most


def test_a_provider_that_came_back_gets_one_call_and_one_more_with_every_success() -> None:
    bulkhead = restarted(of_size(50))
    limits = []
    for _ in range(4):
        limits.append(room(bulkhead, 0))
        bulkhead = succeeded(bulkhead, in_flight=room(bulkhead, 0), now=0.0)

    assert limits == [1, 2, 3, 4]


def test_overloads_of_the_same_moment_halve_the_limit_once() -> None:
    bulkhead = of_size(50)
    for _ in range(20):
        bulkhead = overloaded(bulkhead, began=0.0, now=1.0)

    assert bulkhead.limit == 25.0


def test_an_overload_lowers_the_limit_to_what_has_been_seen_to_work() -> None:
    bulkhead = overloaded(succeeded(of_size(50), in_flight=3, now=0.0), began=0.0, now=1.0)

    assert bulkhead.limit == 3.0


def test_an_idle_bulkhead_does_not_grow() -> None:
    bulkhead = overloaded(succeeded(of_size(50), in_flight=20, now=0.0), began=0.0, now=0.0)

    assert succeeded(bulkhead, in_flight=1, now=1_000.0).limit == bulkhead.limit


def test_beyond_what_proved_too_much_it_waits_before_it_tries_again() -> None:
    bulkhead = Bulkhead(limit=4.0, ceiling=4.0, proven=4, hold_until=HOLD)

    assert succeeded(bulkhead, in_flight=4, now=HOLD - 0.1).limit == 4.0
    assert succeeded(bulkhead, in_flight=4, now=HOLD).limit == 4.25


def test_a_provider_with_room_for_four_sees_few_calls_too_many_after_it_came_back() -> None:
    bulkhead, under_way, too_many, fine = restarted(of_size(50)), list[tuple[float, float]](), 0, 0
    for tick in range(1_900):  # nineteen seconds, and always someone who wants to call
        now = tick / 100
        for call in [one for one in under_way if one[1] <= now]:
            crowd = len(under_way)
            under_way.remove(call)
            if crowd > 4:
                too_many += 1
                bulkhead = overloaded(bulkhead, began=call[0], now=now)
            else:
                fine += 1
                bulkhead = succeeded(bulkhead, in_flight=crowd, now=now)
        under_way += [(now, now + 0.1)] * room(bulkhead, len(under_way))

    assert too_many <= 10
    assert fine >= 600
