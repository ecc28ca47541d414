"""When a fold is worth keeping, and how a kept one is taken up again.

A checkpoint is a cache: everything in it can be folded from the journal again. So it may be
late, it may be missing, and one that cannot be read is passed over.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import StoreError
from penstock.ids import RunId
from penstock.run.events import Checkpointed, Event, LayerStarted, TaskCompleted
from penstock.run.restore import restore
from penstock.run.state import Run
from penstock.store.base import CheckpointRecord, Checkpoints
from penstock.workflow.graph import Graph

if TYPE_CHECKING:
    from penstock.engines.outputs import Outputs

KEPT = 5
"""Checkpoints of one run, unless `retention.checkpoints` says otherwise."""

SHARE = 0.005
"""Of the time a run takes, what keeping checkpoints may cost: large states are kept less often."""


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

    def consider(self, batch: Sequence[Event], outputs: Outputs) -> None:
        """Keep the fold if this batch is an occasion for it. The fold must stand at the end of the batch."""
        run = self._run
        if run.ended or batch[-1].seq != run.seq or not self._occasion(batch):
            return
        began = time.monotonic()
        state = msgspec.json.encode({"run": run.snapshot(), "maps": outputs.places()}, order="sorted")
        record = CheckpointRecord(
            checkpoint=f"{run.id}@{run.seq}",
            run=run.id,
            seq=run.seq,
            at=run.at,
            layer=run.layer,
            size=len(state),
        )
        self._checkpoints.save(record, state, keep=self._keep)
        now = time.monotonic()
        self._next = now + (now - began) / SHARE

    def _occasion(self, batch: Sequence[Event]) -> bool:
        if any(isinstance(event, Checkpointed) for event in batch):
            return True
        kinds = {"per_layer": LayerStarted, "per_task": TaskCompleted}
        kind = kinds.get(self._mode)
        if kind is None or time.monotonic() < self._next:
            return False
        return any(isinstance(event, kind) for event in batch)


async def newest(
    checkpoints: Checkpoints, run: RunId, graph: Graph, reducers: Any
) -> tuple[Run, dict[str, list[int]]] | None:
    """The latest kept fold that can be read, and where the items of its maps are found."""
    for record in reversed(await checkpoints.list(run)):
        try:
            _, state = await checkpoints.get(record.checkpoint)
            kept = msgspec.json.decode(state)
            return restore(run, graph, kept["run"], reducers=reducers), kept["maps"]
        except (KeyError, TypeError, ValueError, StoreError, msgspec.MsgspecError):
            continue  # damaged, or of another version: the journal has everything
    return None
