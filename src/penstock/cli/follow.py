"""One run, from its start to its end: events go out to outlets, signals come in as commands."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

from msgspec import structs

from penstock.app import Penstock, RunHandle
from penstock.cli import exits
from penstock.cli.signals import Interrupts
from penstock.engines import waiting
from penstock.engines.base import Result, result_of
from penstock.engines.plain import summary_of
from penstock.engines.stream import Gap
from penstock.errors import PenstockError
from penstock.ids import FOLLOWS
from penstock.run.commands import Abort
from penstock.run.events import DecisionRequired, Event, WorkflowPaused
from penstock.run.state import Run

PATIENCE = 0.5
"""Seconds that tasks and threads left over have to end by themselves before the process leaves them."""


class Begun(NamedTuple):
    """A run that is driven here from now on."""

    run: RunHandle
    after: int = 0
    """Up to this event it happened elsewhere, and is not told again."""
    rests: bool = False
    """Whether to let go of it when a pause has come to rest."""


Begin = Callable[[], Awaitable[Begun]]


class Audience(Protocol):
    """Whoever hears of the run."""

    async def open(self, begun: Begun) -> None: ...

    def put(self, event: Event) -> None: ...

    def stalled(self, pause: WorkflowPaused) -> None:
        """The store cannot be written: no event is told before it can, not even this one."""
        ...

    def wants(self, asked: Sequence[DecisionRequired]) -> bool:
        """Whether there is somebody to put one of these to, now."""
        ...

    async def answer(self, run: RunHandle, asked: Sequence[DecisionRequired]) -> bool:
        """Decide, if there is somebody who can. False: nobody does."""
        ...

    def say(self, text: str) -> None:
        """Something to know that is not an event of the run."""
        ...

    def close(self, summary: dict[str, Any] | None) -> bool:
        """The run is over, or has been let go of. False: what was asked for could not be written."""
        ...


class Ended:
    """How it ended, as far as the shell and the person are concerned."""

    def __init__(self, result: Result, code: int, asked: Sequence[DecisionRequired] = ()) -> None:
        self.result = result
        self.asked = asked
        self.summary = summary_of(result, asked)
        self.code = code


async def follow(penstock: Penstock, begin: Begin, audience: Audience, interrupts: Interrupts) -> Ended:
    """Drive a run until it ends, or can only go on when somebody decides; every event is told."""
    ended: Ended | None = None
    begun: Begun | None = None
    try:
        begun = await begin()
        await audience.open(begun)
        ended = await _drive(penstock, begun, audience, interrupts)
    finally:
        if ended is None or ended.result.followed_by is None:
            interrupts.nothing_to_stop()
        written = begun is None or audience.close(ended.summary if ended else None)
        if ended is None:
            await waiting.let_go(penstock.engine)
            await penstock.close()
    if not written and ended.code == exits.OK:
        ended.code = exits.FAILED
    await _see_off(penstock, ended.result, audience, interrupts)
    await penstock.close()
    return ended


async def _drive(penstock: Penstock, begun: Begun, audience: Audience, interrupts: Interrupts) -> Ended:
    run, after = begun.run, begun.after
    stopper = _Stopper(run, interrupts)
    while True:
        after, over = await _tell(penstock, begun, after, audience)
        if over:
            await stopper.sent()
            result = await run.result()
            return Ended(result, code_of(result, interrupts))
        asked = waiting.decisions(penstock.engine, run.id)
        if not await audience.answer(run, asked) and _still(penstock, begun):
            break
    result = result_of(run.state)
    if asked and result.status == "running":  # it is a child run that waits
        result = structs.replace(result, status="waiting")
    await waiting.let_go(penstock.engine, run.id)
    return Ended(result, code_of(result, interrupts, asked), asked)


async def _see_off(penstock: Penstock, result: Result, audience: Audience, interrupts: Interrupts) -> None:
    """What the workflow says comes after it is driven here, too, until it ends or somebody must decide."""
    after, live = result.followed_by, penstock.engine.live
    while after is not None:
        audience.say(f"followed by run {after}")
        drive = live.get(after)
        if drive is not None:
            stopper = _Stopper(RunHandle(drive, penstock), interrupts)
            await waiting.until(lambda: drive.finished.done() or waiting.stuck(penstock.engine, drive.id))  # noqa: B023 - done before it changes
            await stopper.sent()
            interrupts.nothing_to_stop()
            await waiting.let_go(penstock.engine, after)
        record = (await penstock.store.runs(run=after))[0]
        audience.say(f"run {after}: {record.status}" + (f", {record.reason}" if record.reason else ""))
        after = next((id for id in live if id.startswith(f"{after}{FOLLOWS}") and "/" not in id), None)


def _still(penstock: Penstock, begun: Begun) -> bool:
    """Whether nothing will happen until somebody decides, or lifts a pause."""
    run = begun.run.id
    return waiting.stuck(penstock.engine, run) or (begun.rests and waiting.at_rest(penstock.engine, run))


async def _tell(penstock: Penstock, begun: Begun, after: int, audience: Audience) -> tuple[int, bool]:
    """Tell every event past `after`. Returns the last one, and whether the run is over."""
    run, seen = begun.run, after

    async def tell() -> None:
        nonlocal seen
        async for event in every_event(penstock, run, after):
            audience.put(event)
            seen = event.seq
        waits.cancel()
        minds.cancel()

    async def wait() -> None:
        while True:
            await waiting.until_stuck(penstock.engine, run.id, paused=begun.rests, wants=audience.wants)
            last = run.state.seq
            if waiting.asks(penstock.engine, run.id, audience.wants):
                await waiting.until(lambda: seen >= last, glance=0.005)  # noqa: B023 - done before it changes
                break
            await waiting.settled(penstock.engine, run.id)
            await waiting.until(lambda: seen >= run.state.seq, glance=0.005)
            if waiting.stuck(penstock.engine, run.id) or begun.rests:
                break
        tells.cancel()
        minds.cancel()

    async def mind() -> None:
        while True:
            await waiting.until(lambda: stalled(run))
            state = run.state
            audience.stalled(WorkflowPaused(state.seq, state.at, state.reason, "storage"))
            await waiting.until(lambda: not stalled(run))

    try:
        async with asyncio.TaskGroup() as group:
            tells = group.create_task(tell(), name="penstock-tell")
            waits = group.create_task(wait(), name="penstock-wait")
            minds = group.create_task(mind(), name="penstock-mind")
    except* Exception as errors:  # noqa: BLE001 - only taken out of its group
        raise errors.exceptions[0] from None
    return seen, not tells.cancelled()


def stalled(run: RunHandle) -> bool:
    """Whether the run waits for its store."""
    return "storage" in run.state.pauses


class _Stopper:
    """Turns a signal into a command."""

    def __init__(self, run: RunHandle, interrupts: Interrupts) -> None:
        self._run = run
        self._interrupts = interrupts
        self._loop = asyncio.get_running_loop()
        self._sending: asyncio.Task[None] | None = None
        interrupts.stop = self._stop
        if interrupts.code is not None:  # before there was anything to stop
            self._send()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._send)

    def _send(self) -> None:
        if self._sending is None:
            self._sending = self._loop.create_task(self._abort())
            if stalled(self._run):
                exits.say(
                    "the run stops when the store can be written again; the same signal a second time "
                    "leaves at once, and the run can be resumed from what was written"
                )

    async def _abort(self) -> None:
        with contextlib.suppress(PenstockError):  # refused: the run is over already
            await self._run.send(Abort(reason=self._interrupts.reason, by="signal"))

    async def sent(self) -> None:
        """Wait for the answer, where a command was sent; a run that has ended may owe it for ever."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])


