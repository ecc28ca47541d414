"""What must hold for every run, tried on the native engine in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.app import RunHandle
from penstock.engines.base import Result
from penstock.errors import CommandRejected
from penstock.run.commands import Abort, Command, Resume
from penstock.run.events import Event, TaskStarted, decode, encode
from penstock.run.replay import replay
from penstock.testing import clock, graphs
from penstock.testing.history import violations
from penstock.testing.outcomes import expected
from penstock.testing.rig import Rig
from penstock.testing.sketch import Record, Sketch, build
from penstock.tools.functions import tool
from penstock.workflow.graph import compile_graph
from penstock.workflow.spec import Workflow

Commands = Sequence[tuple[int, Command]]
Watch = Callable[[RunHandle], Awaitable[None]]


@tool(id=graphs.EXTRA, effect="read")
async def extra() -> None:
    await asyncio.sleep(1)


@dataclass
class Execution:
    """A run that has ended, and everything there is to know about it."""

    workflow: Workflow
    result: Result
    record: Record
    batches: list[Sequence[Event]]
    encoded: bytes
    left: set[str]
    """Names of the asyncio tasks that are still there."""

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch]


def execute(sketch: Sketch, commands: Commands = (), watch: Watch | None = None) -> Execution:
    """Run a sketch to its end in virtual time; a command's moment is in half seconds."""

    async def main() -> Execution:
        async with Rig(extra) as rig:
            return await _drive(rig, sketch, commands, watch)

    return clock.run(main())


async def _drive(
    rig: Rig, sketch: Sketch, commands: Commands = (), watch: Watch | None = None, *, id: str = "run"
) -> Execution:
    before = asyncio.all_tasks()
    record = Record()
    flow = build(sketch, record)
    handle = await rig.start(flow, id=id)
    watching = asyncio.create_task(watch(handle), name="watching") if watch else None
    steering = asyncio.create_task(_steer(handle, commands), name="steering")
    result = await handle.result()
    await steering
    if watching is not None:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    await asyncio.sleep(0)
    left = {task.get_name() for task in asyncio.all_tasks() - before}
    return Execution(flow.build(), result, record, rig.batches(id), handle.state.encoded(), left)


async def _steer(handle: RunHandle, commands: Commands) -> None:
    """Send commands at their moments; at the end make sure that the run is not left paused."""
    loop = asyncio.get_running_loop()
    for moment, command in sorted(commands, key=lambda pair: pair[0]):
        await asyncio.sleep(max(0.0, moment / 2 - loop.time()))
        await _send(handle, command)
    if commands:
        await _send(handle, Resume())


async def _send(handle: RunHandle, command: Command) -> None:
    with suppress(CommandRejected):
        await handle.send(command)


@st.composite
def steered(draw: st.DrawFn) -> tuple[Sketch, Commands]:
    sketch = draw(graphs.sketches(most=6))
    return sketch, draw(graphs.commands(sketch))


@given(graphs.sketches())
def test_every_step_ends_as_the_reference_says(sketch: Sketch) -> None:
    execution = execute(sketch)

    ending = expected(sketch)
    result = execution.result
    assert {step: found.status for step, found in result.steps.items()} == {
        step: outcome.status for step, outcome in ending.steps.items()
    }
    assert (result.status, dict(result.outputs)) == (ending.status, dict(ending.outputs))
    assert violations(execution.workflow, execution.batches) == []
    assert not execution.left


@given(graphs.sketches())
def test_functions_are_called_exactly_as_often_as_events_say_and_get_what_they_read(sketch: Sketch) -> None:
    execution = execute(sketch)

    ending = expected(sketch)
    mine = [call for call in execution.record.calls if call.workflow == sketch.name]
    children = {node.id for node in sketch.nodes if node.child}
    maps = {node.id for node in sketch.nodes if node.items is not None}
    started = Counter(
        (event.step, event.item)
        for event in execution.events
        if isinstance(event, TaskStarted)
        and event.step not in children
        and (event.step not in maps or event.item is not None)
    )
    assert Counter((call.step, call.item) for call in mine) == started
    for call in mine:
        for need, value in call.got.items():
            possible = [ending.steps[need].output]
            if sketch[call.step].join == "any_success":
                possible.append(None)  # it need not have ended
            assert value in possible


