"""Budgets on the native engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked import STORES, answer, ended, history, next_question, opened, questions, url

import penstock as ps
from penstock.run.events import BudgetWarned


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url(request.param, tmp_path)


@ps.tool(effect="read")
async def one(n: Any = None) -> Any:
    return n


def chain(count: int, **budget: Any) -> ps.Workflow:
    flow = ps.Workflow("chain", budget=budget)
    for n in range(count):
        flow.step(f"s{n}", one, n=n, needs=[f"s{n - 1}"] if n else [])
    flow.output("first", "${ steps.s0.output }")
    return flow


async def test_the_end_of_a_budget_holds_the_run_until_someone_raises_it(store: str) -> None:
    async with opened(store) as penstock:
        run = await penstock.start(chain(6, tool_calls=4))
        (asked,) = await questions(run)
        assert (asked.kind, run.status) == ("budget", "waiting")
        with pytest.raises(ps.CommandRejected, match="would not help"):
            await answer(run, asked, "raise", args={"tool_calls": 1})
        await answer(run, asked, "raise", args={"tool_calls": 50})
        assert (await ended(run)).ok
        warnings = [event for event in await history(run) if isinstance(event, BudgetWarned)]

    assert [(event.used, event.limit) for event in warnings] == [(4, 4)]


@pytest.mark.parametrize(("verb", "status"), [("finish", "partial"), ("abort", "aborted")])
async def test_or_someone_ends_it(store: str, verb: str, status: str) -> None:
    async with opened(store) as penstock:
        run = await penstock.start(chain(6, tool_calls=2))
        (asked,) = await questions(run)
        await answer(run, asked, verb)
        result = await ended(run)

    assert result.status == status
    assert result.outputs == ({"first": 0} if verb == "finish" else {})


async def test_a_map_stops_at_the_end_of_its_budget_and_goes_on_when_it_is_raised(store: str) -> None:
    flow = ps.Workflow("w", budget={"tool_calls": 3})
    flow.output("all", flow.step("each", one, for_each=list(range(8)), n="${ item }"))
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        (first,) = await questions(run)
        await answer(run, first, "raise")
        second = await next_question(run, first)
        await answer(run, second, "raise")
        assert (await ended(run)).outputs == {"all": list(range(8))}


async def test_what_was_spent_is_known_after_a_restart(tmp_path: Path) -> None:
    flow, store = chain(6, tool_calls=2), url("sqlite", tmp_path)
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        await questions(run)
    async with opened(store) as penstock:
        penstock.prepare(flow)
        again = await penstock.resume(run.id)
        (asked,) = await questions(again)
        assert asked.call["used"] == 2
        await answer(again, asked, "raise", args={"tool_calls": 6})
        assert (await ended(again)).ok
