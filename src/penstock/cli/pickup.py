"""Runs that nobody drives are taken up here, and driven until they end or wait for a person.

Knows nothing of terminals. A run that cannot be taken up is passed over until something
about it changes; one that another process takes first is that process's.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from msgspec import structs

from penstock.app import Penstock
from penstock.cli import stores, waiting
from penstock.engines.base import Result, result_of
from penstock.errors import Owned, PenstockError
from penstock.ids import RunId
from penstock.run.commands import Command
from penstock.store.base import RunRecord

LOOKS: Final = 0.5
"""Seconds between looks for runs that nobody drives."""

DRAIN: Final = 20.0
"""Seconds that tasks under way have to finish when the work is to stop."""

UNFINISHED: Final = ("pending", "running", "paused")
"""How a run may stand that somebody should drive. One that waits for a decision holds no worker."""

STOPPING: Final = "the process that drove it was stopped"


async def until_left(penstock: Penstock, run: RunId, *, paused: bool = False) -> Result:
    """Wait until the run has ended, or let go of it when only a decision helps.

    With `paused`, also let go of it when a pause has come to rest.
    """
    drive = penstock.engine.live.get(run)
    if drive is None:
        return result_of(await penstock.at(run))
    stuck = asyncio.ensure_future(waiting.until_stuck(penstock, run, paused=paused))
    either: list[asyncio.Future[Any]] = [drive.finished, stuck]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if drive.finished.done():
            return drive.finished.result()
        await waiting.settled(penstock, run)
        result = result_of(drive.state)
        await waiting.let_go(penstock, run)
        return structs.replace(result, status="waiting") if result.status == "running" else result
    finally:
        stuck.cancel()


async def deliver(penstock: Penstock, found: RunRecord, command: Command) -> str:
    """Take up a run that is at rest, hand it a command, and drive it until it is at rest again.

    Returns how it stands then.
    """
    root = found.run.partition("/")[0]
    handle = await penstock.resume(root)
    live = penstock.engine.live
    await waiting.until(lambda: found.run in live or handle.state.ended, glance=0.005)
    try:
        await penstock.send(found.run, command)
    except PenstockError:
        await waiting.let_go(penstock, handle.id)
        raise
    return (await until_left(penstock, handle.id, paused=True)).status


class Left(NamedTuple):
    """A run that is no longer driven here."""

    record: RunRecord
    result: Result
    """Its status is `waiting` when only a decision helps."""


class PickUp:
    def __init__(
        self,
        penstock: Penstock,
        *,
        most: int,
        taken: Callable[[RunRecord], None],
        left: Callable[[Left], None],
        refused: Callable[[RunRecord, Exception], None],
    ) -> None:
        self._penstock = penstock
        self._most = most
        self._taken = taken
        self._left = left
        self._refused = refused
        self._driving: dict[RunId, asyncio.Task[None]] = {}
        self._passed_over: dict[RunId, int] = {}
        """How many events a run had when it could not be driven any further."""
        self._deadlines: dict[RunId, tuple[int, float]] = {}
        """Of runs that wait: how many events they had, and when their first question answers itself."""
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Take up nothing more; let go of what is driven as soon as its tasks have finished."""
        self._stop.set()

    async def work(self, *, once: bool) -> None:
        """Take runs up until told to stop, or with `once` until there is none left."""
        async with asyncio.TaskGroup() as group:
            while not self._stop.is_set():
                await self._look(group)
                if once and not self._driving:
                    break
                await self._rest()
            await self._drain()
            for task in self._driving.values():
                task.cancel()
        await waiting.let_go(self._penstock)

    async def _rest(self) -> None:
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait(
                [stopped, *self._driving.values()], timeout=LOOKS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stopped.cancel()

    async def _look(self, group: asyncio.TaskGroup) -> None:
        for status in UNFINISHED:
            for record in await stores.listed(self._penstock, status=status):
                if len(self._driving) >= self._most or self._stop.is_set():
                    return
                if await self._wanted(record):
                    self._driving[record.run] = group.create_task(self._drive(record), name=record.run)
        await self._look_for_late(group)

    async def _look_for_late(self, group: asyncio.TaskGroup) -> None:
        """Runs with a question whose time is up: they go on by themselves once somebody drives them."""
        now = self._penstock.engine.wall()
        for record in await stores.listed(self._penstock, children=True, status="waiting"):
            if record.owner or await self._deadline(record) > now:
                continue
            root = await stores.find(self._penstock, record.run.partition("/")[0])
            if root.owner or root.run in self._driving or root.status in stores.FINAL:
                continue
            if len(self._driving) >= self._most or self._stop.is_set():
                return
            self._driving[root.run] = group.create_task(self._drive(root), name=root.run)

    async def _deadline(self, record: RunRecord) -> float:
        """When the first question of a waiting run answers itself. Looked up once for each wait."""
        events, at = self._deadlines.get(record.run, (0, math.inf))
        if events != record.events:
            asked = (await self._penstock.at(record.run)).decisions.values()
            at = min((one.deadline for one in asked if one.deadline is not None), default=math.inf)
            self._deadlines[record.run] = (record.events, at)
        return at

    async def _wanted(self, record: RunRecord) -> bool:
        if record.owner or record.run in self._driving:
            return False
        if self._passed_over.get(record.run) == record.events:
            return False
        if record.status == "paused" and "command" in (await self._penstock.at(record.run)).pauses:
            self._passed_over[record.run] = record.events
            return False
        return True

    async def _drive(self, record: RunRecord) -> None:
        try:
            handle = await self._penstock.resume(record.run)
        except Owned:
            self._driving.pop(record.run)
            return  # another process was quicker
        except PenstockError as error:
            self._driving.pop(record.run)
            self._passed_over[record.run] = record.events
            self._refused(record, error)
            return
        self._taken(record)
        result: Result | None = None
        try:
            result = await until_left(self._penstock, handle.id)
            if result.status == "waiting":
                self._passed_over[record.run] = result.state.seq
        except Exception as error:  # noqa: BLE001 - one broken run must not stop the others
            self._passed_over[record.run] = record.events
            self._refused(record, error)
        finally:
            self._driving.pop(record.run)
        if result is not None:
            self._left(Left(record, result))

    async def _drain(self) -> None:
        """Let what runs finish, and start nothing new."""
        live = self._penstock.engine.live
        for drive in list(live.values()):
            drive.wind_down(STOPPING)
        try:
            async with asyncio.timeout(DRAIN):
                await waiting.until(
                    lambda: all(waiting.at_rest(self._penstock, run) for run in self._driving if run in live)
                )
                for run in list(self._driving):
                    await waiting.settled(self._penstock, run)
        except TimeoutError:
            return
