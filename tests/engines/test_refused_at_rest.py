"""A command that a run at rest would refuse: it is refused without taking the run up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import penstock as ps
from penstock.engines.pickup import PickUp
from penstock.errors import CommandRejected
from penstock.ids import DecisionId, StepId
from penstock.run.commands import Command, Decide, SkipStep


@ps.tool(effect="destructive")
async def deploy() -> int:
    return 1


@pytest.mark.parametrize(
    "command",
    [SkipStep(step=StepId("nobody")), Decide(decision=DecisionId("none:1"), verb="approve")],
    ids=["skip_step", "decide"],
)
async def test_it_leaves_no_event(tmp_path: Path, command: Command) -> None:
    url = f"sqlite:///{tmp_path}/rest.db"
    flow = ps.Workflow("shipping")
    flow.step("ship", deploy)
    async with ps.open(url, tools=[deploy]) as penstock:
        run = await penstock.start(flow)
        async with asyncio.timeout(10):
            while run.status != "waiting":  # noqa: ASYNC110 - nobody tells us
                await asyncio.sleep(0)
    async with ps.open(url, tools=[deploy]) as penstock:
        before = await penstock.store.load(run.id)

        with pytest.raises(CommandRejected, match=r"no step 'nobody'|no open decision"):
            await PickUp(penstock, most=1).send(run.id, command)

        assert await penstock.store.load(run.id) == before
