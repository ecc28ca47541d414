"""A run, event by event as they become durable, whichever process drives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Protocol, runtime_checkable

from msgspec import structs

from penstock.ids import RunId
from penstock.run.events import Event, MapStarted, TaskCompleted, WorkflowAborted, WorkflowCompleted
from penstock.store.base import RunRecord, Store
from penstock.store.listing import found

GLANCE: Final = 0.03
"""Seconds between looks. A look is one small query while nothing has happened."""

PATIENCE: Final = 1.0
"""Seconds between looks at a store that says when something has happened."""

More = Callable[[RunId, int], Awaitable[None]]
"""Returns when there may be more events of a run past this one."""


async def tail(
    store: Store,
    run: RunId,
    *,
    after: int = 0,
    looked: Callable[[RunRecord], None] = lambda _record: None,
    more: More | None = None,
) -> AsyncIterator[Sequence[Event]]:
    """The events past `after`, then new ones as they come, until the run has ended.

    `looked` is told at every look how the run stands, whatever happened. `more` is for those who
    hear of news in a better way than by looking again.
    """
    last: Event | None = None
    while True:
        record = await found(store, run)
        looked(record)
        if record.events > after or last is None:
            # The last event is looked at even if it was told before: it may be the end.
            events = await store.load(run, after=min(after, max(record.events - 1, 0)))
            last = events[-1]
            new = [event for event in events if event.seq > after]
            if new:
                after = last.seq
                yield new
        if isinstance(last, WorkflowCompleted | WorkflowAborted):
            return
        await (more(run, after) if more is not None else _more(store, run, after))


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


async def whole(store: Store, run: RunId, events: Sequence[Event]) -> AsyncIterator[Event]:
    """The events with their outputs in them, also those that the store keeps apart: one at a time."""
    for event in events:
        if isinstance(event, TaskCompleted | MapStarted) and event.ref:
            yield structs.replace(event, output=await store.output(run, event.seq), ref="")
        else:
            yield event
