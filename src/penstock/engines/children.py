"""What work may ask of its engine: a thread, or a child run, which its parent minds."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.engines.base import Result
from penstock.errors import Unfinished
from penstock.ids import child_id
from penstock.run import usage
from penstock.run.effects import StartTask
from penstock.run.events import Event, GateEscalated
from penstock.run.facts import ChildEscalated, TaskRaised
from penstock.run.state import Place, place
from penstock.steps.base import Billed, Ended, Prepared, TaskFailure
from penstock.tools.base import Task

if TYPE_CHECKING:
    from penstock.engines.drive import Drive
    from penstock.engines.stream import Gap

DEEPEST = 16
"""Runs within runs."""


class Parked(Exception):
    """A child run only waits for a person: its parent's task need not wait with it."""

    def __init__(self, child: Drive) -> None:
        super().__init__(child.id)
        self.child = child


class Stopped(asyncio.CancelledError):
    """A task was cancelled whose child run was stopped with it."""

    def __init__(self, child: Drive) -> None:
        super().__init__()
        self.bill = Billed(None, usage.used(child.run))


class Children:
    """The host of a run's tasks, and the family that comes of it."""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._parked: dict[Place, Drive] = {}
        """Children that wait for a person, by the task that they are."""
        self.resting: list[Callable[[], None]] = []
        """Called when the run may have come to rest, or goes on."""

    async def in_thread(self, call: Callable[[], Any]) -> Any:
        context = contextvars.copy_context()
        return await self._drive.loop.run_in_executor(self._drive.engine.threads, context.run, call)

    async def child(self, task: Task, flow: Prepared, inputs: dict[str, Any]) -> Ended:
        """Begin a child run, or find it, and wait for its end."""
        drive = self._drive
        if drive.id.count("/") >= DEEPEST:
            raise TaskFailure("child", f"runs are nested {DEEPEST} deep; does a workflow call itself?")
        of = partial(child_id, drive.id, task.step, iteration=task.iteration, item=task.item)
        id, attempt = of(attempt=task.attempt), task.attempt - 1
        allowance = usage.left(drive.run, drive.run.graph.index[task.step])
        child = await drive.engine.child(
            flow, inputs, run=id, parent=drive.id, allowance=allowance,
            before=of(attempt=attempt) if attempt else None,
        )  # fmt: skip
        if isinstance(child, Result):
            return child
        self._mind(child, task)
        try:
            return await self._end_of(child)
        except asyncio.CancelledError:
            child.commands.abort("the parent run stopped")
            await asyncio.wait([child.finished])
            raise Stopped(child) from None

    def abort(self, reason: str) -> None:
        """The run stops: children that wait are stopped as well. Others hear it from their tasks."""
        for child in list(self._parked.values()):
            child.commands.abort(f"the parent run stopped: {reason}" if reason else "the parent run stopped")

    def park(self, effect: StartTask, child: Drive) -> None:
        """Let a task rest until its child has ended; then it is done again, and finds how."""
        drive, at = self._drive, place(effect.step, effect.item)
        self._parked[at] = child

        def look() -> None:
            if self._parked.get(at) is child:
                resting = drive.run.resting
                (resting.add if child.run.status == "waiting" else resting.discard)(at)
                drive.record.note_rest()
                for heard in self.resting:
                    heard()

        def ended(finished: asyncio.Future[Result]) -> None:
            if self._parked.pop(at, None) is None or drive.finished.done():
                return
            drive.run.resting.discard(at)
            drive.record.note_rest()
            error = None if finished.cancelled() else finished.exception()
            if error is None:
                drive.tasks.start(effect, usage.used(child.run))
            elif not isinstance(error, Unfinished):
                said = drive.engine.clean(f"{type(error).__name__}: {error}")
                spot = (effect.iteration, effect.item, effect.attempt)
                spent = usage.used(child.run)
                drive.tell(TaskRaised(effect.step, said, "child", "", *spot, usage=spent))

        child.observe(lambda _event: look())
        child.children.resting.append(look)
        child.finished.add_done_callback(ended)
        look()

    def _mind(self, child: Drive, task: Task) -> None:
        """Tell the parent of a child's gates that call for a person."""
        parent = self._drive
        i = parent.run.graph.index[task.step]

        def tell(key: str, reason: str, *, unrecoverable: bool = False) -> None:
            parent.tell(ChildEscalated(i, key, reason, task.iteration, task.item, unrecoverable))

        def heard(event: Event | Gap) -> None:
            if isinstance(event, GateEscalated):
                key = event.child or f"{child.id}:{event.seq}"
                tell(key, event.reason, unrecoverable=event.unrecoverable)

        child.observe(heard)
        for asked in child.run.decisions.values():
            if asked.kind == "gate":  # the question comes right after the event that it follows from
                tell(f"{child.id}:{asked.seq - 1}", asked.summary)
        for key in sorted(child.run.copied):  # of its own children; what the root has heard it knows
            tell(key, "a gate below called for a person")

    async def _end_of(self, child: Drive) -> Result:
        """How a child ends; `Parked` as soon as it only waits for a person."""
        waits: asyncio.Future[None] = self._drive.loop.create_future()

        def look() -> None:
            if child.run.status == "waiting" and not waits.done():
                waits.set_result(None)

        child.observe(lambda _event: look())
        child.children.resting.append(look)
        look()
        both: tuple[asyncio.Future[Any], ...] = (child.finished, waits)
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if child.finished.done():
            return child.finished.result()
        raise Parked(child)
