"""Event streams and observers: what they are told, and that nobody else ever notices them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import penstock as ps
from penstock.engines.deadlines import Deadlines
from penstock.engines.stream import Gap, Stream
from penstock.run.events import Event, LayerStarted, WorkflowCompleted, WorkflowStarted
from penstock.testing import clock
from penstock.testing.rig import Rig


def events(first: int, last: int) -> list[Event]:
    return [LayerStarted(seq, 0.0, seq) for seq in range(first, last + 1)]


async def read(stream: Stream, *, after: int = 0, pause: float = 0.0) -> list[Any]:
    seen: list[Any] = []
    async for event in stream.follow(after=after):
        seen.append(event if isinstance(event, Gap) else event.seq)
        if pause:
            await asyncio.sleep(pause)
    return seen


def chain(n: int = 3) -> ps.Workflow:
    async def step() -> None:
        await asyncio.sleep(1)

    flow = ps.Workflow("chain")
    for i in range(n):
        flow.step(f"s{i}", step, needs=[f"s{i - 1}"] if i else [])
    return flow


# --- the stream by itself ---


def test_a_subscriber_sees_every_event_in_order_whenever_it_comes() -> None:
    async def main() -> None:
        stream = Stream()
        early = asyncio.create_task(read(stream))
        await asyncio.sleep(1)
        stream.publish(events(1, 3))
        middle = asyncio.create_task(read(stream))
        await asyncio.sleep(1)
        stream.publish(events(4, 5))
        stream.close()
        late = asyncio.create_task(read(stream))
        for seen in (early, middle, late):
            assert await seen == [1, 2, 3, 4, 5]

    clock.run(main())


@pytest.mark.parametrize(("after", "seen"), [(0, [1, 2, 3]), (1, [2, 3]), (3, []), (9, [])])
def test_events_after_a_number(after: int, seen: list[int]) -> None:
    async def main() -> None:
        stream = Stream()
        stream.publish(events(1, 3))
        stream.close()
        assert await read(stream, after=after) == seen

    clock.run(main())


def test_a_subscriber_may_wait_for_events_that_have_not_happened() -> None:
    async def main() -> None:
        stream = Stream()
        waiting = asyncio.create_task(read(stream, after=2))
        await asyncio.sleep(1)
        stream.publish(events(1, 2))
        await asyncio.sleep(1)
        stream.publish(events(3, 4))
        stream.close()
        assert await waiting == [3, 4]

    clock.run(main())


def test_a_slow_subscriber_is_told_how_many_events_it_missed() -> None:
    async def main() -> None:
        stream = Stream(kept=10)
        slow = asyncio.create_task(read(stream, pause=100))
        fast = asyncio.create_task(read(stream))
        await asyncio.sleep(1)
        for n in range(5):
            stream.publish(events(10 * n + 1, 10 * n + 10))
            await asyncio.sleep(1)
        stream.close()
        seen = await slow
        missed = sum(gap.missed for gap in seen if isinstance(gap, Gap))
        numbers = [seq for seq in seen if not isinstance(seq, Gap)]
        assert missed > 0
        assert missed + len(numbers) == 50
        assert numbers == sorted(numbers)
        assert await fast == list(range(1, 51))

    clock.run(main())


def test_a_gap_names_where_it_begins() -> None:
    async def main() -> None:
        stream = Stream(kept=3)
        stream.publish(events(1, 10))
        stream.close()
        assert await read(stream) == [Gap(0, 7), 8, 9, 10]
        assert await read(stream, after=5) == [Gap(5, 2), 8, 9, 10]

    clock.run(main())


def test_a_cancelled_subscriber_takes_nobody_with_it() -> None:
    async def main() -> None:
        stream = Stream()
        gone, stays = (asyncio.create_task(read(stream)) for _ in range(2))
        await asyncio.sleep(1)
        gone.cancel()
        stream.publish(events(1, 2))
        stream.close()
        assert await stays == [1, 2]

    clock.run(main())


def test_publishing_costs_nothing_per_subscriber() -> None:
    """Subscribers are woken together: a storm of events wakes each once, not once per event."""

    async def main() -> None:
        stream = Stream()
        wakes = 0

        async def counts() -> None:
            nonlocal wakes
            async for event in stream.follow(after=0):
                if isinstance(event, LayerStarted) and event.seq % 100 == 1:
                    wakes += 1

        reader = asyncio.create_task(counts())
        await asyncio.sleep(0)
        for n in range(10):
            stream.publish(events(100 * n + 1, 100 * n + 100))
        stream.close()
        await reader
        assert wakes == 10

    clock.run(main())


@pytest.mark.parametrize(
    "error", [ValueError("no"), asyncio.CancelledError(), ExceptionGroup("g", [ValueError()])]
)
def test_what_an_observer_raises_is_its_own_affair(error: BaseException) -> None:
    seen: list[int] = []

    def breaks(_event: Event) -> None:
        raise error

    stream = Stream()
    stream.observe(breaks)
    stream.observe(lambda event: seen.append(event.seq))
    stream.publish(events(1, 3))

    assert seen == [1, 2, 3]


# --- on a run ---


def test_a_run_is_watched_from_its_first_event_to_its_last() -> None:
    async def main() -> None:
        async with Rig() as rig:
            handle = await rig.start(chain())
            seen = [event async for event in handle.events()]
            assert seen == rig.events()
            assert isinstance(seen[0], WorkflowStarted)
            assert isinstance(seen[-1], WorkflowCompleted)
            assert [event async for event in handle.events(after=4)] == rig.events()[4:]

    clock.run(main())


def test_an_observer_is_told_before_the_next_thing_happens() -> None:
    seen: list[Event] = []

    async def main() -> None:
        async with Rig() as rig:
            handle = await rig.start(chain())
            first = len(rig.events())
            handle.observe(seen.append)
            await handle.result()
            assert seen == rig.events()[first:]

    clock.run(main())


def test_a_long_history_is_read_from_the_store_when_the_stream_has_let_go_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Stream.__init__, "__kwdefaults__", {"after": 0, "kept": 5})

    async def main() -> None:
        async with Rig() as rig:
            handle = await rig.start(chain(20))
            await handle.result()
            assert [event async for event in handle.events()] == rig.events()
            assert [event async for event in handle.events(after=7)] == rig.events()[7:]

    clock.run(main())


def test_a_subscriber_that_stops_listening_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with Rig() as rig:
            handle = await rig.start(chain())
            async for _ in handle.events():
                break
            await handle.result()
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    clock.run(main())


def test_the_state_at_any_event_can_be_asked_for() -> None:
    async def main() -> None:
        async with Rig() as rig:
            handle = await rig.start(chain())
            await handle.result()
            for seq in range(len(rig.events()) + 1):
                assert (await handle.at(seq)).seq == seq
            assert (await handle.at(len(rig.events()))).encoded() == handle.state.encoded()
            with pytest.raises(ps.PenstockError, match="there is no event"):
                await handle.at(len(rig.events()) + 1)

    clock.run(main())


# --- timeouts, by one timer ---


def lapses(*given: tuple[str, float, float], ended: Sequence[str] = ()) -> list[tuple[str, float]]:
    """(name, when it begins, allowance) to (name, when it was reported)."""
    reported: list[tuple[str, float]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        deadlines: Deadlines[str] = Deadlines(loop, lambda key: reported.append((key, loop.time())))
        for name, begin, allowance in sorted(given, key=lambda each: each[1]):
            await asyncio.sleep(begin - loop.time())
            lane = deadlines.begin(name, allowance)
            if name in ended:
                lane.pop(name)
        await asyncio.sleep(1000)
        deadlines.close()

    clock.run(main())
    return reported


def test_each_deadline_is_reported_when_it_is_due() -> None:
    assert lapses(("a", 0, 10), ("b", 1, 2), ("c", 2, 10), ("d", 3, 2)) == [
        ("b", 3), ("d", 5), ("a", 10), ("c", 12),
    ]  # fmt: skip


def test_what_has_ended_is_not_reported() -> None:
    assert lapses(("a", 0, 5), ("b", 0, 5), ended=["a"]) == [("b", 5)]


def test_without_a_limit_nothing_is_ever_due() -> None:
    assert lapses(("a", 0, float("inf")), ("b", 0, 1)) == [("b", 1)]


def test_a_later_shorter_allowance_is_not_missed() -> None:
    assert lapses(("long", 0, 100), ("short", 50, 1)) == [("short", 51), ("long", 100)]
