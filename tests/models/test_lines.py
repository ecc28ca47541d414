"""Calls that wait for room: each is let in once, and none stands in the way of another for nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.models.base import Request, user
from penstock.models.calls import Call, Turn
from penstock.models.lines import Line
from penstock.policy.buckets import Cost
from penstock.policy.shedding import Priority
from penstock.testing.handclock import HandClock


class Doorkeeper:
    """Lets in as many as it is told to; some calls it never lets in."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.room = 0
        self.barred: set[str] = set()
        self.entered: list[str] = []
        self.back: list[Any] = []
        self.looks = 0
        self.pause = float("inf")
        """Seconds after which it may be worth looking again."""
        self.line: Line | None = None
        """A line that is drained whenever somebody is let in, as news from another process would do."""

    def enter(self, call: Call) -> Any:
        if call.id in self.barred or not self.room:
            return None
        if self.line is not None:
            self.line.drain()
        self.room -= 1
        self.entered.append(call.id)
        return _turn(call)

    def look(self) -> None:
        self.looks += 1

    def wake_at(self, call: Call) -> float:  # noqa: ARG002
        return self.clock.now() + self.pause

    def released(self, turn: Turn) -> None:
        self.back.append(turn)


def _turn(call: Call) -> Any:
    return ("turn of", call.id)


def waiting(id: str, clock: HandClock, priority: Priority = "medium") -> Call:
    return Call(
        id, Request(messages=(user("Hello?"),)), operation="chat", requested="best", view=(), tier=0, pin="",
        lane=None, priority=priority, cost=Cost(), now=clock.now(), at=0.0,
    )  # fmt: skip


async def lined_up(line: Line, *calls: Call) -> list[asyncio.Task[Turn | None]]:
    tasks = []
    for call in calls:
        assert line.offer(call, free=0).verdict == "queue"
        tasks.append(asyncio.create_task(line.wait(call)))
        await asyncio.sleep(0)
    return tasks


async def test_whoever_cannot_use_a_slot_does_not_keep_it_from_those_behind() -> None:
    clock = HandClock()
    door = Doorkeeper(clock)
    line = Line(clock, door)
    first, second = waiting("first", clock), waiting("second", clock)
    first.out.add("b/m")  # it has failed there, and waits for another one
    door.barred.add("first")
    one, two = await lined_up(line, first, second)

    door.room = 1
    line.drain()

    assert await two == _turn(second)
    assert not one.done()
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    assert not len(line)


async def test_nobody_overtakes_a_call_that_may_go_wherever_the_others_may() -> None:
    clock = HandClock()
    door = Doorkeeper(clock)
    line = Line(clock, door)
    first, second = waiting("first", clock), waiting("second", clock)
    door.barred.add("first")  # for what it costs: it waits until that is there
    tasks = await lined_up(line, first, second)

    door.room = 1
    line.drain()
    await asyncio.sleep(0)

    assert not any(task.done() for task in tasks)
    door.barred.clear()
    door.room = 2
    line.drain()
    assert [await task for task in tasks] == [_turn(first), _turn(second)]


async def test_news_that_arrive_while_a_call_is_let_in_let_nobody_in_twice() -> None:
    clock = HandClock()
    door = Doorkeeper(clock)
    line = Line(clock, door)
    calls = [waiting(f"call-{n}", clock) for n in range(3)]
    tasks = await lined_up(line, *calls)

    door.line, door.room = line, 3
    line.drain()

    assert [await task for task in tasks] == [_turn(call) for call in calls]
    assert door.entered == [call.id for call in calls]
    assert not len(line)


async def test_only_the_first_looks_for_all_that_wait() -> None:
    clock = HandClock()
    door = Doorkeeper(clock)
    line = Line(clock, door)
    calls = [waiting(f"call-{n}", clock) for n in range(20)]
    door.pause = 1.0
    tasks = await lined_up(line, *calls)

    for seconds in range(1, 6):
        clock.advance(1.0)
        while door.looks < seconds:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert door.looks == seconds

    door.room = 20
    line.drain()
    assert [await task for task in tasks] == [_turn(call) for call in calls]


async def test_whoever_is_the_first_now_looks_in_its_turn() -> None:
    clock = HandClock()
    door = Doorkeeper(clock)
    line = Line(clock, door)
    first, second = waiting("first", clock), waiting("second", clock)
    one, two = await lined_up(line, first, second)

    door.pause = 3.0
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    await asyncio.sleep(0)
    door.room = 1
    clock.advance(3.0)

    assert await two == _turn(second)
    assert door.looks == 1


async def test_whoever_waits_for_another_call_sees_that_it_has_to_wait_for_something_else() -> None:
    clock = HandClock()
    door = Doorkeeper(clock)
    line = Line(clock, door)
    call = waiting("call", clock)
    [task] = await lined_up(line, call)

    door.pause = 3.0  # the other call has ended: refused, and so will everyone be for some seconds
    line.drain()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    door.room = 1
    clock.advance(3.0)

    assert await task == _turn(call)


async def test_a_call_that_is_let_in_and_cancelled_at_once_gives_its_turn_back() -> None:
    clock = HandClock()
    door = Doorkeeper(clock)
    line = Line(clock, door)
    call = waiting("call", clock)
    [task] = await lined_up(line, call)

    door.room = 1
    line.drain()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert door.back == [_turn(call)]
    assert not len(line)
