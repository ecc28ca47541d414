"""What fails costs, too: the bill of a task that came to nothing is its run's, once, and budgets know it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from asked import STORES, answer, ended, history, next_question, questions, until, url

import penstock as ps
from penstock.errors import UpstreamUnavailable
from penstock.models.base import Answer, BadOutput, Request, ToolCall, Usage
from penstock.models.calls import UnknownModel
from penstock.run.events import ModelCalled, TaskFailed


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url(request.param, tmp_path)


class Models:
    """Models that say, or raise, one thing after the other, and then the last for ever."""

    def __init__(self, *script: Answer | Exception) -> None:
        self.script = list(script)

    async def chat(self, request: Request, *, tier: str = "", model: str = "") -> Answer:  # noqa: ARG002
        said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(said, Exception):
            raise said
        return said


def says(**more: Any) -> Answer:
    paid: dict[str, Any] = {"usage": Usage(10, 5), "cost": 0.01, "served_by": "lab/m", "requested": "fast"}
    return Answer(**{**paid, **more})


WANTS_MORE = says(tool_calls=(ToolCall("1", "files__look", {}),), finish="tool_calls")


def down(**spent: Any) -> UpstreamUnavailable:
    error = UpstreamUnavailable("no model can answer 'fast' now")
    error.spent = says(served_by="", **spent)  # type: ignore[attr-defined]  # as the router's says
    return error


@ps.tool(id="files:look", effect="read")
async def look() -> str:
    return "nothing new"


def agents(count: int, *, retry: Any = None, **budget: Any) -> ps.Workflow:
    """Agents one after the other, each of which has a single turn."""
    flow = ps.Workflow("agents", budget=budget, agents={"a": {"tools": ["files:look"], "max_turns": 1}})
    for n in range(count):
        before = [f"s{n - 1}"] if n else []
        flow.step(f"s{n}", "agent:a", text="go", needs=before, on_error="continue", retry=retry)
    return flow


async def children_of(penstock: ps.Penstock, run: ps.RunHandle) -> list[str]:
    return [one.run for one in await penstock.store.runs() if one.run.startswith(f"{run.id}/")]


async def calls_in(penstock: ps.Penstock, run: str) -> list[dict[str, Any]]:
    events = await penstock.store.load(run)  # type: ignore[arg-type]  # a run id
    return [dict(event.call) for event in events if isinstance(event, ModelCalled)]


async def test_agents_that_fail_spend_the_budget_of_their_run(store: str) -> None:
    async with asyncio.timeout(15), ps.open(store, tools=[look], models=Models(down())) as penstock:
        run = await penstock.start(agents(6, tokens=30))
        (asked,) = await questions(run)
        assert (asked.kind, asked.call) == ("budget", {"budget": "tokens", "used": 30, "limit": 30})
        await answer(run, asked, "finish")
        result = await ended(run)
        failed = [event for event in await history(run) if isinstance(event, TaskFailed)]

    assert result.usage["tokens"] == 30
    assert [event.usage["tokens"] for event in failed if event.usage] == [15, 15]


async def test_so_does_one_that_is_tried_again(store: str) -> None:
    async with asyncio.timeout(15), ps.open(store, tools=[look], models=Models(down())) as penstock:
        run = await penstock.start(agents(1, tokens=30, retry={"max_attempts": 9, "backoff": 0}))
        (asked,) = await questions(run)
        assert asked.call == {"budget": "tokens", "used": 30, "limit": 30}
        await answer(run, asked, "abort")
        assert (await ended(run)).usage["tokens"] == 30


async def test_one_whose_last_turn_is_not_enough_is_paid_for() -> None:
    async with ps.open("memory:", tools=[look], models=Models(WANTS_MORE)) as penstock:
        result = await (await penstock.start(agents(1))).result()

    assert [step.status for step in result.steps.values()] == ["failed"]
    assert result.usage["tokens"] == 15


async def test_a_call_that_nobody_answers_is_on_record_and_counts_what_it_cost() -> None:
    models = Models(down(attempts=3, usage=Usage(7, 2), cost=0.02))
    async with ps.open("memory:", tools=[look], models=models) as penstock:
        run = await penstock.start(agents(1))
        result = await run.result()
        (child,) = await children_of(penstock, run)
        (call,) = await calls_in(penstock, child)

    known = ("served_by", "requested", "degraded", "attempts", "cost", "tokens", "error")
    assert [call[name] for name in known] == ["", "fast", False, 3, 0.02, 9, str(down())]
    assert (result.usage["usd"], result.usage["tokens"]) == (0.02, 9)


async def test_a_call_that_was_refused_before_anyone_was_asked_is_no_call() -> None:
    async with ps.open("memory:", tools=[look], models=Models(UnknownModel("no tier 'x'"))) as penstock:
        run = await penstock.start(agents(1))
        await run.result()
        (child,) = await children_of(penstock, run)

        assert await calls_in(penstock, child) == []


# --- children ---


class Acts:
    """A child of two steps, the second of which fails a few times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.begun = asyncio.Event()

    def parent(self, last: str = "check", **parts: Any) -> ps.Workflow:
        @ps.tool(id="acts:check", effect="read")
        async def check() -> str:
            if self.failures:
                self.failures -= 1
                raise ValueError("not yet")
            return "fine"

        @ps.tool(id="acts:hang", effect="read")
        async def hang() -> None:
            self.begun.set()
            await asyncio.Event().wait()

        @ps.tool(id="acts:erase", effect="destructive")
        async def erase() -> None:
            pass

        child = ps.Workflow("child")
        child.step("first", look)
        child.step("last", {"check": check, "hang": hang, "erase": erase}[last], needs=["first"])
        budget = parts.pop("budget", {})
        parent = ps.Workflow("parent", budget=budget)
        parent.step("call", child, **parts)
        return parent


