"""What a run has written down, and what waits until it is durable.

A batch is on its way as soon as the journal has taken it. A task that writes starts, and anyone
hears of what happened, only when the journal says that the batch has arrived.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.engines.checkpoints import Fold, Keeper
from penstock.errors import Owned
from penstock.run.effects import Effect, EndRun, HandInput, StartTask, effects
from penstock.run.events import Event
from penstock.run.facts import StorageStalled

if TYPE_CHECKING:
    from penstock.engines.drive import Drive
    from penstock.store.base import Journal

HARMLESS = ("read", "idempotent")
"""Effects that may be had twice."""


class Record:
    """Of one run. The journal tells it what has arrived, and what troubles there are."""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._run = drive.run
        self._journal = drive.journal
        self._held: deque[tuple[int, list[Event], list[Effect], Fold | None]] = deque()
        """Batches that are not durable yet, and what must wait until they are."""
        self._first: tuple[list[Event], list[Effect]] = ([], [])
        """The same for a first batch, which the store is told with the run itself."""
        self._status = ""
        self._unsaid = False
        self._stalled = False
        self._lasting = drive.journal.lasting
        self._keeper = Keeper(drive.engine.store.checkpoints, drive.run) if self._lasting else None

    def take(self, batch: list[Event]) -> None:
        """Write a batch down, and do what may be done at once; the rest waits until it is durable."""
        run, drive = self._run, self._drive
        self.note_status()
        self._journal.append(batch)
        drive.outputs.saw(batch)
        waits: list[Effect] = []
        now: list[Effect] = []
        for effect in effects(run, batch):
            if type(effect) is StartTask:
                must_wait = not self._harmless(effect)
            else:
                must_wait = type(effect) is EndRun or type(effect) is HandInput
            (waits if must_wait else now).append(effect)
        fold = None if self._keeper is None else self._keeper.commanded(batch, drive.outputs.items)
        self._held.append((run.seq, batch, waits, fold))
        for effect in now:
            drive.door.carry_out(effect)

    def begin(self, batch: list[Event]) -> None:
        """Do what may be done before the store has the run; the rest waits for `began`."""
        self._drive.door.shut = True  # whatever comes of it waits, too
        waits: list[Effect] = []
        for effect in effects(self._run, batch):
            # What is idempotent by its key waits: a run that is lost has lost the key with it.
            if type(effect) is StartTask and self._drive.tasks.work(effect.step).effect == "read":
                self._drive.door.carry_out(effect)
            else:
                waits.append(effect)
        self._first = batch, waits

    def began(self, journal: Journal) -> None:
        """The store has the run, and its first batch."""
        self._journal = journal
        batch, waits = self._first
        self._first = [], []
        self._drive.stream.publish(batch)
        self.note_status()
        for effect in waits:
            self._drive.door.carry_out(effect)
        self._drive.loop.call_soon(self._open)  # not before whoever begins the run could watch it

    def _open(self) -> None:
        if not self._drive.finished.done():
            self._drive.door.open()

    def _harmless(self, effect: StartTask) -> bool:
        return not self._stalled and self._drive.tasks.work(effect.step).effect in HARMLESS

    def note_status(self) -> None:
        """Say how the run stands, for lists, where that has changed.

        One that has ended and owes another run is not done with: whoever looks for work finds it.
        """
        run = self._run
        status = run.status if not run.then else "running"
        if self._lasting and status != self._status:
            self._status = status
            self._journal.note(status, run.reason)

    def note_rest(self) -> None:
        """The same where no event says it: child runs wait, or go on."""
        if self._held:
            self._unsaid = True  # until the lists have what came before
        elif self._lasting and self._run.status != self._status:
            self._status = self._run.status
            self._journal.note(self._status, self._run.reason, now=True)

    def note_end(self) -> None:
        """Nothing is owed any more."""
        self._journal.note(self._run.status, self._run.reason, now=True)

    async def fetch(self, seq: int) -> Any:
        """An output from the store, which may still be on its way there."""
        if self._journal.durable < seq:
            await self._journal.sync()
        return await self._drive.engine.store.output(self._run.id, seq)

    def arrived(self, seq: int) -> None:
        """The journal has everything up to `seq`."""
        held = self._held
        while held and held[0][0] <= seq:
            _, batch, waits, fold = held.popleft()
            self._drive.stream.publish(batch)
            if self._keeper is not None:
                if fold is not None:
                    self._keeper.keep(fold)
                elif not held:
                    self._keeper.consider(batch, self._drive.outputs.items)
            for effect in waits:
                self._drive.door.carry_out(effect)
        if self._unsaid and not held:
            self._unsaid = False
            self.note_rest()

    def stalled(self, reason: str) -> None:
        """The journal cannot be written, or can be again."""
        self._stalled = bool(reason)
        self._drive.tell(StorageStalled(reason))

    def lost(self) -> None:
        """Someone else drives this run now. Whatever we know of it is out of date."""
        self._drive.crash(Owned(self._run.id, "another process"))

    def forget(self) -> None:
        """Nobody waits for what has not arrived."""
        self._held.clear()
