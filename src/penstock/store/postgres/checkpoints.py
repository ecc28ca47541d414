"""Folds kept in the database, a few of each run. Losing them loses time, never a run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import StoreError
from penstock.ids import RunId
from penstock.store.base import CheckpointRecord
from penstock.store.gather import Fold, Gathering
from penstock.store.postgres.connections import words
from penstock.store.postgres.jobs import Job

if TYPE_CHECKING:
    from penstock.store.postgres.store import PostgresStore

_NAMES = ("checkpoint", "run", "seq", "at", "layer", "size")
_COLUMNS = "checkpoint, run, seq, at, layer, length(state)"
_INSERT = """
    INSERT INTO checkpoints
    SELECT * FROM unnest(%b::text[], %b::text[], %b::bigint[], %b::float8[], %b::integer[], %b::bytea[])
        ON CONFLICT (checkpoint) DO UPDATE
            SET run = excluded.run, seq = excluded.seq, at = excluded.at, layer = excluded.layer,
                state = excluded.state
"""
_PRUNE = """
    DELETE FROM checkpoints WHERE run = %s AND checkpoint NOT IN
        (SELECT checkpoint FROM checkpoints WHERE run = %s ORDER BY seq DESC LIMIT %s)
"""

_log = logging.getLogger("penstock.store")


class PostgresCheckpoints:
    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._gathering = Gathering(self._write)
        self.flush = self._gathering.flush

    def save(self, record: CheckpointRecord, state: bytes, *, keep: int) -> None:
        self._gathering.add(record, state, keep=keep)

    def _write(self, run: RunId, folds: Sequence[Fold], keep: int) -> None:
        seal = self._store.seal.seal
        rows = [
            (*where, record.at, record.layer, seal(state, "checkpoints", *where))
            for record, state in folds
            for where in [(record.checkpoint, run, record.seq)]
        ]
        columns = [list(column) for column in zip(*rows, strict=True)]
        statements = [(_INSERT, columns), (_PRUNE, (run, run, keep))]
        self._store.writer.put(Job(statements, failed=_warn, optional=True))

    async def list(self, run: RunId) -> Sequence[CheckpointRecord]:
        await self._written()
        sql = f"SELECT {_COLUMNS} FROM checkpoints WHERE run = %s ORDER BY seq"  # noqa: S608 - a constant
        return [_record(row) for row in await self._store.query(sql, (run,), run)]

    async def get(self, checkpoint: str) -> tuple[CheckpointRecord, bytes]:
        await self._written()
        sql = f"SELECT {_COLUMNS}, state FROM checkpoints WHERE checkpoint = %s"  # noqa: S608 - a constant
        rows = await self._store.query(sql, (checkpoint,))
        if not rows:
            raise StoreError(f"there is no checkpoint {checkpoint!r}")
        record = _record(rows[0][:6])
        where = (record.checkpoint, record.run, record.seq)
        return record, self._store.seal.open(rows[0][6], "checkpoints", *where)

    async def _written(self) -> None:
        """What was saved here is found here, at once."""
        if self._gathering:
            self.flush()
            await self._store.write([])


def _warn(error: Exception) -> None:
    _log.warning("a checkpoint was not kept: %s", words(error))


def _record(row: Sequence[object]) -> CheckpointRecord:
    return CheckpointRecord(**dict(zip(_NAMES, row, strict=True)))  # type: ignore[arg-type]  # as the columns are