async def test_each_attempt_of_a_child_is_counted_once(store: str) -> None:
    async with asyncio.timeout(15), ps.open(store) as penstock:
        flow = Acts(failures=9).parent(retry={"max_attempts": 3, "backoff": 0})
        run = await penstock.start(flow)
        result = await run.result()
        failed = [event.usage for event in await history(run) if isinstance(event, TaskFailed)]

    # The first does both steps; those that go on from it do the second again, and nothing else.
    assert [used and used["tool_calls"] for used in failed] == [2, 1, 1]
    assert result.usage["tool_calls"] == 3 + 4


async def test_a_child_that_fails_and_then_succeeds_costs_what_both_attempts_did(store: str) -> None:
    async with asyncio.timeout(15), ps.open(store) as penstock:
        flow = Acts(failures=1).parent(retry={"max_attempts": 3, "backoff": 0})
        result = await (await penstock.start(flow)).result()

    assert (result.status, result.usage["tool_calls"]) == ("succeeded", 2 + 3)


async def test_what_was_raised_after_a_failure_is_there_for_the_attempt_that_goes_on(store: str) -> None:
    async with asyncio.timeout(15), ps.open(store) as penstock:
        flow = Acts(failures=1).parent(budget={"tool_calls": 3}, retry={"max_attempts": 3, "backoff": 0})
        run = await penstock.start(flow)
        (asked,) = await questions(run)
        assert asked.call == {"budget": "tool_calls", "used": 3, "limit": 3}
        await answer(run, asked, "raise", args={"tool_calls": 5})
        result = await ended(run)

    assert (result.status, result.usage["tool_calls"]) == ("succeeded", 5)


async def test_and_the_attempt_that_goes_on_may_use_no_more_than_that() -> None:
    acts = Acts(failures=2)
    flow = acts.parent(budget={"tool_calls": 3}, retry={"max_attempts": 5, "backoff": 0})
    async with asyncio.timeout(15), ps.open("memory:") as penstock:
        run = await penstock.start(flow)
        (first,) = await questions(run)
        await answer(run, first, "raise", args={"tool_calls": 5})
        second = await next_question(run, first)
        assert second.call == {"budget": "tool_calls", "used": 5, "limit": 5}
        await answer(run, second, "abort")
        result = await ended(run)

    assert (result.status, result.usage["tool_calls"]) == ("aborted", 5)


async def test_a_child_that_is_stopped_with_its_parent_is_counted() -> None:
    acts = Acts(failures=0)
    async with asyncio.timeout(15), ps.open("memory:") as penstock:
        run = await penstock.start(acts.parent("hang"))
        await acts.begun.wait()
        await run.send(ps.Abort(reason="enough"))
        result = await run.result()

    assert (result.status, result.usage["tool_calls"]) == ("aborted", 3)


async def test_and_so_is_one_that_waited_for_a_person_then() -> None:
    async with asyncio.timeout(15), ps.open("memory:") as penstock:
        run = await penstock.start(Acts(failures=0).parent("erase"))
        await until(run, lambda: run.status == "waiting")
        await run.send(ps.Abort(reason="enough"))
        result = await run.result()

    assert (result.status, result.usage["tool_calls"]) == ("aborted", 2)


# --- models that decide ---


def tied(**budget: Any) -> ps.Workflow:
    flow = ps.Workflow("tied", budget=budget)
    flow.step(
        "look",
        look,
        routing={"tie_breaker": {"enabled": True, "valid_targets": ["left", "right"]}, "next": "right"},
    )
    flow.step("left", look)
    flow.step("right", look)
    return flow


async def test_breaking_a_tie_is_on_record_and_paid_for() -> None:
    models = Models(says(parsed={"target": "left", "confidence": 1.0, "reasoning": "it is near"}))
    async with asyncio.timeout(15), ps.open("memory:", models=models) as penstock:
        run = await penstock.start(tied(tokens=15))
        (asked,) = await questions(run)  # before the target starts
        assert (asked.kind, asked.call["used"]) == ("budget", 15)
        await answer(run, asked, "raise")
        result = await ended(run)
        (call,) = [event for event in await history(run) if isinstance(event, ModelCalled)]

    assert result.status == "succeeded"
    assert (call.step, call.call["served_by"], call.call["cost"]) == ("look", "lab/m", 0.01)


@pytest.mark.parametrize("wrong", [BadOutput(["no target"], says(text="?")), says(label="extractive")])
async def test_and_so_is_a_tie_that_nobody_could_break(wrong: Any) -> None:
    async with asyncio.timeout(15), ps.open("memory:", models=Models(wrong)) as penstock:
        run = await penstock.start(tied())
        result = await run.result()
        calls = [event for event in await history(run) if isinstance(event, ModelCalled)]

    assert (len(calls), result.usage["usd"]) == (1, 0.01)


async def test_a_decision_of_a_model_is_on_record_and_paid_for() -> None:
    models = Models(says(parsed={"verb": "approve", "message": "go on"}))
    flow = ps.Workflow("w", ail={"after": ["one"], "decider": "model"})
    flow.step("one", look)
    flow.step("two", look, needs=["one"])
    async with asyncio.timeout(15), ps.open("memory:", models=models) as penstock:
        run = await penstock.start(flow)
        result = await run.result()
        (call,) = [event for event in await history(run) if isinstance(event, ModelCalled)]

    assert (result.status, result.usage["usd"]) == ("succeeded", 0.01)
    assert (call.step, call.call["served_by"]) == ("one", "lab/m")
