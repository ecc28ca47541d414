"""What a call is said to have taken: every attempt that was paid for, also those that came to nothing."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from routing import HELLO, Bench, routed

from penstock.models.base import BadOutput, ModelError, Request, Usage, user
from penstock.policy.buckets import Limit
from penstock.testing import faults
from penstock.testing.faults import Cuts, Ends, Errs
from penstock.testing.wires import Says

WHOLE = Usage(9, 3)
"""What an answer takes on the loopback server."""

FORM = {"type": "object", "required": ["n"]}


@pytest.mark.parametrize("turn", [Cuts(5), Ends(5), Errs(faults.overloaded("lab"), after=5)])
@routed
async def test_what_broke_off_half_way_is_paid_for_too(bench: Bench, turn: faults.Fails) -> None:
    limits = (Limit(dimension="tokens", limit=1_000.0),)
    router = bench.router(["a"], ["b"], seats={"a": {"limits": limits}})
    bench.server.script("a", turn)

    answer = await router.chat(Request(messages=(user("Hello? " * 40),)))

    assert answer.served_by == "b/m"
    assert answer.usage.input >= 9 + 280 // 4
    assert answer.usage.output > 3
    assert answer.cost is not None
    assert answer.cost > 9 * 2e-6 + 3 * 10e-6
    assert bench.records[-1].usage == answer.usage
    left, _ = next(one.left for one in router.report() if one.name == "a/m")["tokens"]
    assert left < 1_000 - 280 // 4, "what the provider has counted does not come back"


@routed
async def test_a_providers_own_count_is_taken_where_it_gave_one(bench: Bench) -> None:
    router = bench.router(["a"], ["b"], kind="anthropic")
    bench.server.script("a", Cuts(5))  # it says at once how many tokens went in

    answer = await router.chat(Request(messages=(user("Hello? " * 40),)))

    assert answer.usage.input == 9 + 9


@routed
async def test_a_stream_that_breaks_says_nothing_twice_and_is_counted(bench: Bench) -> None:
    router = bench.router(["a", "b"])
    bench.server.script("a", Cuts(3))
    bench.server.script("b", Cuts(3))
    heard: list[str] = []

    async def listen() -> None:
        async with aclosing(router.stream(HELLO)) as chunks:
            async for chunk in chunks:
                heard.append(chunk.text)  # noqa: PERF401 - also what came before it broke

    with pytest.raises(ModelError) as raised:
        await listen()

    assert "".join(heard) == raised.value.partial == "Hello there,"
    assert bench.asked("a") + bench.asked("b") == 1
    assert bench.records[-1].usage.output > 0
    assert bench.records[-1].cost


@routed
async def test_a_refusal_before_the_first_word_costs_nothing(bench: Bench) -> None:
    router = bench.router(["a"], ["b"])
    bench.server.script("a", faults.failing("lab"))

    answer = await router.chat(HELLO)

    assert answer.usage == WHOLE


@routed
async def test_output_in_the_wrong_form_is_accounted_for_like_an_answer(bench: Bench) -> None:
    router = bench.router(["a"], ["b"])
    bench.server.script("a", faults.failing("lab"))
    bench.server.script("b", Says(text="no"), Says(text="no"))

    with pytest.raises(BadOutput) as raised:
        await router.chat(Request(messages=(user("How many?"),), output=FORM))

    answer, record = raised.value.answer, bench.records[-1]
    assert (answer.requested, answer.degraded, answer.attempts) == ("tier-0", True, 2)
    assert answer.usage == WHOLE + WHOLE
    assert (record.degraded, record.cost) == (True, answer.cost)


@routed
async def test_an_answer_whose_repair_failed_counts_with_the_one_that_came_instead(bench: Bench) -> None:
    router = bench.router(["a"], ["b"])
    bench.server.script("a", Says(text="no"), faults.failing("lab"))
    bench.server.script("b", Says(text='{"n": 1}'))

    answer = await router.chat(Request(messages=(user("How many?"),), output=FORM))

    assert answer.parsed == {"n": 1}
    assert answer.usage == WHOLE + WHOLE
    assert answer.cost == pytest.approx(2 * (9 * 2e-6 + 3 * 10e-6))
