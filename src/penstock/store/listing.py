"""Which runs there are, and which belong together: questions that every surface asks of a store."""

from __future__ import annotations

from typing import Final

from penstock.errors import UnknownRun
from penstock.ids import RunId
from penstock.store.base import RunRecord, Store

STATUSES: Final = ("pending", "running", "waiting", "paused", "succeeded", "failed", "partial", "aborted")
FINAL: Final = frozenset({"succeeded", "failed", "partial", "aborted"})
"""How a run stands that has ended."""

EVERY: Final = 1_000_000_000
"""No limit."""


async def found(store: Store, run: str) -> RunRecord:
    """The run of this very id."""
    records = await store.runs(run=RunId(run))
    if not records:
        raise UnknownRun(run)
    return records[0]


async def root_of(store: Store, record: RunRecord) -> RunRecord:
    """The run that started it all."""
    return await found(store, record.run.partition("/")[0]) if record.parent else record


async def descendants(store: Store, run: str) -> list[RunRecord]:
    """Every run that a run has started, directly or not; parents before children."""
    every: list[RunRecord] = []
    todo = [run]
    while todo:
        children = await store.runs(parent=todo.pop(), limit=EVERY)
        every += children
        todo += [child.run for child in children]
    return every
