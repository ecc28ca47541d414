"""Checkpoints on their way to a store: of a run that is quick, only the newest are ever written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from penstock.ids import RunId
from penstock.store.base import CheckpointRecord

GATHER = 1.0
"""Seconds in which checkpoints gather."""

Fold = tuple[CheckpointRecord, bytes]


class Gathering:
    def __init__(self, write: Callable[[RunId, Sequence[Fold], int], None]) -> None:
        self._write = write
        """Takes the folds of one run, and how many of its checkpoints to keep."""
        self._fresh: dict[RunId, dict[str, tuple[CheckpointRecord, bytes, int]]] = {}

    def __bool__(self) -> bool:
        """Whether anything has not been handed over yet."""
        return bool(self._fresh)

    def add(self, record: CheckpointRecord, state: bytes, *, keep: int) -> None:
        if not self._fresh:
            asyncio.get_running_loop().call_later(GATHER, self.flush)
        fresh = self._fresh.setdefault(record.run, {})
        fresh[record.checkpoint] = record, state, keep
        if len(fresh) > keep:
            del fresh[min(fresh, key=lambda name: fresh[name][0].seq)]

    def flush(self) -> None:
        """Hand over what has gathered."""
        gathered, self._fresh = self._fresh, {}
        for run, fresh in gathered.items():
            folds = [(record, state) for record, state, _ in fresh.values()]
            self._write(run, folds, max(keep for *_, keep in fresh.values()))
