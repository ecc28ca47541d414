"""A tool that is not what was approved: a person reads the difference, or nobody calls it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import VARIABLES, settled

import penstock as ps
from penstock import settings
from penstock.errors import ToolRefused
from penstock.run.commands import Decide
from penstock.run.events import DecisionRequired

Become = Callable[..., None]
MODULE = ["-m", "penstock.testing.mcp_server"]


@pytest.fixture
def become(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Become:
    """Writes a configuration whose server is as it was, or has changed."""
    monkeypatch.chdir(tmp_path)

    def write(*args: str, pinning: str = "ask") -> None:
        entry = {"command": sys.executable, "args": [*MODULE, *args]}
        (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"good": entry}}))
        (tmp_path / "penstock.toml").write_text(f'[tools]\npinning = "{pinning}"\n')

    return write


@asynccontextmanager
async def opened(store: str = "memory:") -> AsyncIterator[ps.Penstock]:
    configuration = settings.read({**VARIABLES, "PENSTOCK_STORE": store})
    async with asyncio.timeout(30), ps.Penstock(configuration) as penstock:
        yield penstock


def flow(**more: Any) -> ps.Workflow:
    made = ps.Workflow("say")
    made.step("say", "good:echo", text="hi", **more)
    return made


async def ran(become: Become) -> None:
    """The tool is seen, and so approved as it is."""
    become()
    async with opened() as penstock:
        assert (await (await penstock.start(flow())).result()).status == "succeeded"


async def asked(run: ps.RunHandle, after: str = "") -> DecisionRequired:
    """What is asked, once it is another question than `after`."""
    while not (found := [one for one in run.state.decisions.values() if one.decision != after]):  # noqa: ASYNC110 - a server starts meanwhile
        await asyncio.sleep(0.005)
    return found[0]


async def test_the_next_call_is_asked_about_with_the_difference_and_approving_it_approves_the_tool(
    become: Become,
) -> None:
    await ran(become)
    become("--changed")

    async with opened() as penstock:
        run = await penstock.start(flow(approval="never"))
        question = await asked(run)
        await run.send(Decide(decision=question.decision, verb="approve"))
        assert (await run.result()).status == "succeeded"
    async with opened() as penstock:
        again = await (await penstock.start(flow(approval="never"))).result()

    assert question.kind == "approval"
    assert '+ "description": "Say it back, slyly.",' in question.call["changed"]
    assert "This tool is not what was approved:" in question.summary
    assert '+ "description": "Say it back, slyly.",' in question.summary
    assert again.status == "succeeded"  # nobody was asked


async def test_a_call_that_is_rejected_approves_nothing(become: Become) -> None:
    await ran(become)
    become("--changed")

    async with opened() as penstock:
        run = await penstock.start(flow())
        await run.send(Decide(decision=(await asked(run)).decision, verb="reject"))
        result = await run.result()
        with pytest.raises(ToolRefused, match="penstock tools approve good:echo"):
            penstock.tools.find("good:echo")

    assert result.status == "failed"


async def test_what_was_approved_is_that_change_and_no_later_one(become: Become, tmp_path: Path) -> None:
    await ran(become)
    become("--changed")
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with opened(store) as penstock:
        run = await penstock.start(flow())
        question = await asked(run)
    become("--changed", "--again")  # it has become a third one while the question was open

    async with opened(store) as penstock:
        later = await penstock.resume(run.id)
        await later.send(Decide(decision=question.decision, verb="approve"))
        second = await asked(later, after=question.decision)
        assert penstock.tools.changes != []

    assert "slyly again" in second.call["changed"]


async def test_a_workflow_that_was_run_before_is_asked_about_once_its_tool_has_changed(
    become: Become, tmp_path: Path
) -> None:
    become()
    file = tmp_path / "say.yaml"
    file.write_text(
        "name: say\nsteps:\n  - {id: say, uses: 'good:echo', with: {text: hi}, approval: never}\n"
    )
    change = ps.Workflow("change")
    change.step("change", "good:change")

    async with opened() as penstock:
        assert (await (await penstock.start(file)).result()).status == "succeeded"
        await (await penstock.start(change)).result()
        assert await settled(lambda: penstock.tools.changes != [])  # it was said, and so it was asked
        run = await penstock.start(file)
        question = await asked(run)
        await run.send(Decide(decision=question.decision, verb="approve"))
        assert (await run.result()).status == "succeeded"
        assert (await (await penstock.start(file)).result()).status == "succeeded"  # nobody was asked

    assert "contents of ~/.ssh" in question.call["changed"]


async def test_where_changes_are_refused_the_run_does_not_start(become: Become) -> None:
    await ran(become)
    become("--changed", pinning="refuse")

    async with opened() as penstock:
        with pytest.raises(ps.DefinitionError, match=r"may not be called .*approve good:echo(.|\n)*slyly"):
            await penstock.start(flow())


async def test_where_changes_do_not_matter_they_are_taken(become: Become) -> None:
    await ran(become)
    become("--changed", pinning="off")

    async with opened() as penstock:
        assert (await (await penstock.start(flow())).result()).status == "succeeded"
        assert penstock.tools.changes == []


async def test_nobody_is_shown_a_changed_tool_to_choose_from(become: Become) -> None:
    await ran(become)
    become("--changed")

    async with opened() as penstock:
        await penstock.tools.start()
        with pytest.raises(ToolRefused):
            penstock.tools.find("good:echo")
        made = ps.Workflow("asked", agents={"helper": {"prompt": "Help.", "tools": ["good:echo"]}})
        made.step("a", "agent:helper", text="help")
        with pytest.raises(ps.DefinitionError, match="agent helper may call 'good:echo'"):
            await penstock.start(made)
