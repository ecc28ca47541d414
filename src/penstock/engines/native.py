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
from penstock.errors import CommandRejected, Conflict, PenstockError
from penstock.ids import RunId, StepId
from penstock.policy.masking import mask
from penstock.run.commands import Command
from penstock.run.decide import decide
from penstock.run.effects import owed
from penstock.run.facts import RunReopened, RunRequested
from penstock.run.replay import fold, replay
from penstock.run.state import Run
from penstock.steps.base import Prepared
from penstock.store import owner
from penstock.store.base import Journal, NewRun, Store


class NativeEngine:
    """Runs workflows on the running event loop."""

    name = "native"

    def __init__(
        self, store: Store, *, wall: Callable[[], float] = time.time, mask: Callable[[str], str] = mask
    ) -> None:
        self.store = store
        self.wall = wall
        self.mask = mask
        """Takes out of messages, errors and traces what nobody should read there."""
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
        state = Run(run, graph, reducers=flow.reducers)
        batch = decide(state, RunRequested(inputs, self.name, parent, flow.durations), self.wall())
        new = NewRun(
            run=run, workflow=graph.workflow, hash=graph.hash, children=flow.children, parent=parent,
            source=flow.source,
        )  # fmt: skip
        drive = self._drive(flow, state, await self.store.create(new, batch))
        drive.begin(batch)
        return drive

    async def resume(self, flow: Prepared, run: RunId, *, reopened: Sequence[StepId] = ()) -> Drive:
        """Take up a run that nobody drives. What has finished is not done again, unless it is `reopened`."""
        journal = await self.store.reopen(run)
        try:
            kept = await newest(self.store.checkpoints, run, flow.graph, flow.reducers)
            state, places = kept or (Run(run, flow.graph, reducers=flow.reducers), {})
            events = await self.store.load(run, after=state.seq)
            fold(state, events)
            _check_open(state, reopened)
            drive = self._drive(flow, state, journal)
            drive.outputs.know(places)
            fact = RunReopened(f"taken up by {owner.me()}", reopened=tuple(reopened))
            await drive.take_up(events, fact)
        except BaseException:
            self.live.pop(run, None)
            journal.release()
            raise
        return drive

    async def fork(self, flow: Prepared, new: NewRun, state: Run, fact: RunReopened) -> Drive:
        """Begin a run with another's history, folded in `state`. The other run is not touched."""
        events = await self.store.load(new.fork_of or new.run)
        due = owed(state)
        batch = decide(state, fact, self.wall())
        drive = self._drive(flow, state, await self.store.create(new, batch))
        drive.outputs.recall(event for event in events if event.seq <= (new.fork_at or 0))
        await drive.branch_off(batch, due, fact)
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
        """Let go of every run that is still going.

        One that a store remembers is left for whoever resumes it; one that would be forgotten
        anyway is stopped.
        """
        drives = [drive for drive in self.live.values() if not drive.finished.done()]
        kept = [drive for drive in drives if drive.journal.lasting]
        for drive in drives:
            if not drive.journal.lasting:
                drive.abort(reason)
        await asyncio.gather(*(drive.leave(reason) for drive in kept))
        await asyncio.gather(*(drive.finished for drive in drives), return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown()


def _check_open(run: Run, reopened: Sequence[StepId]) -> None:
    if run.ended and not (reopened or run.stopping):
        raise PenstockError(f"run {run.id} has ended ({run.status})")
