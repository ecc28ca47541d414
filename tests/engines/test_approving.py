"""Approvals on the native engine: what is called is what was approved, whatever happens in between."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest
from asked import STORES, answer, at, ended, history, next_question, opened, others, questions, until, url

import penstock as ps
from penstock.ids import CommandId
from penstock.run.commands import Decide
from penstock.run.events import DecisionMade, DecisionRequired, TaskStarted

Store = str


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return url(request.param, tmp_path)


def deploying(calls: list[Any], **options: Any) -> ps.Workflow:
    @ps.tool(effect="destructive")
    async def deploy(env: Any, version: int = 1) -> Any:
        calls.append(env)
        return {"env": env, "version": version}

    flow = ps.Workflow("deploying")
    flow.step("deploy", deploy, env="prod", **options)
    flow.output("env", "${ steps.deploy.output.env }")
    return flow


async def test_what_is_destructive_is_not_called_until_someone_says_so(store: Store) -> None:
    calls: list[Any] = []
    async with opened(store) as penstock:
        run = await penstock.start(deploying(calls))
        (asked,) = await questions(run)
        assert (calls, run.status) == ([], "waiting")
        assert asked.call["args"] == {"env": "prod"}
        await answer(run, asked, "approve", by="ada")
        result = await ended(run)

    assert (result.status, calls) == ("succeeded", ["prod"])
    assert result.steps[at("deploy")].attempts == 1


async def test_an_edited_value_is_taken_literally(store: Store) -> None:
    calls: list[Any] = []
    sly = "${ steps.deploy.output }"
    async with opened(store) as penstock:
        run = await penstock.start(deploying(calls))
        (asked,) = await questions(run)
        await answer(run, asked, "edit", args={"env": sly})
        result = await ended(run)

    assert calls == [sly]
    assert result.outputs == {"env": sly}


async def test_what_is_no_answer_leaves_the_question_open(store: Store) -> None:
    calls: list[Any] = []
    async with opened(store) as penstock:
        run = await penstock.start(deploying(calls))
        (asked,) = await questions(run)
        for verb, args in (("yes", None), ("edit", None), ("edit", {"nope": 1}), ("approve", {"env": "x"})):
            with pytest.raises(ps.CommandRejected):
                await answer(run, asked, verb, args=args)
        with pytest.raises(ps.CommandRejected, match="no open decision"):
            await run.send(Decide(decision=at("deploy"), verb="approve"))  # type: ignore[arg-type]  # a step is no decision
        assert list(run.state.decisions.values()) == [asked]
        await answer(run, asked, "approve")
        assert (await ended(run)).ok

    assert calls == ["prod"]


async def test_one_answer_counts_however_often_it_is_sent(store: Store) -> None:
    calls: list[Any] = []
    async with opened(store) as penstock:
        run = await penstock.start(deploying(calls))
        (asked,) = await questions(run)
        command = Decide(id=CommandId("mine"), decision=asked.decision, verb="approve")
        await asyncio.gather(*(run.send(command) for _ in range(5)))
        assert (await ended(run)).ok

    assert calls == ["prod"]


async def test_changed_arguments_are_shown_again_and_the_old_question_is_closed(store: Store) -> None:
    calls: list[Any] = []
    async with opened(store) as penstock:
        run = await penstock.start(deploying(calls))
        (old,) = await questions(run)
        await run.send(ps.ModifyArgs(step=at("deploy"), args={"env": "stage"}))
        new = await next_question(run, old)
        assert new.call["args"] == {"env": "stage"}
        with pytest.raises(ps.CommandRejected, match="no open decision"):
            await answer(run, old, "approve")
        await answer(run, new, "approve")
        assert (await ended(run)).ok

    assert calls == ["stage"]


async def test_a_call_that_became_another_since_it_was_approved_is_asked_about_again(store: Store) -> None:
    """Its arguments read the context, and someone writes there while the person thinks."""
    calls: list[Any] = []
    door = asyncio.Event()

    @ps.tool(effect="destructive")
    async def deploy(env: Any) -> None:
        calls.append(env)

    async def writes() -> str:
        await door.wait()
        return "b"

    flow = ps.Workflow("w")
    flow.step("first", nothing, set={"env": "a"})
    flow.step("late", writes, set={"env": "${ output }"})
    flow.step("deploy", deploy, env="${ context.env }", needs="first")
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        await until(run, lambda: bool(run.state.decisions))
        (old,) = run.state.decisions.values()
        assert old.call["args"] == {"env": "a"}
        door.set()
        await until(run, lambda: run.status == "waiting")
        await answer(run, old, "approve")
        new = await next_question(run, old)
        assert (new.call["args"], calls) == ({"env": "b"}, [])
        await answer(run, new, "approve")
        assert (await ended(run)).ok

    assert calls == ["b"]


async def nothing() -> None:
    pass


async def test_infrastructure_may_fail_and_the_approval_holds(store: Store) -> None:
    calls: list[int] = []

    @ps.tool(effect="destructive")
    async def shaky() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError
        return len(calls)

    flow = ps.Workflow("w")
    flow.step("a", shaky, retry={"max_attempts": 3, "backoff": 0})
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        (asked,) = await questions(run)
        await answer(run, asked, "approve")
        assert (await ended(run)).ok
        events = await history(run)

    assert len(calls) == 3
    assert sum(isinstance(event, DecisionRequired) for event in events) == 1


@pytest.mark.parametrize(("on_reject", "status"), [("fail", "failed"), ("abort", "aborted")])
async def test_a_rejected_call_is_never_made(store: Store, on_reject: Any, status: str) -> None:
    calls: list[Any] = []
    async with opened(store) as penstock:
        run = await penstock.start(deploying(calls, on_reject=on_reject))
        (asked,) = await questions(run)
        await answer(run, asked, "reject", message="not today, token=abcdef0123456789abcdef0123456789")
        result = await ended(run)

    assert (result.status, calls) == (status, [])
    assert "not today" in result.reason


async def test_every_item_is_answered_by_itself(store: Store) -> None:
    calls: list[Any] = []

    @ps.tool(effect="destructive")
    async def deploy(env: Any) -> Any:
        calls.append(env)
        return env

    flow = ps.Workflow("w")
    flow.output("all", flow.step("each", deploy, for_each=["x", "y", "z"], env="${ item }"))
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        asked = await questions(run, 3)
        await answer(run, asked[2], "approve")
        await answer(run, asked[1], "skip")
        await answer(run, asked[0], "edit", args={"env": "E"})
        result = await ended(run)

    assert result.outputs == {"all": ["E", None, "z"]}
    assert sorted(calls) == ["E", "z"]


async def test_arguments_that_cannot_be_evaluated_fail_the_step_and_nobody_is_asked(store: Store) -> None:
    calls: list[Any] = []
    flow = deploying(calls)
    flow.step("first", nothing)
    flow.step("second", "py:penstock.testing.clock:sleep", approval=True, seconds="${ 1 / inputs.zero }")
    flow.input("zero", int, default=0)
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        (asked,) = await questions(run)
        assert asked.step == "deploy"
        await answer(run, asked, "skip")
        result = await ended(run)

    assert result.steps[at("second")].status == "failed"


async def test_an_injected_step_that_destroys_asks_like_any_other(store: Store) -> None:
    calls: list[Any] = []

    @ps.tool(id="test:destroy", effect="destructive")
    async def destroy(what: str) -> None:
        calls.append(what)

    flow = ps.Workflow("w")
    flow.step("a", nothing, approval=True)
    async with opened(store, destroy) as penstock:
        run = await penstock.start(flow)
        (first,) = await questions(run)
        extra = ps.Step(id=at("x"), uses="test:destroy", with_={"what": "it"})
        await run.send(ps.InjectTasks(steps=(extra,)))
        second = await next_question(run, first)
        assert (second.step, second.call["args"], calls) == ("x", {"what": "it"}, [])
        await answer(run, second, "approve")
        await answer(run, first, "approve")
        assert (await ended(run)).ok

    assert calls == ["it"]


async def test_waiting_holds_no_task_and_no_thread(store: Store) -> None:
    """What a store does for all runs together is there with one of them; twenty more add nothing."""
    calls: list[Any] = []
    async with opened(store) as penstock:
        first = await penstock.start(deploying(calls))
        await questions(first)
        before, threads = len(others()), threading.active_count()
        runs = [first, *[await penstock.start(deploying(calls)) for _ in range(20)]]
        for run in runs:
            await questions(run)
        await until(first, lambda: len(others()) <= before)
        assert threading.active_count() <= threads
        assert not {"deploy"} & set(others())
        for run in runs:
            await answer(run, (await questions(run))[0], "approve")
            await ended(run)
        assert penstock.engine.live == {}


# --- across a restart ---


def hundred(calls: list[tuple[int, str]]) -> ps.Workflow:
    @ps.tool(effect="destructive")
    async def act(n: int, how: str) -> list[Any]:
        calls.append((n, how))
        return [n, how]

    flow = ps.Workflow("hundred")
    for n in range(60):
        flow.step(f"s{n}", act, n=n, how="as planned")
    items = list(range(60, 100))
    flow.step("each", act, for_each=items, n="${ item }", how="as planned")
    return flow


def named(asked: DecisionRequired) -> int:
    n: int = asked.call["args"]["n"]
    return n


async def test_a_hundred_approvals_answered_out_of_order_across_a_restart_land_on_their_own_calls(
    tmp_path: Path,
) -> None:
    calls: list[tuple[int, str]] = []
    flow = hundred(calls)
    random = Random(4)  # noqa: S311 - chance, no secret
    async with opened(url("sqlite", tmp_path)) as penstock:
        run = await penstock.start(flow)
        asked = await questions(run, 100)
        assert len({one.digest for one in asked}) == 100
        random.shuffle(asked)
        await asyncio.gather(*(_answer_by_number(run, one) for one in asked[:50]))
        done = [event async for event in _so_far(run, DecisionMade, 50)]
        assert len(done) == 50
    async with opened(url("sqlite", tmp_path)) as penstock:
        penstock.prepare(flow)  # its functions have no name to import them by
        again = await penstock.resume(run.id)
        rest = await questions(again, 50)
        assert {one.decision for one in rest} == {one.decision for one in asked[50:]}
        random.shuffle(rest)
        for one in rest:
            await _answer_by_number(again, one)
        result = await ended(again)
        events = await history(again)

    expected = [(n, {0: "as planned", 1: "edited"}[n % 3]) for n in range(100) if n % 3 < 2]
    assert sorted(calls) == expected
    assert sum(isinstance(event, DecisionRequired) for event in events) == 100
    assert sum(isinstance(event, DecisionMade) for event in events) == 100
    assert len([e for e in events if isinstance(e, TaskStarted)]) == len(expected) + 1
    assert result.status == "succeeded"


async def _so_far(run: ps.RunHandle, kind: type, count: int) -> Any:
    async for event in run.events():
        if isinstance(event, kind):
            yield event
            count -= 1
            if not count:
                return


async def _answer_by_number(run: ps.RunHandle, asked: DecisionRequired) -> None:
    """Every third is approved, edited or skipped."""
    verb = ("approve", "edit", "skip")[named(asked) % 3]
    await answer(run, asked, verb, args={"how": "edited"} if verb == "edit" else None)


async def test_an_accepted_answer_is_durable_when_its_sender_hears_of_it(tmp_path: Path) -> None:
    calls: list[Any] = []
    async with opened(url("sqlite", tmp_path)) as penstock:
        run = await penstock.start(deploying(calls))
        (asked,) = await questions(run)
        event = await run.send(Decide(decision=asked.decision, verb="approve"))
        kept = await penstock.store.load(run.id)
        assert event.seq <= kept[-1].seq
        assert any(isinstance(one, DecisionMade) for one in kept)
        await ended(run)