@given(graphs.sketches())
def test_never_more_calls_at_once_than_allowed(sketch: Sketch) -> None:
    record = execute(sketch).record

    assert record.most[sketch.name, ""] <= sketch.max_parallel
    for node in sketch.nodes:
        if node.max_parallel is not None:
            assert record.most[sketch.name, node.id] <= node.max_parallel


@given(steered())
def test_no_promise_is_broken_whatever_commands_come_and_nothing_is_left_running(
    drawn: tuple[Sketch, Commands],
) -> None:
    sketch, commands = drawn
    execution = execute(sketch, commands)

    assert violations(execution.workflow, execution.batches) == []
    assert not execution.left
    known = {str(step) for step in execution.result.state.graph.ids}
    assert {call.step for call in execution.record.calls if call.workflow == sketch.name} <= known


@given(steered())
def test_replaying_gives_the_same_state_byte_for_byte(drawn: tuple[Sketch, Commands]) -> None:
    execution = execute(*drawn)

    graph = compile_graph(execution.workflow)
    events = [decode(encode(event)) for event in execution.events]
    assert replay(execution.result.run_id, graph, events).encoded() == execution.encoded


@given(graphs.sketches(most=6, threads=False), st.integers(0, 12))
def test_after_an_abort_nothing_runs_and_every_step_has_a_reason(sketch: Sketch, moment: int) -> None:
    execution = execute(sketch, [(moment, Abort(reason="enough"))])

    assert not execution.left
    assert all(call.ended is not None for call in execution.record.calls)
    for step in execution.result.steps.values():
        assert step.status in ("succeeded", "failed", "skipped")
        assert step.reason or step.status == "succeeded"
    if execution.result.status == "aborted":  # it may come too late
        assert execution.result.duration == moment / 2


async def _reads(handle: RunHandle) -> None:
    async for _ in handle.events():
        pass


async def _reads_slowly(handle: RunHandle) -> None:
    async for _ in handle.events():
        await asyncio.sleep(0.7)


async def _breaks(handle: RunHandle) -> None:
    async for event in handle.events():
        if event.seq > 2:  # type: ignore[union-attr]
            raise RuntimeError("not my day")


async def _is_cancelled(handle: RunHandle) -> None:
    readers = [asyncio.create_task(_reads(handle)) for _ in range(3)]
    await asyncio.sleep(0.3)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)


async def _observes_and_breaks(handle: RunHandle) -> None:
    def observer(event: Event) -> None:
        raise RuntimeError(f"cannot stand {event.seq}")

    handle.observe(observer)


async def _spins(_handle: RunHandle) -> None:
    for _ in range(200):
        await asyncio.sleep(0)


@settings(max_examples=30)
@given(graphs.sketches(threads=False), graphs.sketches(threads=False, most=2).flatmap(graphs.commands))
def test_the_same_events_at_the_same_times_whatever_subscribers_do(
    sketch: Sketch, commands: Commands
) -> None:
    unwatched = execute(sketch, commands).events

    for watch in (_reads, _reads_slowly, _breaks, _is_cancelled, _observes_and_breaks, _spins):
        assert execute(sketch, commands, watch).events == unwatched, watch.__name__


@settings(max_examples=30)
@given(st.lists(graphs.sketches(threads=False, most=5), min_size=2, max_size=3))
def test_interleaved_runs_write_what_each_would_write_alone(sketches: list[Sketch]) -> None:
    async def together() -> list[Execution]:
        async with Rig(extra) as rig:
            return await asyncio.gather(
                *(_drive(rig, sketch, id=f"run{n}") for n, sketch in enumerate(sketches))
            )

    async def alone(n: int) -> Execution:
        async with Rig(extra) as rig:
            return await _drive(rig, sketches[n], id=f"run{n}")

    for n, beside in enumerate(clock.run(together())):
        by_itself = clock.run(alone(n))
        assert beside.events == by_itself.events
        assert beside.encoded == by_itself.encoded
