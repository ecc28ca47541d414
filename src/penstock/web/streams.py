"""The events of a run as a stream (server-sent events) that can be taken up again, or as a list."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from penstock.engines.tail import tail, whole
from penstock.ids import RunId
from penstock.run.events import Event, WorkflowAborted, WorkflowCompleted, to_wire
from penstock.web.desk import Desk, encoded

QUIET: Final = 15.0
"""Seconds of silence after which a sign of life is sent, so that nobody between us and them hangs up."""

RETRY: Final = 1_000
"""Milliseconds that a browser waits before it comes back."""

GLANCES: Final = (0.03, 0.25)
"""Seconds between looks at a run that another process drives: at first, and when nothing happens."""


async def frames(desk: Desk, run: RunId, after: int) -> AsyncIterator[bytes]:
    """Every event past `after` as a frame, until the run has ended or the server stops.

    Frames of events have no name, so that a page hears all of them in `onmessage`.
    """
    yield f"retry: {RETRY}\n\n".encode()
    batches = tail(desk.runs.store, run, after=after, more=_News(desk).more)
    stop = asyncio.ensure_future(desk.stop.wait())
    batch: asyncio.Task[Sequence[Event]] | None = None
    try:
        while not stop.done():
            batch = batch or asyncio.ensure_future(_next(batches))
            await asyncio.wait([batch, stop], timeout=QUIET, return_when=asyncio.FIRST_COMPLETED)
            if not batch.done():
                yield b": still here\n\n"
                continue
            events, batch = batch.result(), None
            if not events:
                break
            async for event in whole(desk.runs.store, run, events):
                yield b"id: %d\ndata: %s\n\n" % (event.seq, encoded(to_wire(run, event)))
            if isinstance(events[-1], WorkflowCompleted | WorkflowAborted):
                yield b"event: end\ndata: {}\n\n"  # not broken off: there is no more
    finally:
        stop.cancel()
        if batch is not None:
            batch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await batch
        await batches.aclose()  # type: ignore[attr-defined]  # it is a generator


async def _next(batches: AsyncIterator[Sequence[Event]]) -> Sequence[Event]:
    """The next batch; an empty one at the end."""
    try:
        return await anext(batches)
    except StopAsyncIteration:
        return []


async def listed(desk: Desk, run: RunId, after: int, limit: int) -> list[dict[str, Any]]:
    """Events past `after`, no more than `limit`."""
    events = (await desk.runs.store.load(run, after=after))[:limit]
    return [to_wire(run, event) async for event in whole(desk.runs.store, run, events)]


class _News:
    """When to look again: at once when the run is driven here, else less often while nothing happens."""

    def __init__(self, desk: Desk) -> None:
        self._live = desk.runs.engine.live
        self._last = -1
        self._glance = GLANCES[0]

    async def more(self, run: RunId, after: int) -> None:
        drive = self._live.get(run)
        if drive is not None:
            await drive.stream.past(after)
            return
        self._glance = GLANCES[0] if after != self._last else min(self._glance * 1.5, GLANCES[1])
        self._last = after
        await asyncio.sleep(self._glance)
