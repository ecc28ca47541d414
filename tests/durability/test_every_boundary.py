"""A run can be taken up at every boundary between two batches: nothing that was owed there is forgotten."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import audit
import deeds
import pytest
import wilds
from recording import Recording, record

import penstock as ps
from penstock.ids import StepId
from penstock.run.commands import Command, Decide
from penstock.run.events import DecisionRequired, Event, WorkflowPaused
from penstock.workflow.spec import Step

PATIENCE = 20.0
"""Seconds until a run is taken to hang."""

TOOLS = (deeds.look, deeds.put)


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[ps.Penstock]:
    async with ps.open(f"sqlite:///{path}", tools=TOOLS) as penstock:
        yield penstock


async def finish(penstock: ps.Penstock, root: str) -> ps.Result:
    """Take a run up and see it through: what asks is answered, what was paused goes on."""
    errands: set[asyncio.Task[None]] = set()

    def soon(run: Any, command: Command) -> None:
        async def send() -> None:
            with contextlib.suppress(ps.CommandRejected):  # it stopped meanwhile
                await run.send(command)

        errands.add(asyncio.get_running_loop().create_task(send()))

    class Watched(dict[Any, Any]):
        def __setitem__(self, id: Any, run: Any) -> None:
            super().__setitem__(id, run)
            for question in run.state.decisions.values():
                soon(run, Decide(decision=question.decision, verb="retry"))
            if "command" in run.state.pauses:
                soon(run, ps.Resume())
            run.observe(
                lambda event: (
                    isinstance(event, DecisionRequired)
                    and soon(run, Decide(decision=event.decision, verb="retry"))
                )
            )

    penstock.engine.live = Watched()
    run = await penstock.resume(root)
    result = await run.result()
    await asyncio.gather(*errands)
    return result


async def cut_everywhere(folder: Path, recording: Recording, expected: dict[str, audit.History]) -> None:
    for cut in range(1, len(recording.timeline)):
        path = folder / f"{cut}.db"
        await recording.restore(path, cut)
        try:
            async with asyncio.timeout(PATIENCE), opened(path) as penstock:
                await finish(penstock, recording.root)
        except TimeoutError:
            pytest.fail(f"taken up after batch {cut}, {recording.timeline[cut - 1][1]}: it hangs")
        found = await audit.histories(f"sqlite:///{path}", recording.root)
        wrong = audit.violations(audit.Case(recording.root, found, expected))
        assert wrong == [], f"taken up after batch {cut}, {recording.timeline[cut - 1][1]}"
        path.unlink()


@pytest.mark.parametrize("seed", range(12))
def test_a_run_taken_up_at_any_boundary_ends_as_if_nothing_had_happened(folder: Path, seed: int) -> None:
    async def main() -> None:
        path = folder / "whole.db"
        async with opened(path) as penstock:
            result = await (await penstock.start(wilds.wild(seed))).result()
        expected = await audit.histories(f"sqlite:///{path}", result.run_id)
        await cut_everywhere(folder, await record(path, result.run_id), expected)

    asyncio.run(main())


def steered() -> ps.Workflow:
    flow = ps.Workflow("steered", max_parallel=2)
    flow.step("a", deeds.look)
    flow.step("b", deeds.send, n="${ steps.a.output }")
    flow.step("c", deeds.put, n="${ steps.b.output }")
    flow.step("each", deeds.look, for_each="${ [1, 2, 3] }", n="${ item }", needs="b", max_parallel=1)
    flow.step("d", deeds.send_slowly, n="${ steps.c.output }", fails=1)
    flow.step("e", deeds.look, n="${ steps.d.output }")
    flow.step("f", deeds.look, needs="e")
    flow.step("g", deeds.send, needs=["f", "each"])
    flow.output("g", "${ steps.g.output }")
    return flow


def injected(name: str, *needs: str) -> ps.InjectTasks:
    steps = (Step(id=StepId(name), uses="local:put", with_={"n": 1}, needs=tuple(map(StepId, needs))),)
    return ps.InjectTasks(steps=steps)


STEERINGS: dict[str, dict[int, Sequence[Command]]] = {
    "abort": {7: [ps.Abort(reason="enough")]},
    "abort at once": {4: [ps.Abort()]},
    "pause and resume": {5: [ps.Pause(), ps.Resume()], 9: [ps.Pause(), ps.Resume()]},
    "skip": {4: [ps.SkipStep(step=StepId("e"))]},
    "inject": {4: [injected("x", "a")], 7: [injected("y", "x", "each")]},
    "modify": {4: [ps.ModifyArgs(step=StepId("f"), args={"n": 5})]},
    "message": {4: [ps.Message(text="hello")], 7: [ps.Message(text="again")]},
}
"""What is sent when an event of that number is published. The first three are too early."""


@pytest.mark.parametrize("commands", STEERINGS.values(), ids=STEERINGS)
def test_a_run_that_was_steered_can_be_taken_up_at_any_boundary(
    folder: Path, commands: dict[int, Sequence[Command]]
) -> None:
    async def main() -> None:
        path = folder / "whole.db"
        async with opened(path) as penstock:
            run = await penstock.start(steered())
            sent: list[asyncio.Task[Event]] = []

            def steer(event: Event) -> None:
                loop = asyncio.get_running_loop()
                sent.extend(loop.create_task(run.send(command)) for command in commands.get(event.seq, ()))

            run.observe(steer)
            await run.result()
            assert len(sent) == sum(map(len, commands.values()))
            await asyncio.gather(*sent)
        await cut_everywhere(folder, await record(path, run.id), {})

    asyncio.run(main())


def test_a_pause_for_storage_ends_with_the_process_that_had_the_trouble(folder: Path) -> None:
    async def main() -> None:
        path = folder / "whole.db"
        async with opened(path) as penstock:
            run = await penstock.start(steered())
            drive = penstock.engine.live[run.id]

            def trouble(event: Event) -> None:
                if event.seq == 5:
                    drive.record.stalled("no space left on device")
                    drive.record.stalled("")

            run.observe(trouble)
            await run.result()
        recording = await record(path, run.id)
        paused = [e for _, batch in recording.timeline for e in batch if isinstance(e, WorkflowPaused)]
        assert [event.by for event in paused] == ["storage"]
        await cut_everywhere(folder, recording, {})

    asyncio.run(main())
