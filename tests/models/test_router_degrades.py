"""Who answers when those who should cannot: lower tiers, models behind them, waiting, the last resort.

One rule: a model that is to be had is asked, however far down; one that is only busy is waited for,
and then the call is turned away with a time to come back; where none is to be had at all, the last
resort stands in. Every answer says which it was.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from routing import HELLO, Bench, routed

from penstock.models.base import Answer
from penstock.models.calls import Shed, Unavailable
from penstock.models.router import Router
from penstock.models.tiers import EXTRACTIVE, read_table
from penstock.testing import faults
from penstock.testing.faults import Hangs

ONE = {"concurrency": 1}


async def filled(bench: Bench, router: Router, *names: str) -> list[asyncio.Task[Answer]]:
    """Calls that keep each of these busy."""
    for name in names:
        bench.server.script(name, Hangs())
    held = []
    for name in names:
        held.append(asyncio.create_task(router.chat(HELLO, model=f"{name}/m")))
        while bench.asked(name) < 1:  # noqa: ASYNC110 - until it has arrived
            await asyncio.sleep(0)
    return held


async def freed(held: list[asyncio.Task[Answer]]) -> None:
    for one in held:
        one.cancel()
    await asyncio.gather(*held, return_exceptions=True)


@routed
async def test_a_lower_tier_answers_for_a_busy_one_and_says_so(bench: Bench) -> None:
    router = bench.router(["a"], ["b"], last=True, seats={"a": ONE})
    held = await filled(bench, router, "a")

    answer = await router.chat(HELLO)

    assert (answer.served_by, answer.degraded, answer.requested) == ("b/m", True, "tier-0")
    await freed(held)


@pytest.mark.parametrize("busy", [True, False])
@routed
async def test_a_model_behind_all_tiers_answers_before_anybody_waits(bench: Bench, busy: bool) -> None:
    router = bench.router(["a"], backups=["local"], last=True, seats={"a": ONE, "local": {"lane": 0}})
    held = await filled(bench, router, "a") if busy else []
    if not busy:
        bench.server.script("a", *[faults.failing("lab")] * 3)

    answers = [await router.chat(HELLO) for _ in range(3)]

    assert {(one.served_by, one.degraded, one.label) for one in answers} == {("local/m", True, "")}
    assert router.waiting == 0
    await freed(held)


@routed
async def test_a_call_to_busy_models_waits_and_is_then_turned_away_with_a_time(bench: Bench) -> None:
    router = bench.router(["a"], last=True, seats={"a": ONE})
    held = await filled(bench, router, "a")

    call = asyncio.create_task(router.chat(HELLO))
    while not router.waiting:  # noqa: ASYNC110 - until it waits
        await asyncio.sleep(0)
    bench.clock.advance(60.0)

    with pytest.raises(Shed) as caught:
        await call
    assert 0 < caught.value.retry_after < float("inf")
    await freed(held)


@routed
async def test_a_call_that_nobody_in_the_line_could_help_does_not_stand_in_it(bench: Bench) -> None:
    router = bench.router(["a"], last=True, seats={"a": ONE})
    held = await filled(bench, router, "a")
    first = asyncio.create_task(router.chat(HELLO))
    while not router.waiting:  # noqa: ASYNC110 - nobody tells us
        await asyncio.sleep(0)

    async with asyncio.timeout(10):
        poor = await router.chat(HELLO, budget=1e-12)

    assert (poor.served_by, bench.records[-1].waited) == (EXTRACTIVE, 0.0)
    await freed([*held, first])


@pytest.mark.parametrize("dear", [False, True])
@routed
async def test_room_that_a_call_may_not_use_does_not_keep_it_from_waiting(bench: Bench, dear: bool) -> None:
    seats = {"a": {"lane": 2} if dear else {}, "b": ONE}
    router = bench.router(["b"], ["a"], last=True, seats=seats)
    if not dear:
        bench.server.script("a", faults.failing("lab"))  # there is room, and the call has been there
    held = await filled(bench, router, "b")

    waiting = asyncio.create_task(router.chat(HELLO))
    while not router.waiting and not waiting.done():  # noqa: ASYNC110 - nobody tells us
        await asyncio.sleep(0)
    await freed(held)

    assert (await waiting).served_by == "b/m"


@routed
async def test_where_that_is_wanted_the_last_resort_answers_for_busy_models_at_once(bench: Bench) -> None:
    router = bench.router(["a"], last=True, when_busy="last_resort", seats={"a": ONE})
    held = await filled(bench, router, "a")

    answer = await router.chat(HELLO)

    assert (answer.served_by, answer.degraded, answer.label) == (EXTRACTIVE, True, "extractive")
    await freed(held)


@routed
async def test_for_models_that_are_down_the_last_resort_answers_at_once(bench: Bench) -> None:
    bench.server.script("a", *[faults.failing("lab")] * 3)
    router = bench.router(["a"], last=True)

    answers = [await router.chat(HELLO) for _ in range(5)]

    assert {(one.served_by, one.degraded) for one in answers} == {(EXTRACTIVE, True)}
    assert router.waiting == 0


@routed
async def test_a_model_that_dies_while_others_wait_for_it_leaves_them_to_the_last_resort(
    bench: Bench,
) -> None:
    bench.server.script("a", *[faults.failing("lab")] * 3)
    router = bench.router(["a"], last=True, seats={"a": ONE})

    answers = await asyncio.gather(*(router.chat(HELLO) for _ in range(20)))

    assert {one.label for one in answers} == {"extractive"}
    assert bench.asked("a") == 3


@pytest.mark.parametrize(("wait", "served_by"), [(5.0, "a/m"), (45.0, EXTRACTIVE)])
@routed
async def test_a_rate_limit_is_waited_for_if_it_ends_while_anybody_would_wait(
    bench: Bench, wait: float, served_by: str
) -> None:
    bench.server.script("a", faults.rate_limited("lab", wait=wait))
    router = bench.router(["a"], last=True)

    call = asyncio.create_task(router.chat(replace(HELLO, timeout=300.0)))
    while not (call.done() or router.waiting):  # noqa: ASYNC110 - until it waits, or is answered
        await asyncio.sleep(0)
    if not call.done():
        bench.clock.advance(6.0)

    assert (await call).served_by == served_by


@routed
async def test_out_of_budget_the_last_resort_answers_and_nothing_is_spent(bench: Bench) -> None:
    router = bench.router(["a"], last=True)

    answer = await router.chat(HELLO, budget=0.0)

    assert (answer.served_by, answer.degraded, answer.cost) == (EXTRACTIVE, True, 0.0)
    assert bench.asked("a") == 0


@routed
async def test_a_model_behind_all_tiers_is_no_way_into_a_dearer_lane(bench: Bench) -> None:
    bench.server.script("a", *[faults.failing("lab")] * 3)
    router = bench.router(["a"], backups=["dear"], seats={"a": {"lane": 0}, "dear": {"lane": 3}})

    with pytest.raises(Unavailable):
        await router.chat(HELLO)

    assert bench.asked("dear") == 0


@routed
async def test_without_a_last_resort_what_is_down_is_an_error_with_a_time(bench: Bench) -> None:
    bench.server.script("a", *[faults.failing("lab")] * 3)
    router = bench.router(["a"])

    with pytest.raises(Unavailable) as caught:
        [await router.chat(HELLO) for _ in range(4)]

    assert not isinstance(caught.value, Shed)
    assert 0 < caught.value.retry_after < float("inf")


@pytest.mark.parametrize(
    ("last", "backups", "extractive"),
    [
        ("extractive", [], "extractive"),
        ("none", [], "none"),
        (["ollama/llama3.2", "extractive"], ["ollama/llama3.2"], "extractive"),
        (["ollama/llama3.2"], ["ollama/llama3.2"], "none"),
        ([{"model": "ollama/a", "concurrency": 2}], ["ollama/a"], "none"),
    ],
)
def test_the_last_resort_is_a_word_or_a_list_of_models(
    last: Any, backups: list[str], extractive: str
) -> None:
    table, problems = read_table({"last_resort": last})

    assert problems == []
    assert ([one.model for one in table.backups], table.last_resort) == (backups, extractive)


@pytest.mark.parametrize("last", [["extractive", "ollama/a"], ["llama"], "sometimes", 3])
def test_a_last_resort_that_is_none_is_said_to_be_none(last: Any) -> None:
    _, problems = read_table({"last_resort": last})

    assert [one.where.partition("[")[0] for one in problems] == ["models.last_resort"]


@pytest.mark.parametrize("last", [True, False])
@routed
async def test_a_model_that_no_other_could_replace_is_not_hurried(bench: Bench, last: bool) -> None:
    router = bench.router(["a"], last=last)
    for _ in range(20):  # so that little time is usual
        await router.chat(HELLO)
    bench.server.script("a", Hangs())

    call = asyncio.create_task(router.chat(HELLO))
    done, _ = await asyncio.wait([call], timeout=1.5)

    assert not done
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
