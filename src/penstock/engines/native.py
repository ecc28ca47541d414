"""The native engine: effects carried out on asyncio, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from penstock.engines.ahead import Ahead
from penstock.engines.attempts import failed_before
from penstock.engines.base import Decider, Planner, Result, TieBreaker, result_of
from penstock.engines.checkpoints import newest
from penstock.engines.drive import Drive
from penstock.engines.growth import Lately
from penstock.engines.taking_up import begin, begin_ahead, branch_off, take_up
from penstock.engines.tasks import GRACE
from penstock.engines.threads import Threads
from penstock.errors import CommandRejected, Conflict, PenstockError, Unfinished
from penstock.ids import FOLLOWS, RunId, StepId
from penstock.policy.masking import mask
from penstock.run.commands import Command
from penstock.run.decide import decide
from penstock.run.effects import owed
from penstock.run.events import Event
from penstock.run.facts import RunReopened, RunRequested
from penstock.run.replay import fold, replay
from penstock.run.state import Run
from penstock.steps.base import Prepared
from penstock.store import owner
from penstock.store.base import Journal, NewRun, Store
from penstock.workflow.inputs import check_inputs


class NativeEngine:
    """Runs workflows on the running event loop."""

    name = "native"

    def __init__(
        self,
        store: Store,
        *,
        wall: Callable[[], float] = time.time,
        mask: Callable[[str], str] = mask,
        tie_breaker: TieBreaker | None = None,
        planner: Planner | None = None,
        decider: Decider | None = None,
        summarise: Callable[..., str] | None = None,
    ) -> None:
        self.store = store
        self.wall = wall
        self.mask = mask
        """Takes out of messages, errors and traces what nobody should read there."""
        self.tie_breaker = tie_breaker
        self.planner = planner
        self.decider = decider
        self.summarise = summarise
        self.live: dict[RunId, Drive] = {}
        self.size = Lately()
        """Bytes of this process, about now."""
        self._threads: Threads | None = None
        self._delivering = False
        self._errands: set[asyncio.Task[None]] = set()
        self.abandoned = 0
        """Tasks that did not end when cancelled. A thread among them cannot be stopped at all."""

    async def start(self, flow: Prepared, inputs: Mapping[str, Any], *, run: RunId) -> Drive:
        """Begin a run that nobody else can have begun. It goes on by itself.

        What only reads is under way while the store is told of the run.
        """
        return await self._begin(flow, inputs, run, ahead=self.store.lasting)

    async def _begin(
        self,
        flow: Prepared,
        inputs: Mapping[str, Any],
        run: RunId,
        parent: RunId | None = None,
        allowance: Mapping[str, float] | None = None,
        *,
        ahead: bool = False,
    ) -> Drive:
        graph = flow.graph
        state = Run(run, graph, reducers=flow.reducers)
        request = RunRequested(inputs, self.name, parent, flow.durations, allowance or {})
        batch = decide(state, request, self.wall())
        new = NewRun(
            run=run, workflow=graph.workflow, hash=graph.hash, children=flow.children, parent=parent,
            source=flow.source,
        )  # fmt: skip
        if ahead and not flow.children:  # a child must not be there before its parent
            return await self._begin_ahead(flow, state, new, batch)
        drive = self._drive(flow, state, await self.store.create(new, batch))
        begin(drive, batch)
        return drive

    async def _begin_ahead(self, flow: Prepared, state: Run, new: NewRun, batch: list[Event]) -> Drive:
        if new.run in self.live:
            raise Conflict(new.run, 0)
        ahead = Ahead()
        drive = self._drive(flow, state, ahead)
        begin_ahead(drive, batch)
        try:
            await asyncio.sleep(0)  # what may begin begins, and is under way while the store writes
            journal = await self.store.create(new, batch)
        except BaseException as error:
            ahead.end(None)
            drive.crash(error if isinstance(error, Exception) else Unfinished(new.run, "it was not begun"))
            raise
        drive.began(ahead, journal)
        return drive

    async def resume(self, flow: Prepared, run: RunId, *, reopened: Sequence[StepId] = ()) -> Drive:
        """Take up a run that nobody drives. What has finished is not done again, unless it is `reopened`.

        One that has ended may still owe the run that follows it.
        """
        journal = await self.store.reopen(run)
        try:
            kept = await newest(self.store.checkpoints, run, flow.graph, flow.reducers)
            state, places = kept or (Run(run, flow.graph, reducers=flow.reducers), {})
            events = await self.store.load(run, after=state.seq)
            fold(state, events)
            if state.then and not reopened:
                drive = self._drive(flow, state, journal)
                drive.end()
                return drive
            _check_open(state, reopened)
            await _know_injected(flow, state)
            drive = self._drive(flow, state, journal)
            drive.outputs.items.know(places)
            fact = RunReopened(f"taken up by {owner.me()}", reopened=tuple(reopened))
            await take_up(drive, events, fact)
        except BaseException:
            self.live.pop(run, None)
            journal.release()
            raise
        return drive

    async def fork(self, flow: Prepared, new: NewRun, state: Run, fact: RunReopened) -> Drive:
        """Begin a run with another's history, folded in `state`. The other run is not touched."""
        events = await self.store.load(new.fork_of or new.run)
        due = owed(state)
        await _know_injected(flow, state)
        batch = decide(state, fact, self.wall())
        drive = self._drive(flow, state, await self.store.create(new, batch))
        drive.outputs.recall(event for event in events if event.seq <= (new.fork_at or 0))
        await branch_off(drive, batch, due, fact)
        return drive

    async def child(
        self,
        flow: Prepared,
        inputs: Mapping[str, Any],
        *,
        run: RunId,
        parent: RunId,
        allowance: Mapping[str, float],
        before: RunId | None = None,
    ) -> Drive | Result:
        """Begin a child run, or find the one that a crashed parent had begun.

        Where `before`, the last attempt, failed, this one goes on from there: what has finished is kept.
        """
        try:
            drive = None
            if before is not None:
                drive = await self._go_on(flow, inputs, run, parent, allowance, before)
            return drive or await self._begin(flow, inputs, run, parent, allowance)
        except Conflict:
            events = await self.store.load(run)
            folded = replay(run, flow.graph, events, reducers=flow.reducers)
            if folded.ended:
                return result_of(folded)
            return await self.resume(flow, run)

    async def _go_on(
        self,
        flow: Prepared,
        inputs: Mapping[str, Any],
        run: RunId,
        parent: RunId,
        allowance: Mapping[str, float],
        before: RunId,
    ) -> Drive | None:
        """A child with the history of the one that failed before it; None if there is none."""
        found = await failed_before(self.store, flow, inputs, run=run, parent=parent, before=before)
        if found is None:
            return None
        of, state, failed = found
        new = NewRun(
            run=run, workflow=flow.graph.workflow, hash=flow.graph.hash, children=flow.children,
            parent=parent, source=flow.source, fork_of=of, fork_at=state.seq,
        )  # fmt: skip
        fact = RunReopened(f"goes on from {of}", "fork", failed, allowance=allowance)
        return await self.fork(flow, new, state, fact)

    async def follow_up(self, flow: Prepared, run: Run) -> RunId | None:
        """Begin the run that is owed after one that has ended, or find the one that was begun before."""
        find = flow.followers.get(run.then)
        if find is None:
            return None
        follower = find()
        workflow = follower.graph.workflow
        given = {**run.outputs, "run_id": run.id, "status": run.status, "reason": run.reason}
        inputs = {name: given[name] for name in workflow.inputs if given.get(name) is not None}
        id = RunId(f"{run.id}{FOLLOWS}{workflow.name}")
        try:
            await self._begin(follower, check_inputs(workflow, inputs), id)
        except Conflict:
            return id  # it was begun before
        return id

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
            self.errand(self._obey(drive, command))

    def clean(self, text: str) -> str:
        """A text without secrets, and such as can be written down: a file name may hold anything."""
        return self.mask(text).encode("utf-8", "backslashreplace").decode()

    def errand(self, work: Coroutine[Any, Any, None]) -> None:
        """Something that belongs to no run."""
        task = asyncio.get_running_loop().create_task(work)
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
                drive.commands.abort(reason)
        await asyncio.gather(*(drive.leave(reason) for drive in kept))
        await asyncio.gather(*(drive.finished for drive in drives), return_exceptions=True)
        if self._errands:
            await asyncio.wait(self._errands, timeout=GRACE)
        if self._threads is not None:
            self._threads.shutdown()


async def _know_injected(flow: Prepared, run: Run) -> None:
    """Ask for the tools of steps that were added while the run went on; rules may have changed since."""
    first = len(flow.works)
    added = run.graph.workflow.steps[first:]
    if not added or flow.work_for is None:
        return
    if flow.ready is not None:
        await flow.ready(added)
    for i, step in enumerate(added, start=first):
        with contextlib.suppress(PenstockError):  # said when it is due
            if flow.work_for(step).ruled:
                run.graph.guard((i,))


def _check_open(run: Run, reopened: Sequence[StepId]) -> None:
    if run.ended and not (reopened or run.stopping):
        raise PenstockError(f"run {run.id} has ended ({run.status})")
