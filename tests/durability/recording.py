"""A run that went to its end, cut short: a store that holds its first batches and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

import penstock as ps
from penstock.ids import RunId
from penstock.run.events import Event, MapStarted, TaskCompleted
from penstock.store import batches
from penstock.store.base import NewRun
from penstock.store.sqlite.store import SqliteStore

Batch = Sequence[Event]


class Recording:
    """A run that went to its end, with its children: every batch, in the order in which they were written."""

    def __init__(self, root: str, new: dict[RunId, NewRun], timeline: list[tuple[RunId, Batch]]) -> None:
        self.root = root
        self.timeline = timeline
        self._new = new

    async def restore(self, path: Path, cut: int) -> None:
        """A store that holds the first `cut` batches and nothing else."""
        store = SqliteStore(path, synchronous="OFF")
        journals: dict[RunId, Any] = {}
        for run, batch in self.timeline[:cut]:
            if run in journals:
                journals[run].note(*batches.summary(batch)[:2])
                journals[run].append(batch)
            else:
                journals[run] = await store.create(self._new[run], batch)
        for journal in journals.values():
            await journal.sync()
            journal.release()
        await store.close()


async def record(path: Path, root: str) -> Recording:
    new: dict[RunId, NewRun] = {}
    timeline: list[tuple[RunId, Batch]] = []
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(
            "SELECT run, batches FROM events JOIN runs ON key = id >> 32 ORDER BY id"
        ).fetchall()
    async with ps.open(f"sqlite:///{path}") as penstock:
        for record in await penstock.store.runs():
            pinned = await penstock.store.definition(record.run)
            new[record.run] = NewRun(
                run=record.run, workflow=pinned.workflow, hash=record.hash, children=pinned.children,
                parent=record.parent, source=pinned.source,
            )  # fmt: skip
        for run, lines in rows:
            timeline += [
                (run, [await _whole(penstock, run, event) for event in batch])
                for batch in batches.decode(lines)
            ]
    timeline.sort(key=lambda entry: entry[1][0].at)
    return Recording(root, new, timeline)


async def _whole(penstock: ps.Penstock, run: RunId, event: Event) -> Event:
    """The event with its output in it, however large."""
    if isinstance(event, TaskCompleted | MapStarted) and event.ref:
        output = await penstock.store.output(run, event.seq)
        return msgspec.structs.replace(event, output=output, ref="")
    return event
