"""One run being driven: its face to whoever started it, and its parts.

Facts come in from tasks, timers, commands and the journal; each goes through the core once (the
door), and the batch that follows is journalled before anything comes of it that could not be taken
back (the record). Tasks, timers, children and errands carry out what the core asks for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.engines.ahead import Ahead
from penstock.engines.approvals import Approvals
from penstock.engines.base import Result, result_of
from penstock.engines.children import Children
from penstock.engines.commanding import Commands
from penstock.engines.door import Door
from penstock.engines.errands import Errands
from penstock.engines.inputs import Inputs
from penstock.engines.outputs import Outputs
from penstock.engines.reading import Reading
from penstock.engines.record import Record
from penstock.engines.stream import KEPT, KEPT_LASTING, Gap, Observer, Stream
from penstock.engines.tasks import Tasks
from penstock.engines.timers import Timers
from penstock.errors import PenstockError, StoreError, Unfinished
from penstock.ids import RunId
from penstock.run.commands import Command
from penstock.run.events import Event
from penstock.run.facts import ProcessLeaving
from penstock.run.state import Run
from penstock.steps.base import Prepared
from penstock.store.base import Journal

if TYPE_CHECKING:
    from penstock.engines.native import NativeEngine


class Drive:
    finished: asyncio.Future[Result]

    def __init__(self, engine: NativeEngine, flow: Prepared, run: Run, journal: Journal) -> None:
        self.engine = engine
        self.flow = flow
        self.run = run
        self.journal = journal
        self.loop = asyncio.get_running_loop()
        self.stream = Stream(after=run.seq, kept=KEPT_LASTING if journal.lasting else KEPT)
        self.finished = self.loop.create_future()
        self.door = Door(self)
        self.tell = self.door.tell
        """How anyone reports a fact."""
        self.record = Record(self)
        self.outputs = Outputs(run, self.record.fetch if journal.lasting else None)
        self.reading = Reading(run, self.outputs)
        self.timers = Timers(self.loop, self.tell, self.crash)
        self.inputs = Inputs(self)
        self.tasks = Tasks(self)
        self.approvals = Approvals(self)
        self.children = Children(self)
        self.errands = Errands(self)
        self.commands = Commands(self)
        self.door.connect()
        run.stopwatch = time.perf_counter_ns
        run.summariser, run.mask = engine.summarise, engine.clean
        journal.watch(self.record)

    # --- for whoever started it ---

    @property
    def id(self) -> RunId:
        return self.run.id

    @property
    def state(self) -> Run:
        return self.run

    async def result(self) -> Result:
        return await asyncio.shield(self.finished)

    def follow(self, *, after: int = 0) -> AsyncIterator[Event | Gap]:
        return self.stream.follow(after=after, past=lambda seq: self.engine.store.load(self.id, after=seq))

    def observe(self, observer: Observer) -> None:
        self.stream.observe(observer)

    async def send(self, command: Command) -> Event:
        """Hand a command to the run; returns the event that accepted it."""
        return await self.commands.send(command)

    # --- letting go of it ---

    def wind_down(self, reason: str) -> None:
        """Start nothing new in this process; whoever takes the run up next goes on."""
        self.tell(ProcessLeaving(reason))

    def let_go(self, reason: str) -> None:
        """Stop driving at once, without a word in the journal: anyone may take the run up."""
        self.crash(Unfinished(self.id, reason))

    async def leave(self, reason: str) -> None:
        """Let go of the run so that another process can go on with it: what runs may finish first."""
        self.wind_down(reason)
        if not self.finished.done():
            await self.tasks.rest()
        if not self.finished.done():
            await self.journal.sync()
        if not self.finished.done():
            self.let_go(reason)

    def began(self, ahead: Ahead, journal: Journal) -> None:
        """The store has the run now."""
        if self.finished.done():  # it was let go of meanwhile
            journal.release()
        else:
            self.journal = journal
            journal.watch(self.record)
            self.record.began(journal)
        ahead.end(journal)

    def end(self) -> None:
        """The last event has been written."""
        if self.run.then:
            self.engine.errand(self._hand_on())
            return
        self._close()
        if not self.finished.done():
            self.finished.set_result(self._result())

    async def _hand_on(self) -> None:
        """Begin what comes after this run, then be done with it."""
        try:
            followed_by = await self.engine.follow_up(self.flow, self.run)
        except StoreError as error:
            self.crash(error)  # whoever takes the run up next begins it
            return
        except PenstockError as error:
            self.record.note_end()  # nobody could begin it
            self.crash(error)  # the run itself has ended and says how; this is what its owner must hear
            return
        self.record.note_end()
        self._close()
        if not self.finished.done():
            self.finished.set_result(msgspec.structs.replace(self._result(), followed_by=followed_by))

    def _result(self) -> Result:
        return msgspec.structs.replace(result_of(self.run), retry_after=self.tasks.retry_after())

    def crash(self, error: Exception) -> None:
        """We cannot go on. Say so; never pretend the run did."""
        self.tasks.abandon()
        self.record.forget()
        self._close()
        every: list[asyncio.Future[Any]] = [self.finished, *self.commands.answers.values()]
        for waited in every:
            if not waited.done():
                waited.set_exception(error)
                waited.exception()  # heard here: nobody may be waiting

    def _close(self) -> None:
        self.timers.close()
        self.tasks.close()
        self.engine.live.pop(self.id, None)
        self.stream.close()
        self.journal.release()
