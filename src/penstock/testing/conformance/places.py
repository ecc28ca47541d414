"""Where stores are checked, and what sentences about them are made of."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, ClassVar, Literal

from penstock.ids import CommandId, RunId, StepId
from penstock.run.commands import Command, Message
from penstock.run.events import Event, TaskCompleted, WorkflowStarted
from penstock.store.base import CheckpointRecord, Journal, NewRun, Store
from penstock.workflow.spec import Step, Workflow

PATIENCE = 20.0
"""Seconds for what should take none."""

KEY, NEW_KEY, OTHER_KEY = "first".center(43, "0"), "next".center(43, "0"), "other".center(43, "0")
"""32 bytes in base64, for passphrases take their time."""

A = RunId("a")
B = RunId("b")
C = RunId("c")


class Place:
    """Where stores of one kind can be opened, and what that kind is able to do."""

    lasting: ClassVar[bool] = True
    """What is written outlives its store, and is seen by every store that is opened here."""

    sealed: ClassVar[bool] = False
    """Payloads are encrypted."""

    upkeep: ClassVar[bool] = False
    """Runs can be forgotten: the store has `upkeep`."""

    program: str = ""
    """For another process: Python that leaves a store of this place in `store`."""

    def open(self, *keys: str) -> Store:
        """One more store. The keys are for a sealed place; without any, its own."""
        raise NotImplementedError

    def raw(self) -> bytes:
        """Everything that is stored here, as someone without Penstock would read it."""
        raise NotImplementedError


Sentence = Callable[[Place], Awaitable[None]]
Need = Literal["lasting", "sealed", "upkeep"]

_all: list[tuple[Sentence, tuple[Need, ...]]] = []


def sentences(kind: type[Place]) -> list[Sentence]:
    """All that is asked of stores of this kind."""
    return [check for check, needs in _all if all(getattr(kind, need) for need in needs)]


def named(check: Sentence) -> str:
    return getattr(check, "__name__", "").replace("_", " ")


def sentence(*needs: Need) -> Callable[[Sentence], Sentence]:
    """One more thing that is asked of stores: of all, or of those that can."""

    def add(check: Sentence) -> Sentence:
        _all.append((check, needs))
        return check

    return add


# --- what sentences speak about ---


class Ears:
    """A watcher that remembers what it was told."""

    def __init__(self) -> None:
        self.arrivals: list[int] = []
        self.reasons: list[str] = []
        self.losses = 0
        self._changed = asyncio.Event()

    def arrived(self, seq: int) -> None:
        self.arrivals.append(seq)
        self._changed.set()

    def stalled(self, reason: str) -> None:
        self.reasons.append(reason)
        self._changed.set()

    def lost(self) -> None:
        self.losses += 1
        self._changed.set()

    async def until(self, test: Callable[[Ears], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not test(self):
                self._changed.clear()
                await self._changed.wait()


class Inbox:
    """Receives commands."""

    def __init__(self, store: Store) -> None:
        self.texts: list[tuple[RunId, str]] = []
        self._changed = asyncio.Event()
        store.mail.deliver(self._receive)

    def _receive(self, run: RunId, command: Command) -> None:
        self.texts.append((run, getattr(command, "text", "")))
        self._changed.set()

    async def until(self, count: int) -> list[str]:
        async with asyncio.timeout(PATIENCE):
            while len(self.texts) < count:
                self._changed.clear()
                await self._changed.wait()
        return [text for _, text in self.texts]


def flow(name: str = "flow", *, uses: str = "some:tool") -> Workflow:
    return Workflow(name=name, steps=(Step(id=StepId("s"), uses=uses),))


def new(run: RunId = A, workflow: Workflow | None = None, **more: Any) -> NewRun:
    workflow = workflow or flow()
    return NewRun(run=run, workflow=workflow, hash=workflow.hash, **more)


def beginning(workflow: Workflow | None = None, **inputs: Any) -> list[Event]:
    workflow = workflow or flow()
    return [WorkflowStarted(1, 100.0, workflow.name, workflow.hash, inputs)]


def batch(first: int, size: int = 1, *, mark: str = "") -> list[Event]:
    """Some tasks that completed."""
    return [
        TaskCompleted(seq, 100.0 + seq, StepId("s"), {"n": seq, "mark": mark})
        for seq in range(first, first + size)
    ]


async def begin(store: Store, run: RunId = A, *, more: int = 0) -> Journal:
    """A run with `1 + more` events."""
    journal = await store.create(new(run), beginning())
    if more:
        journal.append(batch(2, more))
        await journal.sync()
    return journal


def post(text: str, id: str = "") -> Message:
    return Message(id=CommandId(id or text), text=text)


def checkpoint(name: str, seq: int, run: RunId = A) -> CheckpointRecord:
    return CheckpointRecord(checkpoint=name, run=run, seq=seq, at=float(seq), layer=seq, size=0)


def example(**values: Any) -> dict[str, Any]:
    """A failure that is remembered; what is not said of it does not matter."""
    return {"workflow": "flow", "step": "s", "tool": "some:tool", "at": 100.0, "expires": 200.0, **values}


@contextlib.asynccontextmanager
async def opened(place: Place, count: int = 1) -> AsyncIterator[Any]:
    """A store, or several of the same place."""
    stores = [place.open() for _ in range(count)]
    try:
        yield stores[0] if count == 1 else stores
    finally:
        for store in stores:
            await store.close()


@contextlib.contextmanager
def refused(kind: type[Exception], saying: str = "") -> Iterator[None]:
    try:
        yield
    except kind as error:
        if saying not in str(error):
            raise AssertionError(f"{error} does not say {saying!r}") from error
    else:
        raise AssertionError(f"{kind.__name__} was expected, and nothing was raised")


async def record(store: Store, run: RunId = A) -> Any:
    return (await store.runs(run=run))[0]
