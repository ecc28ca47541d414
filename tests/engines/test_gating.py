"""Gates on the native engine: checks of all kinds, attempts that learn, people who are called."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from asked import STORES, answer, at, ended, history, next_question, opened, questions, until, url

import penstock as ps
from penstock.policy.gates import MOST
from penstock.run.events import GateChecked, GateEscalated, GateStarted, TaskStarted


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url(request.param, tmp_path)


class Builder:
    """Gives 1, 2, 3 … and remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def tool(self, effect: Any = "idempotent") -> Any:
        async def build(attempts: Any = None, size: int = 0) -> dict[str, int]:
            self.told.append(attempts)
            return {"n": len(self.told) + size}

        return ps.tool(effect=effect)(build)


def building(builder: Builder, *checks: dict[str, Any], **gate: Any) -> ps.Workflow:
    flow = ps.Workflow("building")
    given = {"checks": list(checks), **gate}
    flow.step("build", builder.tool(), attempts="${ attempts }", size=0, gate=given)
    flow.output("n", "${ steps.build.output.n }")
    return flow


@ps.tool(id="test:enough", effect="read")
async def enough(n: int) -> dict[str, Any]:
    return {"ok": n >= 3, "reason": f"{n} is not enough"}


async def test_all_three_kinds_of_checks_must_pass(store: str) -> None:
    builder = Builder()
    flow = building(
        builder,
        {"expr": "output.n >= 2"},
        {"tool": "test:enough", "with": {"n": "${ output.n }"}},
        {"run": ["test", "${ string(output.n) }", "-ge", "3"]},
    )
    async with opened(store, enough) as penstock:
        run = await penstock.start(flow)
        result = await ended(run)
        events = await history(run)

    assert (result.status, result.outputs) == ("succeeded", {"n": 3})
    found = [[check["status"] for check in e.checks] for e in events if isinstance(e, GateChecked)]
    assert found == [["failed"] * 3, ["passed", "failed", "failed"], ["passed"] * 3]
    assert result.steps[at("build")].attempts == 3


async def test_the_next_attempt_receives_what_was_wrong_and_never_more_than_four_kilobytes(
    store: str,
) -> None:
    builder = Builder()

    @ps.tool(id="test:rambling", effect="read")
    async def rambling(n: int) -> dict[str, Any]:
        return {"ok": n > 5, "reason": f"no {n} " * 5000}

    check = {"tool": "test:rambling", "with": {"n": "${ output.n }"}}
    async with opened(store, rambling) as penstock:
        result = await ended(await penstock.start(building(builder, check, max_attempts=9)))

    assert result.ok
    assert builder.told[0] == []
    assert [entry["attempt"] for entry in builder.told[-1]] == [1, 2, 3, 4, 5]
    assert all(len(msgspec.json.encode(told)) <= MOST for told in builder.told)


async def test_a_person_gets_a_whole_new_set_of_attempts_or_takes_what_there_is(store: str) -> None:
    builder = Builder()
    async with opened(store) as penstock:
        run = await penstock.start(building(builder, {"expr": "output.n > 100"}))
        (first,) = await questions(run)
        assert (first.kind, len(builder.told)) == ("gate", 3)
        await answer(run, first, "retry")
        second = await next_question(run, first)
        assert len(builder.told) == 6
        await answer(run, second, "accept", by="ada")
        result = await ended(run)
        await penstock.engine.close()
        examples = await penstock.store.examples.list(step="build")

    assert result.outputs == {"n": 6}
    assert len(examples) == 2
    assert run.state.decided[-1]["by"] == "ada"


async def test_edited_arguments_go_into_the_next_attempts(store: str) -> None:
    builder = Builder()
    async with opened(store) as penstock:
        run = await penstock.start(building(builder, {"expr": "output.n > 100"}))
        (asked,) = await questions(run)
        await answer(run, asked, "edit", args={"size": 500})
        assert (await ended(run)).outputs == {"n": 504}


async def test_a_check_that_cannot_be_made_is_no_pass_and_no_lesson(store: str) -> None:
    builder = Builder()
    flow = building(builder, {"run": ["/nowhere/at/all"]})
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        (asked,) = await questions(run)
        assert "(unavailable)" in asked.summary
        assert len(builder.told) == 1
        assert await penstock.store.examples.list() == []
        await answer(run, asked, "skip")
        assert (await ended(run)).steps[at("build")].status == "skipped"


