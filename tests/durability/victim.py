"""A process that runs a wild workflow until it is killed, or until the run ends.

    python victim.py '{"folder": …, "store": …, "seed": 3, "run": "", "stop": 17}'

It says on its standard output, unbuffered, what it has been told: the run's id, every event
when it is published, how the run ended. A *moment* is a point where being killed is of
interest: an event just published, a line just written to the ledger. At moment `stop` it
blocks until it is killed (or, with `suicide`, sends itself the same SIGKILL, a little earlier
than anyone else could).
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import sys
import tempfile
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import deeds
import msgspec
import wilds

import penstock as ps
from penstock.engines.drive import Drive
from penstock.errors import CommandRejected
from penstock.ids import RunId
from penstock.run.commands import Decide
from penstock.run.events import DecisionRequired, Event
from penstock.store import owner

OUT = 1


class Order(msgspec.Struct, kw_only=True):
    """What a victim is to do."""

    program: str = "victim"
    folder: str
    store: str
    seed: int
    run: str = ""
    """The run to take up; empty: start one."""
    stop: int = 0
    """The moment to block at; 0 means never."""
    suicide: bool = False


def say(**line: Any) -> None:
    os.write(OUT, msgspec.json.encode(line) + b"\n")


class Moments:
    """Counts moments, on whatever thread they happen, and blocks at one of them."""

    def __init__(self, order: Order) -> None:
        self._stop = order.stop
        self._suicide = order.suicide
        self._lock = threading.Lock()
        self.count = 0
        self._never = os.pipe()

    def __call__(self) -> None:
        with self._lock:  # and never let go: whoever comes next is stuck as well
            self.count += 1
            if self.count != self._stop:
                return
            if self._suicide:
                os.kill(os.getpid(), signal.SIGKILL)
            say(blocked=self.count)
            os.read(self._never[0], 1)


class Watched(dict[RunId, Drive]):
    """The runs that are being driven: each one, children included, is watched from its first event."""

    def __init__(self, moments: Moments, ledger: Path) -> None:
        super().__init__()
        self._moments = moments
        self._ledger = ledger
        self._answers: set[asyncio.Task[None]] = set()

    def __setitem__(self, run: RunId, drive: Drive) -> None:
        super().__setitem__(run, drive)
        drive.observe(lambda event: self._published(drive, event))
        for question in drive.state.decisions.values():
            self._answer(drive, question)

    def _published(self, drive: Drive, event: Event) -> None:
        say(run=drive.id, event=event)
        self._moments()
        if isinstance(event, DecisionRequired):
            self._answer(drive, event)

    def _answer(self, drive: Drive, question: DecisionRequired) -> None:
        task = asyncio.get_running_loop().create_task(self._decide(drive, question))
        self._answers.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answers.discard(task)
        if not task.cancelled() and (error := task.exception()):
            say(error=type(error).__name__, message=str(error))

    async def _decide(self, drive: Drive, question: DecisionRequired) -> None:
        """As a careful person would: look whether it took effect, and only if it did not, do it again."""
        with contextlib.suppress(CommandRejected):
            await drive.send(careful(drive, question, self._ledger))


def careful(drive: Drive, question: DecisionRequired, ledger: Path) -> Decide:
    item = "" if question.item is None else f".{question.item}"
    key = f"{drive.id}/{question.step}.{question.iteration}{item}"
    done = [line for line in deeds.lines(ledger) if line["what"] == "begin" and line["key"] == key]
    if done and not done[-1]["fails"]:
        return Decide(decision=question.decision, verb="accept", args={"output": done[-1]["gives"]})
    return Decide(decision=question.decision, verb="retry")


def confess() -> None:
    """Say what every task waits for."""
    out = io.StringIO()
    for task in asyncio.all_tasks():
        task.print_stack(file=out)
    say(tasks=out.getvalue())


async def perform(order: Order) -> None:
    """Drive the run to its end, unless someone is in the way."""
    folder = Path(order.folder)
    ledger = folder / "ledger"
    moments = Moments(order)
    deeds.Stage.ledger = deeds.Ledger(ledger)
    deeds.Stage.ledger.write(what="process", run=order.run)
    deeds.Stage.moment = moments
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, confess)
    async with ps.open(order.store) as penstock:
        penstock.engine.live = Watched(moments, ledger)
        if order.run:
            try:
                run = await penstock.resume(order.run)
            except ps.PenstockError:
                if not await say_how_it_ended(penstock, order.run):
                    raise
                return
        else:
            run = await penstock.start(wilds.wild(order.seed))
            say(run=run.id)
            moments()
        result = await run.result()
        state = deeds.digest(result.state.encoded())
        say(ended=result.status, run=run.id, state=state, moments=moments.count)


async def say_how_it_ended(penstock: ps.Penstock, run: str) -> bool:
    """When it had ended, and its process died before it could say so."""
    record = (await penstock.store.runs(run=run))[0]
    state = await penstock.at(record.run, record.events)
    if state.ended:
        say(ended=state.status, run=run, state=deeds.digest(state.encoded()), moments=0)
    return state.ended


def warm_up() -> None:
    """Load what is loaded on first use, for processes that are forked from this one. Leaves no thread."""

    async def once(folder: str) -> None:
        async with ps.open(f"sqlite:///{folder}/store.db") as penstock:
            flow = ps.Workflow("first")
            flow.step("each", deeds.look, for_each="${ [1, 2] }", n="${ item }")
            run = await penstock.start(flow)
            await run.result()
            await penstock.at(run.id, 1)

    with contextlib.suppress(ModuleNotFoundError):
        import_module("penstock.store.postgres.store")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(once(folder))
    if threading.active_count() > 1:
        raise AssertionError(f"threads are left: {threading.enumerate()}")


def main(text: str) -> None:
    order = msgspec.json.decode(text, type=Order)
    try:
        asyncio.run(perform(order))
    except ps.PenstockError as error:
        say(error=type(error).__name__, message=str(error), me=str(owner.me()))


if __name__ == "__main__":
    main(sys.argv[1])
