"""Runs that nobody drives are taken up here, and driven until they end or wait for a person.

Knows nothing of terminals or of HTTP. A run that cannot be taken up is passed over until
something about it changes; one that another process takes first is that process's.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from msgspec import structs

from penstock.engines import waiting
from penstock.engines.base import Handle, Result, Runs, result_of
from penstock.errors import CommandRejected, Owned, PenstockError, Unfinished
from penstock.ids import FOLLOWS, CommandId, RunId
from penstock.run.accept import refusal
from penstock.run.commands import Command
from penstock.store.base import RunRecord
from penstock.store.listing import EVERY, FINAL, found, root_of

LOOKS: Final = 0.5
"""Seconds between looks for runs that nobody drives."""

DRAIN: Final = 20.0
"""Seconds that tasks under way have to finish when the work is to stop."""

HEARING: Final = 10.0
"""Seconds that a run has to answer a command."""

UNFINISHED: Final = ("pending", "running", "paused")
"""How a run may stand that somebody should drive. One that waits for a decision holds no worker."""

STOPPING: Final = "the process that drove it was stopped"


async def until_left(runs: Runs, run: RunId, *, paused: bool = False) -> Result:
    """Wait until the run has ended, or let go of it when only a decision helps.

    With `paused`, also let go of it when a pause has come to rest.
    """
    engine = runs.engine
    drive = engine.live.get(run)
    if drive is None:
        return result_of(await runs.at(run))
    while True:
        stuck = asyncio.ensure_future(waiting.until_stuck(engine, run, paused=paused))
        either: list[asyncio.Future[Any]] = [drive.finished, stuck]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not drive.finished.done():
                await waiting.settled(engine, run)
        finally:
            stuck.cancel()
        if drive.finished.done():
            return drive.finished.result()
        if waiting.stuck(engine, run) or (paused and waiting.at_rest(engine, run)):
            break  # still: nobody has answered meanwhile
    result = result_of(drive.state)
    await waiting.let_go(engine, run)
    return structs.replace(result, status="waiting") if result.status == "running" else result


async def until_driven(runs: Runs, root: Handle, run: RunId) -> None:
    """Return when a run is driven here: a child is taken up by its parent, in its own time."""
    live = runs.engine.live
    await waiting.until(lambda: run in live or root.id not in live, glance=0.005)


class Left(NamedTuple):
    """A run that is no longer driven here."""

    record: RunRecord
    result: Result
    """Its status is `waiting` when only a decision helps."""


class PickUp:
    def __init__(
        self,
        runs: Runs,
        *,
        most: int,
        taken: Callable[[RunRecord], None] = lambda _record: None,
        left: Callable[[Left], None] = lambda _left: None,
        refused: Callable[[RunRecord, Exception], None] = lambda _record, _error: None,
    ) -> None:
        self._runs = runs
        self._most = most
        self._taken = taken
        self._left = left
        self._refused = refused
        self._group: asyncio.TaskGroup | None = None
        self._driving: dict[RunId, asyncio.Task[None]] = {}
        self._turns: WeakValueDictionary[RunId, asyncio.Lock] = WeakValueDictionary()
        """However many want a run to go on, it is taken up once."""
        self._passed_over: dict[RunId, int] = {}
        """How many events a run had when it could not be driven any further."""
        self._deadlines: dict[RunId, tuple[int, float]] = {}
        """Of runs that wait: how many events they had, and when their first question answers itself."""
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Take up nothing more; let go of what is driven as soon as its tasks have finished."""
        self._stop.set()

    async def work(self, *, once: bool = False, looks: bool = True) -> None:
        """Take runs up until told to stop, or with `once` until there is none left.

        Without `looks` only those that somebody starts or steers here.
        """
        async with asyncio.TaskGroup() as group:
            self._group = group
            while not self._stop.is_set():
                if looks:
                    await self._look()
                if once and not self._driving:
                    break
                await self._rest()
            await self._drain()
            for task in self._driving.values():
                task.cancel()
        await waiting.let_go(self._runs.engine)

    # --- what somebody wants ---

    async def drive(self, handle: Handle) -> None:
        """Drive a run that was started here until it ends or waits."""
        self._keep(await found(self._runs.store, handle.id))

    async def send(self, run: str, command: Command) -> None:
        """Hand a command to a run, whoever drives it; one that nobody drives is taken up for it.

        Raises `CommandRejected` when it is refused. The same id twice is one command, and has one answer.
        """
        id = RunId(run)
        if not command.id:
            command = structs.replace(command, id=CommandId(f"{id}!{secrets.token_hex(8)}"))
        try:
            async with asyncio.timeout(HEARING):
                while not await self._handed_over(id, command):
                    pass
        except TimeoutError:
            raise Unfinished(id, f"it did not answer within {HEARING:g} s") from None

    async def _handed_over(self, run: RunId, command: Command) -> bool:
        """Try once. False: whoever drives the run has changed meanwhile."""
        drive = self._runs.engine.live.get(run)
        if drive is not None:
            try:
                await drive.send(command)
            except Unfinished:
                return False
            return True
        store = self._runs.store
        record = await found(store, run)
        root = await root_of(store, record)
        if record.status in FINAL or root.status in FINAL:
            await self._answer_again(record, command)
            return True
        if root.owner and root.run not in self._runs.engine.live:
            await store.mail.post(run, command)
            return await self._heard(run, command)
        if self._stop.is_set():
            raise Unfinished(run, STOPPING)
        state = await self._runs.at(run)
        if command.id not in state.commands and (wrong := refusal(state, command)):
            raise CommandRejected(wrong)  # it need not even be taken up
        await self._take_up(root, run)
        return False

    async def _answer_again(self, record: RunRecord, command: Command) -> None:
        """A run that has ended takes no more commands, but still knows those that it took."""
        known = (await self._runs.at(record.run)).commands
        reason = known.get(command.id, f"the run has ended ({record.status})")
        if reason:
            raise CommandRejected(reason)

    async def _heard(self, run: RunId, command: Command) -> bool:
        """Wait a moment for the answer of another process."""
        for _ in range(20):
            answer = await self._runs.store.mail.answer(run, command.id)
            if answer:
                raise CommandRejected(answer)
            if answer is not None:
                return True
            await asyncio.sleep(0.02)
        return False

    async def _take_up(self, root: RunRecord, run: RunId) -> None:
        turn = self._turns.setdefault(root.run, asyncio.Lock())
        async with turn:
            if run in self._runs.engine.live:
                return
            if root.run in self._runs.engine.live:
                await asyncio.sleep(0.005)  # its parent takes it up, or has just let go of it
                return
            try:
                handle = await self._runs.resume(root.run)
            except Owned:
                return  # another process was quicker: the command goes to that one
            self._taken(root)
            self._keep(root)
            await until_driven(self._runs, handle, run)

    def _keep(self, record: RunRecord) -> None:
        """See to it that a run that is driven here is let go of when it only waits."""
        if self._group is not None and record.run not in self._driving:
            task = self._group.create_task(self._until_left(record), name=record.run)
            self._driving[record.run] = task

    # --- what nobody drives ---

    async def _rest(self) -> None:
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait(
                [stopped, *self._driving.values()], timeout=LOOKS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stopped.cancel()

    async def _look(self) -> None:
        for status in UNFINISHED:
            for record in await self._runs.store.runs(status=status, parent=None, limit=EVERY):
                if self._full:
                    return
                if await self._wanted(record):
                    self._begin(record)
        await self._look_for_late()

    @property
    def _full(self) -> bool:
        return len(self._driving) >= self._most or self._stop.is_set()

    def _begin(self, record: RunRecord) -> None:
        assert self._group is not None  # noqa: S101 - `work` looks
        self._driving[record.run] = self._group.create_task(self._drive(record), name=record.run)

    async def _look_for_late(self) -> None:
        """Runs with a question whose time is up: they go on by themselves once somebody drives them."""
        now = self._runs.engine.wall()
        for record in await self._runs.store.runs(status="waiting", limit=EVERY):
            if record.owner or await self._deadline(record) > now:
                continue
            root = await root_of(self._runs.store, record)
            if root.owner or root.run in self._driving or root.status in FINAL:
                continue
            if self._full:
                return
            self._begin(root)

    async def _deadline(self, record: RunRecord) -> float:
        """When the first question of a waiting run answers itself. Looked up once for each wait."""
        events, at = self._deadlines.get(record.run, (0, math.inf))
        if events != record.events:
            asked = (await self._runs.at(record.run)).decisions.values()
            at = min((one.deadline for one in asked if one.deadline is not None), default=math.inf)
            self._deadlines[record.run] = (record.events, at)
        return at

    async def _wanted(self, record: RunRecord) -> bool:
        if record.owner or record.run in self._driving:
            return False
        if self._passed_over.get(record.run) == record.events:
            return False
        if record.status == "paused" and "command" in (await self._runs.at(record.run)).pauses:
            self._passed_over[record.run] = record.events
            return False
        return True

    async def _drive(self, record: RunRecord) -> None:
        turn = self._turns.setdefault(record.run, asyncio.Lock())
        try:
            async with turn:
                if record.run not in self._runs.engine.live:
                    await self._runs.resume(record.run)
        except Owned:
            self._driving.pop(record.run)
            return  # another process was quicker
        except PenstockError as error:
            self._driving.pop(record.run)
            self._passed_over[record.run] = record.events
            self._refused(record, error)
            return
        self._taken(record)
        await self._until_left(record)

    async def _until_left(self, record: RunRecord) -> None:
        result: Result | None = None
        try:
            result = await until_left(self._runs, record.run)
            if result.status == "waiting":
                self._passed_over[record.run] = result.state.seq
            while follower := self._follower(record.run):
                await until_left(self._runs, follower)
        except Exception as error:  # noqa: BLE001 - one broken run must not stop the others
            # With what taking it up added: it must not look as if something had changed since.
            self._passed_over[record.run] = (await found(self._runs.store, record.run)).events
            self._refused(record, error)
        finally:
            self._driving.pop(record.run, None)
        if result is not None:
            self._left(Left(record, result))
        if record.run in self._runs.engine.live and not self._stop.is_set():
            self._keep(record)  # somebody has steered it in the very moment when it was let go of

    def _follower(self, run: RunId) -> RunId | None:
        """A run that began here because this one has ended."""
        begins = f"{run}{FOLLOWS}"
        live = self._runs.engine.live
        return next((id for id in live if id.startswith(begins) and "/" not in id), None)

    async def _drain(self) -> None:
        """Let what runs finish, and start nothing new."""
        engine = self._runs.engine
        for drive in list(engine.live.values()):
            drive.wind_down(STOPPING)
        try:
            async with asyncio.timeout(DRAIN):
                await waiting.until(
                    lambda: all(waiting.at_rest(engine, run) for run in self._driving if run in engine.live)
                )
                for run in list(self._driving):
                    await waiting.settled(engine, run)
        except TimeoutError:
            return
