"""Who answers a call, and what the answer says about that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from msgspec.structs import replace
from routing import HELLO, Bench, routed

from penstock.models.base import BadOutput, Chunk, ModelError, Request, user
from penstock.models.calls import Shed, Unavailable, UnknownModel
from penstock.testing import faults
from penstock.testing.faults import Cuts, Drops, Hangs
from penstock.testing.wires import Says


@routed
async def test_an_answer_says_who_gave_it_what_was_asked_for_and_what_it_cost(bench: Bench) -> None:
    router = bench.router(["a"], ["b"])

    answer = await router.chat(HELLO)

    assert (answer.served_by, answer.requested, answer.degraded, answer.attempts) == (
        "a/m",
        "tier-0",
        False,
        1,
    )
    assert answer.cost == pytest.approx((9 * 2 + 3 * 10) / 1e6)
    (record,) = bench.records
    assert (record.served_by, record.requested, record.operation) == ("a/m", "tier-0", "chat")
    assert record.plain()["attempts"] == (
        {"name": "a/m", "seconds": 0.0, "kind": None, "message": "", "abandoned": False},
    )


@pytest.mark.parametrize(
    "turn",
    [faults.failing("lab"), faults.overloaded("lab"), faults.rate_limited("lab"), faults.quota("lab"),
     Drops(), faults.unauthorised("lab"), faults.unknown_model("lab"), faults.NOT_JSON, faults.HALF_JSON],
    ids=["500", "503", "429", "quota", "drop", "auth", "no model", "not JSON", "half"],
)  # fmt: skip
@routed
async def test_a_fault_of_the_provider_is_answered_by_the_next_tier(bench: Bench, turn: faults.Fails) -> None:
    bench.server.script("a", turn)
    router = bench.router(["a"], ["b"])

    answer = await router.chat(HELLO)

    assert (answer.served_by, answer.degraded, answer.attempts) == ("b/m", True, 2)
    assert [one.kind is None for one in bench.records[0].attempts] == [False, True]


@pytest.mark.parametrize(
    "turn", [faults.wrong("lab"), faults.too_long("lab")], ids=["bad request", "too long"]
)
@routed
async def test_a_fault_of_the_request_is_nobody_elses(bench: Bench, turn: faults.Replies) -> None:
    bench.server.script("a", turn)
    router = bench.router(["a"], ["b"], last=True)

    with pytest.raises(ModelError):
        await router.chat(HELLO)

    assert bench.asked("b") == 0
    assert bench.records[0].error


@routed
async def test_what_is_too_long_for_one_goes_to_a_larger_one(bench: Bench) -> None:
    bench.server.script("a", faults.too_long("lab"))
    windows = {"a": {"window": 8_000}, "b": {"window": 4_000}, "c": {"window": 90_000}}
    router = bench.router(["a"], ["b"], ["c"], seats=windows)

    answer = await router.chat(HELLO)

    assert answer.served_by == "c/m"
    assert bench.asked("b") == 0


@routed
async def test_filtered_content_is_shown_to_one_other_provider_and_no_more(bench: Bench) -> None:
    for name in "ab":
        bench.server.script(name, Says(end="refused"))
    router = bench.router(["a"], ["b"], ["c"], last=True)

    with pytest.raises(ModelError) as caught:
        await router.chat(HELLO)

    assert caught.value.fault.kind == "content_filter"
    assert [bench.asked(name) for name in "abc"] == [1, 1, 0]


@routed
async def test_a_pinned_model_is_never_replaced(bench: Bench) -> None:
    bench.server.script("a", faults.failing("lab"))
    router = bench.router(["a"], ["b"], last=True)

    with pytest.raises(Unavailable) as caught:
        await router.chat(HELLO, model="a/m")

    assert bench.asked("b") == 0
    assert caught.value.faults[0][0] == "a/m"
    assert caught.value.spent is not None
    assert (caught.value.spent.requested, caught.value.spent.attempts) == ("a/m", 1)
    assert (await router.chat(HELLO, model="b/m")).degraded is False
    assert (await router.chat(HELLO, model="b/other")).served_by == "b/other"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"tier": "tier-9"}, "there is no tier 'tier-9'"),
        ({"model": "zz/m"}, "there is no model 'zz/m'"),
        ({"model": "m"}, "'m' could be a/m or b/m (name its provider, too)"),
    ],
)
@routed
async def test_an_unknown_tier_or_model_is_said_to_be_unknown(
    bench: Bench, asked: dict[str, str], message: str
) -> None:
    router = bench.router(["a"], ["b"])

    with pytest.raises(UnknownModel) as caught:
        await router.chat(HELLO, **asked)

    assert str(caught.value).startswith(message)


@routed
async def test_failing_over_never_costs_more_than_what_was_asked_for(bench: Bench) -> None:
    bench.server.script("a", *[faults.failing("lab")] * 2)
    router = bench.router(["a"], ["b"], seats={"a": {"lane": 1}, "b": {"lane": 2}})

    with pytest.raises(Unavailable) as caught:
        await router.chat(HELLO)
    allowed = await router.chat(HELLO, lane=2)

    assert "cost lane 2" in str(caught.value)
    assert allowed.served_by == "b/m"


@routed
async def test_a_lane_and_a_budget_keep_dear_models_out(bench: Bench) -> None:
    router = bench.router(["a"], last=True, seats={"a": {"lane": 2}})

    assert (await router.chat(HELLO, lane=1)).label == "extractive"
    assert (await router.chat(HELLO, budget=0.000001)).label == "extractive"
    assert (await router.chat(HELLO, budget=1.0)).served_by == "a/m"


@routed
async def test_when_nobody_can_answer_the_last_resort_does_and_says_so(bench: Bench) -> None:
    bench.server.script("a", *[faults.failing("lab")] * 3)
    router = bench.router(["a"], last=True)
    asked = Request(messages=(user("Water boils at 100 degrees. When does water boil?"),), timeout=20.0)

    answers = [await router.chat(asked) for _ in range(5)]

    assert {(one.label, one.degraded, one.served_by) for one in answers} == {
        ("extractive", True, "extractive/extractive")
    }
    assert bench.asked("a") == 3


@routed
async def test_without_any_configuration_the_answer_is_extractive_whatever_the_tier(bench: Bench) -> None:
    router = bench.router(last=True)

    assert (await router.chat(HELLO, tier="smart")).label == "extractive"
    assert (await router.embed(["a", "b"])).served_by == "extractive/extractive"
    assert router.system_health() == 1.0


@routed
async def test_when_all_are_down_the_caller_is_told_at_once_when_to_come_back(bench: Bench) -> None:
    for name in "ab":
        bench.server.script(name, *[faults.failing("lab")] * 3)
    router = bench.router(["a"], ["b"])
    for _ in range(3):
        with pytest.raises(Unavailable):
            await router.chat(HELLO)

    with pytest.raises(Unavailable) as caught:
        await router.chat(HELLO)

    assert [bench.asked(name) for name in "ab"] == [3, 3]
    assert 0 < caught.value.retry_after <= 30.0
    assert router.system_health() == 0.0
    assert "open after failures" in str(caught.value)


@routed
async def test_a_call_waits_for_a_rate_limit_that_ends_in_time(bench: Bench) -> None:
    bench.server.script("a", faults.rate_limited("lab", "seconds", 3.0))
    router = bench.router(["a"])

    call = asyncio.create_task(router.chat(HELLO))
    await bench.clock.asleep()
    bench.clock.advance(3.3)
    answer = await call

    assert (answer.attempts, bench.asked("a")) == (2, 2)
    assert bench.records[0].waited == pytest.approx(3.3)


@routed
async def test_a_retry_after_of_nothing_means_soon(bench: Bench) -> None:
    bench.server.script("a", faults.rate_limited("lab", "seconds", 0.0))
    router = bench.router(["a"], ["b"])

    first = await router.chat(HELLO)
    bench.clock.advance(1.3)
    second = await router.chat(HELLO)

    assert (first.served_by, second.served_by) == ("b/m", "a/m")


@routed
async def test_more_calls_than_room_wait_in_a_bounded_line_and_the_rest_is_shed(bench: Bench) -> None:
    bench.server.script("a", *[Hangs()] * 2)
    router = bench.router(["a"], seats={"a": {"concurrency": 2}})
    calls = [asyncio.create_task(router.chat(HELLO)) for _ in range(102)]
    while router.waiting < 100:  # noqa: ASYNC110 - the calls have to get as far as the line
        await asyncio.sleep(0)

    with pytest.raises(Shed) as caught:
        await router.chat(HELLO)
    with pytest.raises(Shed):
        await router.chat(HELLO, priority="low")
    urgent = asyncio.create_task(router.chat(HELLO, priority="high"))
    await asyncio.sleep(0)
    assert caught.value.retry_after >= 1.0
    assert router.waiting == 100
    bench.clock.advance(31.0)
    outcomes = await asyncio.gather(*calls[2:], urgent, return_exceptions=True)

    assert all(isinstance(one, Unavailable) for one in outcomes)
    assert router.waiting == 0
    for call in calls[:2]:
        call.cancel()
    await asyncio.gather(*calls[:2], return_exceptions=True)
    assert (await router.chat(HELLO)).served_by == "a/m"


@routed
async def test_a_free_slot_goes_to_whoever_waits(bench: Bench) -> None:
    router = bench.router(["a"], seats={"a": {"concurrency": 1}})

    answers = await asyncio.gather(*(router.chat(HELLO) for _ in range(20)))

    assert [one.served_by for one in answers] == ["a/m"] * 20
    assert max(one.in_flight for one in router.report()) == 0


@routed
async def test_a_stream_fails_over_before_its_first_word_and_not_after(bench: Bench) -> None:
    bench.server.script("a", faults.failing("lab"), Cuts(2))
    router = bench.router(["a"], ["b"])

    answer = (await _all_of(router.stream(HELLO)))[-1].answer
    assert answer is not None
    assert (answer.served_by, answer.degraded, answer.attempts) == ("b/m", True, 2)

    with pytest.raises(ModelError):
        await _all_of(router.stream(HELLO))
    assert [bool(one.error) for one in bench.records] == [False, True]


async def _all_of(stream: AsyncGenerator[Chunk, None]) -> list[Chunk]:
    async with aclosing(stream) as chunks:
        return [chunk async for chunk in chunks]


@routed
async def test_a_stream_that_is_left_gives_its_slot_back(bench: Bench) -> None:
    router = bench.router(["a"])

    async with aclosing(router.stream(HELLO)) as chunks:
        async for _ in chunks:
            break

    assert router.report()[0].in_flight == 0
    assert bench.records[0].attempts[0].abandoned


@routed
async def test_output_in_the_wrong_form_is_not_the_providers_fault(bench: Bench) -> None:
    bench.server.script("a", Says(text="no"), Says(text="no"))
    router = bench.router(["a"], ["b"])

    with pytest.raises(BadOutput):
        await router.chat(replace(HELLO, output={"type": "object"}))

    assert router.report()[0].success == 1.0
    assert bench.asked("b") == 0


@routed
async def test_embeddings_come_from_one_model_only(bench: Bench) -> None:
    bench.server.script("a", faults.failing("lab"))
    router = bench.router(["a", "b"], embeddings=("a/m", "b/m"), chance=lambda: 0.0)

    found = await router.embed(["one", "two"])

    assert (found.served_by, len(found.vectors)) == ("b/m", 2)


@routed
async def test_a_late_first_byte_is_noticed_by_what_was_usual(bench: Bench) -> None:
    router = bench.router(["a"], ["b"])
    await router.chat(HELLO)
    bench.server.script("a", Hangs())

    answer = await router.chat(HELLO)

    assert answer.served_by == "b/m"
    assert bench.records[1].attempts[0].kind == "timeout"
    assert answer.took < 5.0


@routed
async def test_a_hedged_call_takes_the_first_answer_and_drops_the_other(bench: Bench) -> None:
    slow = {"first_byte": (30.0, 60.0)}
    router = bench.router(["a", "b"], ["c"], hedge=True, seats={"a": slow})
    await router.chat(HELLO, model="a/m")
    bench.server.script("b", faults.failing("lab"))  # so that a is the better of the two
    with pytest.raises(Unavailable):
        await router.chat(HELLO, model="b/m")
    bench.server.script("a", Hangs())

    call = asyncio.create_task(router.chat(HELLO))
    await bench.clock.asleep()
    bench.clock.advance(10.0)
    answer = await call

    assert (answer.served_by, answer.degraded, answer.attempts) == ("b/m", False, 2)
    assert [one.in_flight for one in router.report()] == [0, 0, 0]


@routed
async def test_a_listener_that_raises_changes_nothing(bench: Bench) -> None:
    def broken(_: object) -> None:
        raise ValueError

    assert (await bench.router(["a"], listener=broken).chat(HELLO)).served_by == "a/m"


@pytest.mark.parametrize(("when", "label"), [("wait", ""), ("last_resort", "extractive")])
@routed
async def test_when_all_are_busy_a_call_waits_or_goes_to_the_last_resort(
    bench: Bench, when: str, label: str
) -> None:
    bench.server.script("a", Hangs())
    router = bench.router(["a"], last=True, when_busy=when, seats={"a": {"concurrency": 1}})
    first = asyncio.create_task(router.chat(HELLO))
    while bench.asked("a") < 1:  # noqa: ASYNC110 - until it has arrived
        await asyncio.sleep(0)

    second = asyncio.create_task(router.chat(HELLO))
    await asyncio.sleep(0)
    assert router.waiting == (when == "wait")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)

    assert (await second).label == label


@routed
async def test_those_who_wait_for_a_provider_that_dies_do_not_wait_on(bench: Bench) -> None:
    bench.server.script("a", *[faults.failing("lab")] * 3)
    router = bench.router(["a"], seats={"a": {"concurrency": 1}})

    outcomes = await asyncio.gather(*(router.chat(HELLO) for _ in range(50)), return_exceptions=True)

    assert all(isinstance(one, Unavailable) for one in outcomes)
    assert bench.asked("a") == 3
    assert router.waiting == 0
