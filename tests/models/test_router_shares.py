"""Room that processes share: how many calls at once a provider takes is not multiplied by them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from routing import HELLO, Bench, routed

from penstock.models.base import Answer
from penstock.models.router import Router
from penstock.policy.bulkhead import STALE
from penstock.testing import faults
from penstock.testing.faults import Hangs

TWO = {"a": {"concurrency": 2}}


async def holding(bench: Bench, router: Router, count: int) -> list[asyncio.Task[Answer]]:
    """So many calls under way, and told to the others."""
    bench.server.script("a", *[Hangs()] * count)
    held = [asyncio.create_task(router.chat(HELLO)) for _ in range(count)]
    while bench.asked("a") < count:  # noqa: ASYNC110 - until they have arrived
        await asyncio.sleep(0)
    router._desk.flush()
    return held


async def ended(tasks: list[asyncio.Task[Answer]]) -> None:
    for one in tasks:
        one.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@routed
async def test_calls_of_another_process_take_room(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "models.db"
    one, two = (bench.router(["a"], ["b"], path=path, seats=TWO) for _ in range(2))
    held = await holding(bench, one, 2)

    answer = await two.chat(HELLO)

    assert (answer.served_by, answer.degraded) == ("b/m", True)
    assert bench.asked("a") == 2
    [shown] = [row for row in two.report() if row.name == "a/m"]
    assert (shown.in_flight, shown.elsewhere, shown.status) == (0, 2, "busy")
    await ended(held)
    one._desk.flush()
    assert (await two.chat(HELLO)).served_by == "a/m"


@routed
async def test_whoever_waits_for_room_sees_that_another_process_has_given_it_back(
    bench: Bench, tmp_path: Path
) -> None:
    path = tmp_path / "models.db"
    one, two = (bench.router(["a"], path=path, seats=TWO) for _ in range(2))
    held = await holding(bench, one, 2)
    call = asyncio.create_task(two.chat(HELLO))
    while not two.waiting:  # noqa: ASYNC110 - until it waits
        await asyncio.sleep(0)

    await ended(held)
    one._desk.flush()
    bench.clock.advance(0.3)

    assert (await call).served_by == "a/m"


@pytest.mark.parametrize("told_again", [True, False])
@routed
async def test_a_process_that_falls_silent_holds_no_room(
    bench: Bench, tmp_path: Path, told_again: bool
) -> None:
    path = tmp_path / "models.db"
    one, two = (bench.router(["a"], ["b"], path=path, seats=TWO) for _ in range(2))
    held = await holding(bench, one, 2)

    for _ in range(4):
        bench.clock.advance(STALE / 3)
        if told_again:
            one._desk.flush()

    assert (await two.chat(HELLO)).served_by == ("b/m" if told_again else "a/m")
    await ended(held)


@routed
async def test_an_overload_lowers_the_limit_for_all(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "models.db"
    one, two = (bench.router(["a"], ["b"], path=path, seats={"a": {"concurrency": 8}}) for _ in range(2))
    bench.server.script("a", faults.overloaded("lab"))

    await one.chat(HELLO)
    one._desk.flush()

    assert [row.limit for row in two.report() if row.name == "a/m"] == [4]


@routed
async def test_a_process_keeps_to_its_own_configuration(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "models.db"
    one = bench.router(["a"], path=path, seats={"a": {"concurrency": 8}})
    two = bench.router(["a"], path=path, seats={"a": {"concurrency": 3}})

    await one.chat(HELLO)
    one._desk.flush()
    await two.chat(HELLO)

    assert [row.limit for row in two.report()] == [3]
    two._desk.flush()
    assert [row.limit for row in one.report()] == [8]
