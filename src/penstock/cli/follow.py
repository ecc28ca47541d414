"""One run, from its start to its end: events go out to outlets, signals come in as commands."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NoReturn

from penstock.app import Penstock, RunHandle
from penstock.cli import exits
from penstock.cli.outlets import Outlet
from penstock.cli.signals import Interrupts
from penstock.engines.base import Result
from penstock.engines.stream import Gap
from penstock.errors import PenstockError
from penstock.run.commands import Abort
from penstock.run.events import Event
from penstock.run.state import Run
from penstock.workflow.read import Source

PATIENCE = 0.5
"""Seconds that tasks and threads left over have to end by themselves before the process leaves them."""

Open = Callable[[RunHandle], Sequence[Outlet]]
"""Makes the outlets of a run, once it has an id."""


class Ended:
    """How it ended, as far as the shell and the person are concerned."""

    def __init__(self, result: Result, code: int) -> None:
        self.result = result
        self.summary = summary_of(result)
        self.code = code


async def follow(
    penstock: Penstock, source: Source, inputs: Mapping[str, Any], *, open: Open, interrupts: Interrupts
) -> Ended:
    """Run a workflow to its end, every event to every outlet."""
    outlets: Sequence[Outlet] = ()
    ended: Ended | None = None
    try:
        run = await penstock.start_with(source, inputs)
        outlets = open(run)
        stopper = _Stopper(run, interrupts)
        async for event in every_event(penstock, run):
            for outlet in outlets:
                outlet.put(event)
        await stopper.sent()
        result = await run.result()
        ended = Ended(result, _code(result, interrupts))
    finally:
        interrupts.nothing_to_stop()
        for outlet in outlets:
            outlet.close(ended.summary if ended else None)
    for outlet in outlets:
        if outlet.error is not None:
            exits.say(f"{outlet.name}: {outlet.error}")
            if outlet.vital and ended.code == exits.OK:
                ended.code = exits.FAILED
    await penstock.close()
    return ended


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

    async def _abort(self) -> None:
        with contextlib.suppress(PenstockError):  # refused: the run is over already
            await self._run.send(Abort(reason=self._interrupts.reason, by="signal"))

    async def sent(self) -> None:
        """Wait for the answer, where a command was sent; a run that has ended may owe it for ever."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])


async def every_event(penstock: Penstock, run: RunHandle) -> AsyncIterator[Event]:
    """The events of a run, none left out: what the stream no longer has is read from the store."""
    async for event in run.events():
        if isinstance(event, Gap):
            for missed in (await penstock.store.load(run.id, after=event.after))[: event.missed]:
                yield missed
        else:
            yield event


def summary_of(result: Result) -> dict[str, Any]:
    """The line that ends `--json`."""
    return {
        "run_id": result.run_id,
        "status": result.status,
        "outputs": result.outputs,
        "steps": {
            id: {"status": s.status, "attempts": s.attempts, "iterations": s.iterations, "reason": s.reason}
            for id, s in result.steps.items()
        },
        "pending": [
            {"id": asked.decision, "kind": asked.kind, "step": asked.step, "summary": asked.summary}
            for asked in result.state.decisions.values()
        ],
        "duration_ms": round(result.duration * 1000, 3),
    }


def _code(result: Result, interrupts: Interrupts) -> int:
    if result.status == "aborted" and interrupts.code is not None:
        return interrupts.code
    state: Run = result.state
    over_budget = any(asked.kind == "budget" for asked in state.decisions.values())
    return exits.of_run(result.status, timed_out=state.stopping == "timeout", over_budget=over_budget)


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