async def every_event(penstock: Penstock, run: RunHandle, after: int = 0) -> AsyncIterator[Event]:
    """The events of a run, none left out: what the stream no longer has is read from the store."""
    async for event in run.events(after=after):
        if isinstance(event, Gap):
            for missed in (await penstock.store.load(run.id, after=event.after))[: event.missed]:
                yield missed
        else:
            yield event


def code_of(result: Result, interrupts: Interrupts, asked: Sequence[DecisionRequired] = ()) -> int:
    """How the process leaves. A budget is only what it waits for when nothing else is asked."""
    if result.status == "aborted" and interrupts.code is not None:
        return interrupts.code
    state: Run = result.state
    budget = result.status == "waiting" and bool(asked) and all(one.kind == "budget" for one in asked)
    timed_out = state.stopping == "timeout"
    return exits.of_run(
        result.status, timed_out=timed_out, over_budget=budget, unavailable=result.unavailable
    )


def leave(code: int, loop: asyncio.AbstractEventLoop) -> NoReturn:
    """End the process now: by the usual way when nothing is left running, at once when something is."""
    exits.flush()
    if _tasks_left(loop) or _threads_left():
        os._exit(code)
    loop.close()
    raise SystemExit(code)


def _tasks_left(loop: asyncio.AbstractEventLoop) -> bool:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=PATIENCE))
    return any(not task.done() for task in left)


def _threads_left() -> bool:
    """Whether a thread is still at work that would hold up the exit: a step that cannot be cancelled."""
    until = time.monotonic() + PATIENCE
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                return True
    return False