async def test_a_check_that_can_be_made_later_is(store: str) -> None:
    builder, asked = Builder(), [0]

    @ps.tool(id="test:moody", effect="read")
    async def moody() -> bool:
        asked[0] += 1
        if asked[0] < 3:
            raise ConnectionError("not now")
        return True

    flow = ps.Workflow("w", retry={"max_attempts": 3, "backoff": 0})
    flow.step("build", builder.tool("read"), gate=[{"tool": "test:moody"}])
    async with opened(store, moody) as penstock:
        assert (await ended(await penstock.start(flow))).ok

    assert (asked, len(builder.told)) == ([3], 1)


async def test_siblings_go_on_while_a_gate_waits_for_a_person(store: str) -> None:
    flow = building(Builder(), {"expr": "false"}, max_attempts=1)
    flow.step("other", Builder().tool())
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        (asked,) = await questions(run)
        assert run.steps[at("other")].status == "succeeded"
        await answer(run, asked, "abort")
        assert (await ended(run)).status == "aborted"


async def test_the_gate_of_an_item_is_its_own(store: str) -> None:
    @ps.tool(effect="read")
    async def same(n: int) -> int:
        return n

    flow = ps.Workflow("w")
    gate = {"checks": [{"expr": "output > 1"}], "max_attempts": 2}
    flow.output("all", flow.step("each", same, for_each=[1, 2, 3], n="${ item }", gate=gate))
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        (asked,) = await questions(run)
        assert asked.item == 0
        await answer(run, asked, "accept", args={"output": 99})
        assert (await ended(run)).outputs == {"all": [99, 2, 3]}


async def test_each_attempt_at_a_gate_is_approved_by_itself(store: str) -> None:
    builder = Builder()
    flow = ps.Workflow("w")
    flow.step("build", builder.tool("destructive"), gate=[{"expr": "output.n >= 2"}])
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        (first,) = await questions(run)
        await answer(run, first, "approve")
        second = await next_question(run, first)
        assert len(builder.told) == 1
        await answer(run, second, "approve")
        assert (await ended(run)).ok


def family(builder: Builder) -> ps.Workflow:
    child = building(builder, {"expr": "output.n > 100"}, max_attempts=1)
    flow = ps.Workflow("family")
    flow.output("n", "${ steps.kid.output.n }")
    flow.step("kid", child)
    return flow


async def test_the_escalation_of_a_child_is_copied_to_its_parent_once_also_after_a_restart(
    tmp_path: Path,
) -> None:
    builder = Builder()
    flow, store = family(builder), url("sqlite", tmp_path)
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        await until(run, lambda: bool(run.state.copied))
    async with opened(store) as penstock:
        penstock.prepare(flow)
        again = await penstock.resume(run.id)
        await until(again, lambda: len(penstock.engine.live) == 2)
        child = next(
            ps.RunHandle(drive, penstock) for id, drive in penstock.engine.live.items() if id != run.id
        )
        (asked,) = await questions(child)
        await answer(child, asked, "accept")
        result = await ended(again)
        events = await history(again)

    assert result.outputs == {"n": 1}
    copies = [event for event in events if isinstance(event, GateEscalated)]
    assert [copy.child for copy in copies] == [f"{child.id}:{asked.seq - 1}"]
    assert len(builder.told) == 1


async def test_a_paid_result_survives_a_restart_in_the_middle_of_its_checks(tmp_path: Path) -> None:
    builder, store = Builder(), url("sqlite", tmp_path)
    begun, door = asyncio.Event(), asyncio.Event()

    @ps.tool(id="test:slow", effect="read")
    async def slow(n: int) -> bool:
        begun.set()
        await door.wait()
        return n == 1

    check = {"tool": "test:slow", "with": {"n": "${ output.n }"}}
    flow = building(builder, check)
    async with opened(store, slow) as penstock:
        run = await penstock.start(flow)
        await begun.wait()
    door.set()
    async with opened(store, slow) as penstock:
        penstock.prepare(flow)
        again = await penstock.resume(run.id)
        result = await ended(again)
        events = await history(again)

    assert (result.status, result.outputs, len(builder.told)) == ("succeeded", {"n": 1}, 1)
    assert sum(isinstance(event, TaskStarted) for event in events) == 1
    assert sum(isinstance(event, GateStarted) for event in events) == 1


async def test_what_was_tried_and_the_result_itself_survive_a_restart(tmp_path: Path) -> None:
    builder, store = Builder(), url("sqlite", tmp_path)
    flow = building(builder, {"expr": "output.n > 100"})
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        await questions(run)
    async with opened(store) as penstock:
        penstock.prepare(flow)
        again = await penstock.resume(run.id)
        (asked,) = await questions(again)
        await answer(again, asked, "accept")
        result = await ended(again)
        examples = await penstock.store.examples.list(step="build")

    assert result.outputs == {"n": 3}
    assert len(examples) == 1, "kept once, however often the run is taken up"
