"""Cleaning up: what the limits allow to be forgotten is forgotten, and said.

Which runs may go is `policy.retention`'s business, how they go the store's.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from msgspec import Struct

from penstock.errors import StoreError
from penstock.ids import RunId
from penstock.policy.retention import Family, Limits, Plan, Remembered, plan
from penstock.store.base import RunRecord, Store, Upkeep


class Line(Struct, frozen=True, kw_only=True):
    """A run, and why it goes or stays."""

    run: RunId
    workflow: str
    status: str
    ended: float | None
    reason: str


class Cleaning(Struct, frozen=True, kw_only=True):
    """What was (or would be) cleaned up."""

    dry_run: bool
    forgotten: tuple[Line, ...]
    """The oldest family first."""
    kept: tuple[Line, ...]
    bytes_before: int
    """Of all runs."""
    bytes_after: int
    freed: int = 0
    """Bytes given back to the system. Free space within the store is used again anyway."""
    examples: int = 0
    """Remembered failures that had expired. They go whatever the limits are."""


async def plan_and_forget(
    store: Store, limits: Limits, *, dry_run: bool, compact: bool = True, now: float | None = None
) -> Cleaning:
    """Forget what is beyond the limits; with `dry_run`, only say what that would be."""
    upkeep: Upkeep | None = getattr(store, "upkeep", None)
    if upkeep is None:
        raise StoreError("this kind of store cannot be cleaned up")
    records = {record.run: record for record in await store.runs(limit=10**9)}
    sizes = await upkeep.sizes()
    runs = [_remembered(record, sizes.get(record.run, 0)) for record in records.values()]
    now = time.time() if now is None else now
    made = plan(runs, limits, now=now)
    if dry_run:
        expired = len(await store.examples.list()) - len(await store.examples.list(now=now))
        return _cleaning(made, records, dry_run=True, examples=expired)
    gone = set(await upkeep.forget([[verdict.run for verdict in family.runs] for family in made.forget]))
    examples = await store.examples.expire(now=now)
    freed = await upkeep.compact() if compact else 0
    return _cleaning(made, records, dry_run=False, gone=gone, freed=freed, examples=examples)


def _remembered(record: RunRecord, size: int) -> Remembered:
    return Remembered(
        run=record.run,
        workflow=record.workflow,
        status=record.status,
        started=record.started,
        ended=record.ended,
        parent=record.parent,
        fork_of=record.fork_of,
        owner=record.owner,
        size=size,
    )


def _cleaning(
    made: Plan,
    records: dict[RunId, RunRecord],
    *,
    dry_run: bool,
    gone: set[RunId] | None = None,
    freed: int = 0,
    examples: int = 0,
) -> Cleaning:
    went = [family for family in made.forget if gone is None or family.runs[0].run in gone]
    left = [family for family in made.forget if gone is not None and family.runs[0].run not in gone]
    return Cleaning(
        dry_run=dry_run,
        forgotten=tuple(_lines(went, records)),
        kept=(*_lines(left, records, "it was taken up again"), *_lines(made.keep, records)),
        bytes_before=made.size,
        bytes_after=made.size - sum(family.size for family in went),
        freed=freed,
        examples=examples,
    )


def _lines(
    families: Iterable[Family], records: dict[RunId, RunRecord], reason: str | None = None
) -> Iterable[Line]:
    for family in families:
        for verdict in family.runs:
            record = records[verdict.run]
            yield Line(
                run=record.run,
                workflow=record.workflow,
                status=record.status,
                ended=record.ended,
                reason=reason or verdict.reason,
            )
