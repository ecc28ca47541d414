"""Arguments from outside are held against what the tool takes, before they count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from asked import STORES, answer, at, ended, opened, questions, url

import penstock as ps


@dataclass
class Size:
    width: int
    height: int = 1


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url(request.param, tmp_path)


def cutting(calls: list[Any]) -> ps.Workflow:
    @ps.tool(effect="destructive")
    async def cut(n: int, label: str = "", size: Size | None = None) -> int:
        calls.append((n, label, size))
        return n

    flow = ps.Workflow("cutting")
    flow.input("n", "integer", default=1)
    flow.step("cut", cut, n="${ inputs.n }")
    return flow


WRONG: list[tuple[Mapping[str, Any], str]] = [
    ({"n": "seven"}, "argument n: 'seven' is not of type 'integer'"),
    ({"labell": "x"}, "no argument 'labell'"),
    ({"size": {"width": "wide"}}, "argument size"),
]


@pytest.mark.parametrize(("args", "why"), WRONG)
async def test_an_edit_that_the_tool_does_not_take_leaves_the_question_open(
    store: str, args: Mapping[str, Any], why: str
) -> None:
    calls: list[Any] = []
    async with opened(store) as penstock:
        run = await penstock.start(cutting(calls))
        (asked,) = await questions(run)
        with pytest.raises(ps.CommandRejected, match=why):
            await answer(run, asked, "edit", args=args)
        assert list(run.state.decisions.values()) == [asked]
        await answer(run, asked, "edit", args={"n": 7, "label": "new", "size": {"width": 2}})
        assert (await ended(run)).ok

    assert calls == [(7, "new", Size(2))]


async def test_a_question_says_what_an_edit_may_hold(store: str) -> None:
    async with opened(store) as penstock:
        run = await penstock.start(cutting([]))
        (asked,) = await questions(run)
        await run.send(ps.Abort())

    form = asked.schema["edit"]
    assert form["properties"]["n"] == {"type": "integer"}
    assert form["additionalProperties"] is False
    assert "required" not in form


@pytest.mark.parametrize(("args", "why"), WRONG)
async def test_modified_arguments_that_the_tool_does_not_take_are_refused(
    store: str, args: Mapping[str, Any], why: str
) -> None:
    calls: list[Any] = []
    async with opened(store) as penstock:
        run = await penstock.start(cutting(calls))
        (asked,) = await questions(run)
        with pytest.raises(ps.CommandRejected, match=why):
            await run.send(ps.ModifyArgs(step=at("cut"), args=args))
        assert list(run.state.decisions.values()) == [asked]
        await answer(run, asked, "approve")
        assert (await ended(run)).ok

    assert calls == [(1, "", None)]


@pytest.mark.parametrize(
    ("args", "fine"),
    [
        ({"n": "${ inputs.n + 1 }"}, True),
        ({"size": {"width": "${ inputs.n }"}}, True),
        ({"size": {"width": "${ inputs.n }", "height": "tall"}}, False),
        ({"n": "${ inputs.n }", "label": 5}, False),
    ],
)
async def test_computed_arguments_are_checked_where_they_are_literal(
    args: Mapping[str, Any], *, fine: bool
) -> None:
    async with opened("memory:") as penstock:
        run = await penstock.start(cutting([]))
        await questions(run)
        accepted = True
        try:
            await run.send(ps.ModifyArgs(step=at("cut"), args=args))
        except ps.CommandRejected:
            accepted = False
        await run.send(ps.Abort())

    assert accepted is fine


async def test_the_edit_that_a_gate_asks_for_is_checked_too(store: str) -> None:
    async def double(n: int) -> int:
        return 2 * n

    flow = ps.Workflow("gated")
    flow.step("double", double, n=1, gate={"checks": [{"expr": "output > 9"}], "max_attempts": 1})
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        (asked,) = await questions(run)
        with pytest.raises(ps.CommandRejected, match="'five' is not of type 'integer'"):
            await answer(run, asked, "edit", args={"n": "five"})
        await answer(run, asked, "edit", args={"n": 5})
        assert (await ended(run)).ok


async def test_a_child_workflow_takes_its_inputs_and_nothing_else(store: str) -> None:
    async def same(n: int) -> int:
        return n

    child = ps.Workflow("child")
    child.input("n", "integer")
    child.step("same", same, n="${ inputs.n }")
    flow = ps.Workflow("parent")
    flow.step("one", child, n=1, approval="always")
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        (asked,) = await questions(run)
        with pytest.raises(ps.CommandRejected, match="argument n: 'x' is not of type 'integer'"):
            await answer(run, asked, "edit", args={"n": "x"})
        await answer(run, asked, "edit", args={"n": 3})
        assert (await ended(run)).ok


@pytest.mark.parametrize("args", [{"zzz": 40}, {"n": "forty"}])
async def test_a_fork_with_arguments_that_the_tool_does_not_take_is_not_made(
    store: str, args: Mapping[str, Any]
) -> None:
    async def double(n: int) -> int:
        return 2 * n

    flow = ps.Workflow("doubling")
    flow.step("double", double, n=1)
    flow.output("n", "${ steps.double.output }")
    async with opened(store) as penstock:
        run = await penstock.start(flow)
        assert (await ended(run)).ok
        with pytest.raises(ps.PenstockError, match="double: "):
            await penstock.fork(run.id, at=1, args={"double": args})
        assert len(await penstock.store.runs()) == 1
        fork = await penstock.fork(run.id, at=1, args={"double": {"n": 40}})
        assert (await ended(fork)).outputs == {"n": 80}
