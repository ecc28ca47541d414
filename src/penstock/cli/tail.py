"""A run that another process drives, event by event as they become durable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from msgspec import structs

from penstock.cli import exits, stores
from penstock.errors import UnknownRun
from penstock.ids import RunId
from penstock.run.events import Event, MapStarted, TaskCompleted, WorkflowAborted, WorkflowCompleted

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.store.base import RunRecord, Store

GLANCE: Final = 0.03
"""Seconds between looks. A look is one small query while nothing has happened."""

PATIENCE: Final = 1.0
"""Seconds between looks at a store that says when something has happened."""


async def tail(
    penstock: Penstock,
    run: RunId,
    *,
    after: int = 0,
    looked: Callable[[RunRecord], None] = lambda _record: None,
) -> AsyncIterator[Sequence[Event]]:
    """The events past `after`, then new ones as they come, until the run has ended.

    `looked` is told at every look how the run stands, whatever happened.
    """
    last: Event | None = None
    while True:
        record = next(iter(await penstock.store.runs(run=run)), None)
        if record is None:
            raise UnknownRun(run)
        looked(record)
        if record.events > after or last is None:
            # The last event is looked at even if it was told before: it may be the end.
            events = await penstock.store.load(run, after=min(after, max(record.events - 1, 0)))
            last = events[-1]
            new = [event for event in events if event.seq > after]
            if new:
                after = last.seq
                yield new
        if isinstance(last, WorkflowCompleted | WorkflowAborted):
            return
        await _more(penstock.store, run, after)


async def _more(store: Store, run: RunId, after: int) -> None:
    """Wait until there may be more events. Some stores say so by themselves."""
    if isinstance(store, Following):
        await store.follow(run, after=after, within=PATIENCE)
    else:
        await asyncio.sleep(GLANCE)


@runtime_checkable
class Following(Protocol):
    """A store that hears what other processes write."""

    async def follow(self, run: RunId, *, after: int, within: float = 1.0) -> None:
        """Return when there may be events past `after`, at the latest in `within` seconds."""
        ...


class Driven:
    """Says when nobody drives the run any more: until somebody does, nothing will come."""

    def __init__(self, url: str, say: Callable[[str], None] | None = None) -> None:
        self._url = url
        self._say = say or _said
        self._driven = True

    def look(self, record: RunRecord) -> None:
        driven = bool(record.owner) or record.status in stores.FINAL
        if self._driven and not driven:
            self._say(self._words(record))
        elif driven and not self._driven:
            self._say("")
        self._driven = driven

    def _words(self, record: RunRecord) -> str:
        if record.status == "waiting":
            return f"run {record.run} waits for a decision: {stores.line('decide', record.run, self._url)}"
        resume = stores.line("resume", record.run, self._url)
        return f"nobody drives run {record.run} now: {resume} goes on with it"


def _said(text: str) -> None:
    if text:
        exits.say(text)


async def whole(penstock: Penstock, run: RunId, events: Sequence[Event]) -> list[Event]:
    """The events with their outputs in them, also those that the store keeps apart."""
    return [
        structs.replace(event, output=await penstock.store.output(run, event.seq), ref="")
        if isinstance(event, TaskCompleted | MapStarted) and event.ref
        else event
        for event in events
    ]
