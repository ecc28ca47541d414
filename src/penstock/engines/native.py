"""The native engine: effects carried out on asyncio, in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.engines.base import Result, result_of
from penstock.engines.checkpoints import newest
from penstock.engines.drive import Drive
from penstock.engines.threads import Threads
from penstock.errors import CommandRejected, Conflict
from penstock.ids import RunId, StepId
from penstock.run.commands import Command
from penstock.run.facts import RunReopened, RunRequested
from penstock.run.replay import fold, replay
from penstock.run.state import Run
from penstock.steps.base import Prepared
from penstock.store import owner
from penstock.store.base import Journal, NewRun, Store


class NativeEngine:
    """Runs workflows on the running event loop."""

    name = "native"

    def __init__(self, store: Store, *, wall: Callable[[], float] = time.time) -> None:
        self.store = store
        self.wall = wall
        self.live: dict[RunId, Drive] = {}
        self._threads: Threads | None = None
        self._delivering = False
        self._errands: set[asyncio.Task[None]] = set()
        self.abandoned = 0
        """Tasks that did not end when cancelled. A thread among them cannot be stopped at all."""

    async def start(
        self,
        flow: Prepared,
        inputs: Mapping[str, Any],
        *,
        run: RunId,
        parent: RunId | None = None,
    ) -> Drive:
        """Begin a run. It goes on by itself."""
        graph = flow.graph
        new = NewRun(run=run, workflow=graph.workflow, hash=graph.hash, parent=parent, source=flow.source)
        journal = await self.store.create(new)
        drive = self._drive(flow, Run(run, graph, reducers=flow.reducers), journal)
        drive.begin(RunRequested(inputs, self.name, parent, flow.durations))
        return drive

    async def resume(self, flow: Prepared, run: RunId, *, reopened: Sequence[StepId] = ()) -> Drive:
        """Take up a run that nobody drives. What has finished is not done again, unless it is `reopened`."""
        journal = await self.store.reopen(run)
        fact = RunReopened(f"taken up by {owner.me()}", reopened=tuple(reopened))
        return await self._take_up(flow, run, journal, fact)

    async def fork(self, flow: Prepared, new: NewRun, fact: RunReopened) -> Drive:
        """Begin a run with another's history up to an event. The other run is not touched."""
        return await self._take_up(flow, new.run, await self.store.create(new), fact)

    async def _take_up(self, flow: Prepared, run: RunId, journal: Journal, fact: RunReopened) -> Drive:
        try:
            kept = await newest(self.store.checkpoints, run, flow.graph, flow.reducers)
            folded, places = kept or (Run(run, flow.graph, reducers=flow.reducers), {})
            events = await self.store.load(run, after=folded.seq)
            drive = self._drive(flow, fold(folded, events), journal)
            drive.outputs.know(places)
            await drive.take_up(events, fact)
        except BaseException:
            self.live.pop(run, None)
            journal.release()
            raise
        return drive

    async def child(
        self, flow: Prepared, inputs: Mapping[str, Any], *, run: RunId, parent: RunId
    ) -> Drive | Result:
        """Begin a child run, or find the one that a crashed parent had begun."""
        try:
            return await self.start(flow, inputs, run=run, parent=parent)
        except Conflict:
            events = await self.store.load(run)
            folded = replay(run, flow.graph, events, reducers=flow.reducers)
            if folded.ended:
                return result_of(folded)
            return await self.resume(flow, run)

    def _drive(self, flow: Prepared, run: Run, journal: Journal) -> Drive:
        drive = self.live[run.id] = Drive(self, flow, run, journal)
        if not self._delivering:
            self._delivering = True
            self.store.mail.deliver(self._deliver)
        return drive

    def _deliver(self, run: RunId, command: Command) -> None:
        """A command from another process."""
        drive = self.live.get(run)
        if drive is not None:
            task = asyncio.get_running_loop().create_task(self._obey(drive, command))
            self._errands.add(task)
            task.add_done_callback(self._errands.discard)

    async def _obey(self, drive: Drive, command: Command) -> None:
        reason = ""
        try:
            await drive.send(command)
        except CommandRejected as error:
            reason = error.reason
        self.store.mail.answered(drive.id, command.id, reason)

    @property
    def threads(self) -> Threads:
        if self._threads is None:
            self._threads = Threads()
        return self._threads

    async def close(self, reason: str = "penstock was closed") -> None:
        """Stop every run that is still going, and wait until it has."""
        drives = list(self.live.values())
        for drive in drives:
            if not drive.finished.done():
                drive.abort(reason)
        await asyncio.gather(*(drive.finished for drive in drives), return_exceptions=True)
