"""Folds kept in the file, a few of each run. Losing them loses time, never a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import StoreError
from penstock.ids import RunId
from penstock.store.base import CheckpointRecord
from penstock.store.sqlite.writer import Job

if TYPE_CHECKING:
    from penstock.store.sqlite.store import SqliteStore

_NAMES = ("checkpoint", "run", "seq", "at", "layer", "size")
_COLUMNS = "checkpoint, run, seq, at, layer, length(state)"
_INSERT = "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?, ?)"
_PRUNE = """
    DELETE FROM checkpoints WHERE run = ?1 AND checkpoint NOT IN
        (SELECT checkpoint FROM checkpoints WHERE run = ?1 ORDER BY seq DESC LIMIT ?2)
"""


class SqliteCheckpoints:
    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def save(self, record: CheckpointRecord, state: bytes, *, keep: int) -> None:
        sealed = self._store.seal.seal(state)
        values = (record.checkpoint, record.run, record.seq, record.at, record.layer, sealed)
        self._store.writer.put(Job([(_INSERT, values), (_PRUNE, (record.run, keep))]))

    async def list(self, run: RunId) -> Sequence[CheckpointRecord]:
        sql = f"SELECT {_COLUMNS} FROM checkpoints WHERE run = ? ORDER BY seq"  # noqa: S608 - a constant
        return [_record(row) for row in await self._store.query(sql, (run,))]

    async def get(self, checkpoint: str) -> tuple[CheckpointRecord, bytes]:
        sql = f"SELECT {_COLUMNS}, state FROM checkpoints WHERE checkpoint = ?"  # noqa: S608 - a constant
        rows = await self._store.query(sql, (checkpoint,))
        if not rows:
            raise StoreError(f"there is no checkpoint {checkpoint!r}")
        return _record(rows[0][:6]), self._store.seal.open(rows[0][6])


def _record(row: Sequence[object]) -> CheckpointRecord:
    return CheckpointRecord(**dict(zip(_NAMES, row, strict=True)))  # type: ignore[arg-type]  # as the columns are
