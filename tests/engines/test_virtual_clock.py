"""The clock that tests run on: it jumps, it keeps order, it waits for threads, it never hangs."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from penstock.testing import clock


def now() -> float:
    return asyncio.get_running_loop().time()


def test_sleeping_takes_no_time() -> None:
    async def main() -> float:
        await asyncio.sleep(1_000_000)
        return now()

    began = time.perf_counter()
    assert clock.run(main()) == 1_000_000
    assert time.perf_counter() - began < 5


def test_timers_ring_in_order_and_equal_ones_in_the_order_they_were_set() -> None:
    rung: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for name, when in (("c", 3), ("a1", 1), ("b", 2), ("a2", 1), ("a3", 1)):
            loop.call_later(when, rung.append, name)
        await asyncio.sleep(10)

    clock.run(main())
    assert rung == ["a1", "a2", "a3", "b", "c"]


def test_a_cancelled_timer_does_not_ring_nor_move_the_clock() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(5, pytest.fail).cancel()
        await asyncio.sleep(2)
        return now()

    assert clock.run(main()) == 2


def test_a_timer_cancelled_in_the_moment_it_is_due_does_not_ring() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []
        loop.call_later(2, lambda: [timer.cancel() for timer in timers])
        timers.append(loop.call_later(2, pytest.fail))
        await asyncio.sleep(3)

    clock.run(main())


def test_timeouts_are_those_of_the_virtual_clock() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.sleep(60)
        return now()

    assert clock.run(main()) == 30


def test_the_clock_stands_still_while_a_thread_works() -> None:
    def works() -> str:
        time.sleep(0.05)
        return "done"

    async def main() -> tuple[str, float]:
        async with asyncio.timeout(0.001):
            return await asyncio.to_thread(works), now()

    assert clock.run(main()) == ("done", 0)


def test_a_thread_may_sleep_in_virtual_time() -> None:
    def works() -> str:
        clock.sleep(500)
        clock.sleep(500)
        return "done"

    async def main() -> tuple[str, float]:
        return await asyncio.to_thread(works), now()

    assert clock.run(main()) == ("done", 1000)


def test_threads_that_sleep_beside_each_other_sleep_at_the_same_time() -> None:
    async def main() -> float:
        await asyncio.gather(*(asyncio.to_thread(clock.sleep, seconds) for seconds in (5, 10, 7)))
        return now()

    assert clock.run(main()) == 10


def test_a_thread_that_nobody_waits_for_any_more_is_woken_at_the_end() -> None:
    ended = threading.Event()

    def sleeps() -> None:
        clock.sleep(10_000)
        clock.sleep(10_000)
        ended.set()

    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await asyncio.to_thread(sleeps)
        return now()

    assert clock.run(main()) == 3
    assert ended.wait(5)


def test_outside_of_a_virtual_loop_a_sleep_is_a_sleep() -> None:
    began = time.perf_counter()
    clock.sleep(0.01)
    assert time.perf_counter() - began >= 0.01


def test_waiting_for_nothing_is_an_error_instead_of_a_hang() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="hang for ever"):
        clock.run(main())


def test_time_may_begin_anywhere() -> None:
    async def main() -> float:
        await asyncio.sleep(0.25)
        return now()

    assert clock.run(main(), start=1e9) == 1e9 + 0.25


def test_callbacks_keep_their_context() -> None:
    from contextvars import ContextVar

    variable: ContextVar[int] = ContextVar("variable", default=0)
    seen: list[int] = []

    async def main() -> None:
        variable.set(7)
        asyncio.get_running_loop().call_later(1, lambda: seen.append(variable.get()))
        variable.set(8)
        await asyncio.sleep(2)

    clock.run(main())
    assert seen == [7]
