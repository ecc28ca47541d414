"""What must hold for every run that adapts, tried on the native engine with a hostile tie-breaker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from zlib import crc32

from hypothesis import given, settings

from penstock.engines.base import Tie
from penstock.errors import CommandRejected
from penstock.ids import DecisionId
from penstock.run.commands import Decide
from penstock.run.events import DecisionRequired, Event, decode, encode
from penstock.run.replay import replay
from penstock.testing import clock, graphs
from penstock.testing.banks import strays
from penstock.testing.rig import Rig
from penstock.testing.sketch import Record, Sketch, build
from penstock.workflow.graph import compile_graph
from penstock.workflow.spec import Workflow

ANSWERS: tuple[Any, ...] = (
    lambda tie: {"target": tie.candidates[-1], "confidence": 0.9},
    lambda tie: {"target": tie.candidates[0], "confidence": "1.0", "reasoning": {"deep": ["x"]}},
    lambda tie: {"target": tie.step, "confidence": 1},
    lambda _: {"target": "py:os:system", "confidence": float("nan")},
    lambda tie: {"target": [tie.candidates[0]], "confidence": 1, "next_step_id": "s0"},
    lambda tie: {"target": tie.candidates[0], "confidence": None},
    lambda _: {"confidence": 1.0},
    lambda _: "s1",
    lambda _: 1 / 0,
)


async def hostile(tie: Tie) -> Any:
    """Says whatever comes to its mind, and sometimes nothing at all."""
    number = crc32(repr((tie.step, tie.candidates)).encode())
    if number % 10 == 9:
        await asyncio.sleep(3600)
    return ANSWERS[number % 10](tie)


def execute(sketch: Sketch) -> tuple[Workflow, list[Sequence[Event]], Any, set[str]]:
    async def main() -> tuple[Workflow, list[Sequence[Event]], Any, set[str]]:
        before = asyncio.all_tasks()
        async with Rig() as rig:
            rig.penstock.engine.tie_breaker = hostile
            flow = build(sketch, Record())
            handle = await rig.start(flow)
            answering = asyncio.create_task(_answer(handle))
            result = await handle.result()
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            await asyncio.sleep(0)
            left = {task.get_name() for task in asyncio.all_tasks() - before}
            return flow.build(), rig.batches(), result, left

    return clock.run(main())


async def _answer(handle: Any) -> None:
    """Someone answers every question, after a while, and not always sensibly."""
    async for event in handle.events():
        if isinstance(event, DecisionRequired):
            await asyncio.sleep(1)
            for verb, args in _tries(event):
                with suppress(CommandRejected):
                    await handle.send(Decide(decision=DecisionId(event.decision), verb=verb, args=args))
                    break


def _tries(asked: DecisionRequired) -> list[tuple[str, dict[str, Any] | None]]:
    if asked.kind != "route":
        return [("explode", None), ("approve", None), (asked.options[-1], None)]
    targets = asked.schema["respond"]["properties"]["target"]["enum"]
    chosen = targets[crc32(repr((asked.step, asked.iteration)).encode()) % len(targets)]
    return [("respond", {"target": "nobody"}), ("respond", {"target": chosen})]


@settings(max_examples=200)
@given(graphs.routed())
def test_every_run_ends_inside_its_graph_and_replays_to_the_last_bit(sketch: Sketch) -> None:
    workflow, batches, result, left = execute(sketch)

    events = [event for batch in batches for event in batch]
    assert result.status in ("succeeded", "partial", "failed")
    assert strays(workflow, events) == []
    assert not left
    again = replay(result.run_id, compile_graph(workflow), [decode(encode(event)) for event in events])
    assert again.encoded() == result.state.encoded()
