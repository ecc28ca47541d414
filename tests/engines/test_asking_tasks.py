"""Tasks that ask a person in the middle of their work, on the native engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from asked import STORES, answer, ended, history, opened, until, url

import penstock as ps
from penstock.errors import CommandRejected
from penstock.run.commands import Abort
from penstock.run.events import DecisionMade, DecisionRequired, TaskCompleted
from penstock.tools.base import Answer, Inquiry

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
each_store = pytest.mark.parametrize("kind", STORES)


@ps.tool(effect="read", id="t:ask")
async def ask(task: ps.Task) -> str:
    said: Answer = await task.ask(Inquiry("How many?", SCHEMA, by="t:ask"))
    return f"{said.action} {(said.content or {}).get('n', '')}".strip()


def flow(**options: object) -> ps.Workflow:
    made = ps.Workflow("asks")
    made.step("count", "t:ask", **options)
    return made


async def question(run: ps.RunHandle) -> DecisionRequired:
    await until(run, lambda: bool(run.state.decisions))
    found: DecisionRequired = next(iter(run.state.decisions.values()))
    return found


async def output(run: ps.RunHandle) -> object:
    events = await history(run)
    return next(event.output for event in events if isinstance(event, TaskCompleted))


@each_store
async def test_an_answer_reaches_the_task_that_waits_for_it(kind: str, tmp_path: Path) -> None:
    async with opened(url(kind, tmp_path), ask) as penstock:
        run = await penstock.start(flow())
        asked = await question(run)
        with pytest.raises(CommandRejected, match="not what t:ask asks for"):
            await answer(run, asked, "respond", args={"n": "many"})
        assert run.status == "running"

        await answer(run, asked, "respond", args={"n": 3})

        assert (await ended(run)).ok
        assert await output(run) == "accept 3"


@each_store
async def test_a_rejection_tells_the_task_that_nobody_will_say(kind: str, tmp_path: Path) -> None:
    async with opened(url(kind, tmp_path), ask) as penstock:
        run = await penstock.start(flow())
        await answer(run, await question(run), "reject")

        assert (await ended(run)).ok
        assert await output(run) == "decline"


async def test_the_time_of_a_task_stands_still_while_it_waits() -> None:
    async with opened("memory:", ask) as penstock:
        run = await penstock.start(flow(timeout=0.05))
        asked = await question(run)
        await asyncio.sleep(0.2)  # four times as long as it has

        await answer(run, asked, "respond", args={"n": 1})

        assert (await ended(run)).ok


async def test_a_run_that_is_stopped_withdraws_what_it_asked() -> None:
    async with opened("memory:", ask) as penstock:
        run = await penstock.start(flow())
        asked = await question(run)
        await run.send(Abort(reason="enough"))
        await ended(run)

        closed = [event for event in await history(run) if isinstance(event, DecisionMade)]
        assert [(event.decision, event.verb) for event in closed] == [(asked.decision, "withdrawn")]


async def test_a_task_that_gives_up_waiting_withdraws_its_question_and_goes_on() -> None:
    @ps.tool(effect="read", id="t:hasty")
    async def hasty(task: ps.Task) -> str:
        try:
            async with asyncio.timeout(0.05):
                await task.ask(Inquiry("Well?", SCHEMA, by="t:hasty"))
        except TimeoutError:
            said: Answer = await task.ask(Inquiry("And now?", SCHEMA, by="t:hasty"))
        return said.action

    made = ps.Workflow("hasty")
    made.step("count", "t:hasty")
    async with opened("memory:", hasty) as penstock:
        run = await penstock.start(made)
        first = await question(run)
        await until(run, lambda: first.decision not in run.state.decisions and bool(run.state.decisions))
        second = await question(run)
        await answer(run, second, "respond", args={"n": 1})

        assert await output(run) == "accept"
        closed = [
            (event.decision, event.verb) async for event in run.events() if isinstance(event, DecisionMade)
        ]
        assert closed == [(first.decision, "withdrawn"), (second.decision, "respond")]


async def test_what_nobody_could_answer_is_declined_at_once() -> None:
    @ps.tool(effect="read", id="t:odd")
    async def odd(task: ps.Task) -> list[str]:
        endless = {"type": "object", "properties": {"n": {"enum": ["x" * 40_000]}}}
        bad = {"type": "nothing"}
        return [(await task.ask(Inquiry("?", schema))).action for schema in (endless, bad)]

    made = ps.Workflow("odd")
    made.step("count", "t:odd")
    async with opened("memory:", odd) as penstock:
        assert await output(await penstock.start(made)) == ["decline", "decline"]


async def test_a_process_that_leaves_does_not_wait_for_a_person_and_the_next_one_asks_anew(
    tmp_path: Path,
) -> None:
    store = url("sqlite", tmp_path)
    async with opened(store, ask) as penstock:
        run = await penstock.start(flow())
        first = await question(run)
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 2.0

    async with opened(store, ask) as penstock:
        run = await penstock.resume(run.id)
        await until(run, lambda: first.decision not in run.state.decisions and bool(run.state.decisions))
        await answer(run, await question(run), "respond", args={"n": 2})

        assert await output(run) == "accept 2"
        closed = [
            (event.decision, event.verb) for event in await history(run) if isinstance(event, DecisionMade)
        ]
        assert closed[0] == (first.decision, "withdrawn")
