"""Who waits and who is turned away when there is no room."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policy.shedding import (
    EMPTY,
    Priority,
    Queue,
    Waiting,
    left,
    offer,
    retry_after,
    saturation,
    served,
    swept,
)

priorities = st.sampled_from(["high", "medium", "low"])
RANK = {"high": 0, "medium": 1, "low": 2}


def filled(number: int, priority: Priority = "medium", *, longest: int = 10) -> Queue:
    queue = Queue(longest=longest)
    for call in range(number):
        queue, _ = offer(queue, f"{priority}-{call}", priority, free=0, now=0.0)
    return queue


def test_while_there_is_room_everybody_is_served() -> None:
    for priority in ("high", "medium", "low"):
        assert offer(EMPTY, "call", priority, free=1, now=0.0)[1].verdict == "serve"


def test_without_room_a_call_waits_its_turn() -> None:
    queue, offered = offer(EMPTY, "call", "medium", free=0, now=0.0)

    assert offered.verdict == "queue"
    assert served(queue, now=1.0)[1] == "call"


def test_half_a_queue_sheds_low_priorities_until_it_is_well_below() -> None:
    queue = filled(5)
    assert queue.shedding
    assert offer(queue, "low", "low", free=0, now=0.0)[1].verdict == "shed"
    assert offer(queue, "more", "medium", free=0, now=0.0)[1].verdict == "queue"

    queue, _ = served(queue, now=0.0)
    assert not queue.shedding  # four of ten
    queue, _ = offer(queue, "low", "low", free=0, now=0.0)
    assert queue.shedding


def test_between_the_two_marks_nothing_changes() -> None:
    before = Queue(longest=20, waiting=tuple(Waiting(str(n), "medium", 0.0, 30.0) for n in range(9)))
    calm, _ = offer(before, "x", "high", free=0, now=0.0)
    assert calm.shedding  # ten of twenty
    down, _ = served(calm, now=0.0)

    assert not before.shedding
    assert down.shedding  # nine of twenty, coming from above


def test_an_old_queue_sheds_even_when_it_is_short() -> None:
    queue = filled(1, longest=100)

    assert saturation(queue, free=0, now=15.0) == 0.5
    assert offer(queue, "low", "low", free=0, now=15.0)[1].verdict == "shed"


def test_high_goes_before_medium_and_in_a_full_queue_takes_the_youngest_place() -> None:
    queue = filled(10)

    queue, offered = offer(queue, "urgent", "high", free=0, now=0.0)

    assert offered.displaced == "medium-9"
    assert served(queue, now=0.0)[1] == "urgent"
    assert offer(queue, "one more", "medium", free=0, now=0.0)[1].reason == "10 calls wait already"


def test_nobody_waits_beyond_a_deadline() -> None:
    queue, _ = offer(EMPTY, "soon", "medium", free=0, now=0.0, deadline=2.0)
    queue, _ = offer(queue, "patient", "medium", free=0, now=0.0)

    queue, late = swept(queue, now=2.0)
    assert late == ("soon",)
    assert swept(queue, now=30.0)[1] == ("patient",)
    assert offer(EMPTY, "too late", "medium", free=0, now=5.0, deadline=5.0)[1].verdict == "shed"


def test_a_caller_that_went_away_has_no_place_any_more() -> None:
    assert left(filled(2), "medium-0").waiting[0].call == "medium-1"


def test_those_turned_away_are_told_when_to_come_back() -> None:
    assert retry_after(filled(9), per_second=2.0) == 5.0
    assert retry_after(filled(9), per_second=0.0) == 30.0


@given(
    st.lists(
        st.tuples(priorities, st.integers(0, 3), st.floats(0, 5), st.booleans()),
        max_size=80,
    )
)
def test_the_queue_is_bounded_in_order_and_loses_nobody(
    steps: list[tuple[Priority, int, float, bool]],
) -> None:
    queue, now = Queue(longest=8, patience=10.0), 0.0
    ends: dict[str, str] = {}
    for number, (priority, free, seconds, serve) in enumerate(steps):
        now += seconds
        queue, late = swept(queue, now=now)
        ends.update(dict.fromkeys(late, "late"))
        if serve:
            queue, call = served(queue, now=now)
            if call:
                ends[call] = "served"
        queue, offered = offer(queue, str(number), priority, free=free, now=now)
        if offered.displaced:
            ends[offered.displaced] = "displaced"
        if offered.verdict != "queue":
            ends[str(number)] = offered.verdict
        assert len(queue.waiting) <= 8
        order = [(RANK[one.priority], one.since) for one in queue.waiting]
        assert order == sorted(order)
        assert all(now < one.deadline <= now + 10.0 for one in queue.waiting)
        assert offered.verdict != "shed" or priority != "high" or len(queue.waiting) == 8
    waiting = {one.call for one in queue.waiting}
    assert waiting | set(ends) == {str(number) for number in range(len(steps))}
    assert not waiting & set(ends)


@pytest.mark.parametrize("queue", [Queue(longest=0), Queue(patience=0.0)])
def test_a_queue_without_places_or_patience_sheds(queue: Queue) -> None:
    assert offer(queue, "call", "medium", free=0, now=0.0)[1].verdict == "shed"
