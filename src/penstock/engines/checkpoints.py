"""When a fold is worth keeping, and how a kept one is taken up again.

A checkpoint is a cache: everything in it can be folded from the journal again. So it may be
late, it may be missing, and one that cannot be read is passed over.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import StoreError
from penstock.ids import RunId
from penstock.run.events import Checkpointed, Event
from penstock.run.restore import restore
from penstock.run.state import Run
from penstock.store.base import CheckpointRecord, Checkpoints
from penstock.workflow.graph import Graph

if TYPE_CHECKING:
    from penstock.engines.items import Items

KEPT = 5
"""Checkpoints of one run, unless `retention.checkpoints` says otherwise."""

SHARE = 0.005
"""Of the time a run takes, what keeping checkpoints may cost: large states are kept less often."""


Fold = tuple[CheckpointRecord, bytes]
"""The run at some event, ready to be kept."""


class _Kept(msgspec.Struct):
    """What is in a checkpoint."""

    run: msgspec.Raw
    maps: msgspec.Raw
    """Where the items of its maps are found."""
    sum: int
    """Of both: a fold that a disk has damaged may well be one still, of something that never happened."""


class Keeper:
    """Keeps the checkpoints of one run."""

    def __init__(self, checkpoints: Checkpoints, run: Run) -> None:
        self._checkpoints = checkpoints
        self._run = run
        config = run.graph.workflow.config
        self._mode = config.checkpoints
        self._keep = int(config.retention.get("checkpoints", KEPT))
        self._next = 0.0
        """Not before this moment: the last one must have been worth its cost."""
        self._seq, self._layer = 0, -1
        """Where the run stood when it was kept."""

    def commanded(self, batch: Sequence[Event], items: Items) -> Fold | None:
        """The fold that someone asks for in this batch, as it stands: a busy run is soon somewhere else."""
        return self._fold(items) if any(type(event) is Checkpointed for event in batch) else None

    def keep(self, fold: Fold) -> None:
        """Keep a fold whose batches are all durable."""
        self._checkpoints.save(*fold, keep=self._keep)

    def consider(self, batch: Sequence[Event], items: Items) -> None:
        """Keep the fold if there is an occasion for it. The fold must stand at the end of the batch."""
        run = self._run
        if run.ended or batch[-1].seq != run.seq or not self._occasion():
            return
        began = time.monotonic()
        self.keep(self._fold(items))
        self._seq, self._layer = run.seq, run.layer
        now = time.monotonic()
        self._next = now + (now - began) / SHARE

    def _fold(self, items: Items) -> Fold:
        run = self._run
        state = _encoded(run, items)
        record = CheckpointRecord(
            checkpoint=f"{run.id}@{run.seq}",
            run=run.id,
            seq=run.seq,
            at=run.at,
            layer=run.layer,
            size=len(state),
        )
        return record, state

    def _occasion(self) -> bool:
        """Since the last one: batches that came too quickly to be looked at count as well."""
        if self._mode not in ("per_layer", "per_task") or time.monotonic() < self._next:
            return False
        run = self._run
        if self._mode == "per_layer":
            return run.layer != self._layer
        return bool(run.tasks) and run.tasks[-1] > self._seq


async def newest(
    checkpoints: Checkpoints, run: RunId, graph: Graph, reducers: Any
) -> tuple[Run, dict[str, list[int]]] | None:
    """The latest kept fold that can be read, and where the items of its maps are found."""
    for record in reversed(await checkpoints.list(run)):
        try:
            snapshot, places = _decoded((await checkpoints.get(record.checkpoint))[1])
            return restore(run, graph, snapshot, reducers=reducers), places
        except (KeyError, TypeError, ValueError, StoreError, msgspec.MsgspecError):
            continue  # damaged, or of another version: the journal has everything
    return None


def _encoded(run: Run, items: Items) -> bytes:
    snapshot = msgspec.json.encode(run.snapshot(), order="sorted")
    places = msgspec.json.encode(items.places(), order="sorted")
    return msgspec.json.encode(_Kept(msgspec.Raw(snapshot), msgspec.Raw(places), _sum(snapshot, places)))


def _decoded(state: bytes) -> tuple[dict[str, Any], dict[str, list[int]]]:
    kept = msgspec.json.decode(state, type=_Kept)
    if kept.sum != _sum(kept.run, kept.maps):
        raise ValueError("a checkpoint that is damaged")
    return msgspec.json.decode(kept.run), msgspec.json.decode(kept.maps)


def _sum(snapshot: bytes | msgspec.Raw, places: bytes | msgspec.Raw) -> int:
    return zlib.crc32(places, zlib.crc32(snapshot))
