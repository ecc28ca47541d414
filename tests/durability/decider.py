"""A process that drives a run full of questions, and the person who answers them, until it is killed.

The run has a loop with an approval in every round, items that are approved one by one, a gate that
passes in the end and one that never does. What the person answers depends on the question alone.
It says when an answer has been accepted: from then on the answer may not be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

import msgspec
from victim import Moments, Order, Watched, say, say_how_it_ended

import penstock as ps
from penstock.engines.drive import Drive
from penstock.errors import CommandRejected
from penstock.run.commands import Decide
from penstock.run.events import DecisionRequired


@ps.tool(effect="idempotent")
async def same(value: Any = None) -> Any:
    await asyncio.sleep(0)
    return value


@ps.tool(effect="idempotent")
async def learn(attempts: list[Any]) -> int:
    """How often it was told that it was wrong."""
    await asyncio.sleep(0)
    return len(attempts)


def flow() -> ps.Workflow:
    flow = ps.Workflow("questions")
    flow.step("draft", same, value="${ iteration }", approval=True)
    routing = {
        "kind": "loop",
        "conditions": [{"expr": "output >= 3", "target": "publish"}],
        "loop_target": "draft",
        "max_iterations": 5,
        "next": "publish",
    }
    flow.step("judge", same, value="${ steps.draft.output }", routing=routing)
    flow.step("publish", same, value="${ steps.draft.output }")
    flow.step("learns", learn, attempts="${ attempts }", gate=[{"expr": "output >= 2"}])
    never = {"checks": [{"expr": "output < 0"}], "max_attempts": 2}
    flow.step("hopeless", learn, attempts="${ attempts }", gate=never)
    flow.step("each", same, for_each=list(range(6)), value="${ item }", approval=True)
    for step in ("publish", "learns", "hopeless", "each"):
        flow.output(step, f"${{ steps.{step}.output }}")
    return flow


def reply(drive: Drive, asked: DecisionRequired) -> Decide:
    if asked.kind == "gate":  # once more, and then it will have to do
        before = [made for made in drive.state.decided if made["step"] == asked.step]
        return Decide(decision=asked.decision, verb="accept" if before else "retry", by="a person")
    if asked.item is not None and asked.item % 3:
        verb, args = ("edit", {"value": f"item {asked.item}"}) if asked.item % 3 == 1 else ("skip", None)
        return Decide(decision=asked.decision, verb=verb, args=args, by="a person")
    return Decide(decision=asked.decision, verb="approve", by="a person")


class Person(Watched):
    async def _decide(self, drive: Drive, question: DecisionRequired) -> None:
        with contextlib.suppress(CommandRejected):
            await drive.send(reply(drive, question))
            say(answered=question.decision)


async def perform(order: Order) -> None:
    moments = Moments(order)
    async with ps.open(order.store) as penstock:
        penstock.engine.live = Person(moments, Path(order.folder) / "ledger")
        if order.run:
            try:
                run = await penstock.resume(order.run)
            except ps.PenstockError:
                if not await say_how_it_ended(penstock, order.run):
                    raise
                return
        else:
            run = await penstock.start(flow())
            say(run=run.id)
            moments()
        result = await run.result()
        say(ended=result.status, run=run.id, moments=moments.count)


def main(text: str) -> None:
    order = msgspec.json.decode(text, type=Order)
    try:
        asyncio.run(perform(order))
    except ps.PenstockError as error:
        say(error=type(error).__name__, message=str(error))


if __name__ == "__main__":
    main(sys.argv[1])
