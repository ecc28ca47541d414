"""The ports between runs and what remembers them.

A journal takes whole batches, in order, and never makes the caller wait: what it has taken
is on its way, what `durable` names has arrived. A batch is kept entirely or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from penstock.ids import RunId
from penstock.run.commands import Command
from penstock.run.events import Event
from penstock.workflow.spec import Workflow


class RunRecord(Struct, frozen=True, kw_only=True):
    """What a list of runs shows."""

    run: RunId
    workflow: str
    hash: str
    status: str
    started: float
    ended: float | None = None
    events: int = 0
    parent: RunId | None = None
    reason: str = ""
    source: str = ""
    """The file the definition came from."""
    fork_of: RunId | None = None
    fork_at: int | None = None
    """Up to this event the history is the other run's."""
    owner: str = ""
    """Who drives it now; empty when nobody does."""


class Pinned(Struct, frozen=True, kw_only=True):
    """The version of a workflow that a run is bound to, and of every workflow it may call."""

    workflow: Workflow
    children: Mapping[str, Workflow] = {}
    """By name."""
    source: str = ""


class NewRun(Struct, frozen=True, kw_only=True):
    """What a store is told when a run begins."""

    run: RunId
    workflow: Workflow
    hash: str
    children: Mapping[str, Workflow] = {}
    parent: RunId | None = None
    source: str = ""
    fork_of: RunId | None = None
    fork_at: int | None = None


class Watcher(Protocol):
    """Whoever owns a journal. Called on the event loop."""

    def arrived(self, seq: int) -> None:
        """Everything up to this event is durable."""

    def stalled(self, reason: str) -> None:
        """Nothing can be written, and why; empty when it can again."""

    def lost(self) -> None:
        """Another process drives the run now. Nothing taken since the last arrival was kept."""


class Journal(Protocol):
    """The one writer of one run."""

    @property
    def durable(self) -> int:
        """The number of the last event that would survive a crash."""
        ...

    @property
    def lasting(self) -> bool:
        """Whether anything survives this process: only then is there anything to wait for."""
        ...

    def watch(self, watcher: Watcher) -> None: ...

    def append(self, events: Sequence[Event]) -> None:
        """Take one batch. Never waits for a slow disk, never fails for reasons of storage.

        A store may commit quick batches itself at the end of the loop's tick.
        """
        ...

    def note(self, status: str, reason: str, *, now: bool = False) -> None:
        """Say how the run stands after the next batch, for lists. Kept with that batch, or not at all.

        With `now` it stands so already, and everything taken is durable: lists learn it soon.
        """
        ...

    async def sync(self) -> None:
        """Return when everything taken so far is durable."""
        ...

    def release(self) -> None:
        """Let others drive the run, once everything taken is durable."""
        ...


class Mail(Protocol):
    """Commands from processes that do not drive the run."""

    async def post(self, run: RunId, command: Command) -> None:
        """Leave a command for whoever drives the run. The same id twice is one command."""
        ...

    async def answer(self, run: RunId, id: str) -> str | None:
        """Why it was rejected, empty when it was accepted, None when nobody has answered yet."""
        ...

    def deliver(self, receive: Callable[[RunId, Command], None]) -> None:
        """Hand the commands for runs owned here to `receive`, on the event loop, as they come."""
        ...

    def answered(self, run: RunId, id: str, reason: str) -> None: ...


class CheckpointRecord(Struct, frozen=True, kw_only=True):
    checkpoint: str
    run: RunId
    seq: int
    at: float
    layer: int
    size: int


class Checkpoints(Protocol):
    """Folds that were kept, so that long histories need not be folded again."""

    def save(self, record: CheckpointRecord, state: bytes, *, keep: int) -> None:
        """Keep a fold in the background, and only the `keep` newest of the run. Trouble is a warning."""
        ...

    async def list(self, run: RunId) -> Sequence[CheckpointRecord]:
        """The oldest first."""
        ...

    async def get(self, checkpoint: str) -> tuple[CheckpointRecord, bytes]: ...


class Examples(Protocol):
    """Failures that are remembered beyond their runs, until they expire: what not to try again."""

    async def add(self, id: str, example: Mapping[str, Any]) -> None:
        """Remember one, of the form that `policy.gates.example` gives it. The same id twice is one."""
        ...

    async def list(
        self, *, workflow: str = "", step: str = "", tool: str = "", now: float = 0.0
    ) -> Sequence[dict[str, Any]]:
        """The newest first, as they were added; with `now`, without those that have expired."""
        ...

    async def expire(self, *, now: float) -> int:
        """Forget those that have expired; returns how many."""
        ...


class Upkeep(Protocol):
    """Keeping a store small, beside whoever else works with it. Only stores that grow have it."""

    async def sizes(self) -> Mapping[RunId, int]:
        """Bytes of each run. What several runs share is counted once, with the newest of them."""
        ...

    async def forget(self, families: Sequence[Sequence[RunId]]) -> Sequence[RunId]:
        """Forget families of runs, each entirely or not at all; returns the runs that are gone.

        A family stays when one of its runs has not ended or is driven by someone, or when a run
        outside needs one of its runs. What a crash interrupts, the next call finishes.
        """
        ...

    async def compact(self) -> int:
        """Give space that is free back to the system; returns how many bytes."""
        ...


class Store(Protocol):
    """Every run there is, readable by anyone."""

    @property
    def mail(self) -> Mail: ...

    @property
    def checkpoints(self) -> Checkpoints: ...

    @property
    def examples(self) -> Examples: ...

    @property
    def lasting(self) -> bool:
        """Whether anything survives this process: only then is a write worth not waiting for."""
        ...

    async def create(self, new: NewRun, events: Sequence[Event]) -> Journal:
        """Begin a run with its first batch, and own it. All or nothing; `Conflict` when the id is taken."""
        ...

    async def reopen(self, run: RunId) -> Journal:
        """Own a run that nobody drives. `Owned` when somebody does."""
        ...

    async def load(self, run: RunId, *, after: int = 0) -> Sequence[Event]:
        """Its events in order, from `after + 1` on. `UnknownRun` when there is none."""
        ...

    async def output(self, run: RunId, seq: int) -> Any:
        """The whole output of the task that event `seq` completed."""
        ...

    async def definition(self, run: RunId) -> Pinned:
        """The version of the workflow that this run is pinned to."""
        ...

    async def runs(self, **where: Any) -> Sequence[RunRecord]:
        """The newest first; `run`, `status`, `workflow`, `parent` narrow it down, `limit` cuts it short.

        With `before`, only runs that are older than that one: the next page of a list.
        """
        ...

    async def close(self) -> None: ...
