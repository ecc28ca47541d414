"""Folds kept in the file, a few of each run. Losing them loses time, never a run."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import StoreError
from penstock.ids import RunId
from penstock.store.base import CheckpointRecord
from penstock.store.gather import Fold, Gathering
from penstock.store.sqlite.jobs import Job, Statement

if TYPE_CHECKING:
    from penstock.store.sqlite.store import SqliteStore

_NAMES = ("checkpoint", "run", "seq", "at", "layer", "size")
_COLUMNS = "checkpoint, run, seq, at, layer, length(state)"
_INSERT = """
    INSERT OR REPLACE INTO checkpoints
    SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE EXISTS (SELECT 1 FROM runs WHERE run = ?2)
"""
_PRUNE = """
    DELETE FROM checkpoints WHERE run = ?1 AND checkpoint NOT IN
        (SELECT checkpoint FROM checkpoints WHERE run = ?1 ORDER BY seq DESC LIMIT ?2)
"""


_log = logging.getLogger("penstock.store")


class SqliteCheckpoints:
    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._gathering = Gathering(self._write)
        self.flush = self._gathering.flush

    def save(self, record: CheckpointRecord, state: bytes, *, keep: int) -> None:
        self._gathering.add(record, state, keep=keep)

    def _write(self, run: RunId, folds: Sequence[Fold], keep: int) -> None:
        seal = self._store.seal.seal
        rows = [
            (_INSERT, (*where, record.at, record.layer, seal(state, "checkpoints", *where)))
            for record, state in folds
            for where in [(record.checkpoint, run, record.seq)]
        ]
        # To find the pages of an old fold takes as long as to write the new one, which need not wait for it.
        prune = partial(self._put, [(_PRUNE, (run, keep))])
        self._put(rows, lambda _: prune())

    def _put(self, statements: Sequence[Statement], done: Callable[[object], None] | None = None) -> None:
        with contextlib.suppress(StoreError):  # closed meanwhile: it loses time, never a run
            self._store.writer.put(Job(statements, done, _warn, optional=True))

    async def list(self, run: RunId) -> Sequence[CheckpointRecord]:
        await self._written()
        sql = f"SELECT {_COLUMNS} FROM checkpoints WHERE run = ? ORDER BY seq"  # noqa: S608 - a constant
        return [_record(row) for row in await self._store.query(sql, (run,))]

    async def get(self, checkpoint: str) -> tuple[CheckpointRecord, bytes]:
        await self._written()
        sql = f"SELECT {_COLUMNS}, state FROM checkpoints WHERE checkpoint = ?"  # noqa: S608 - a constant
        rows = await self._store.query(sql, (checkpoint,))
        if not rows:
            raise StoreError(f"there is no checkpoint {checkpoint!r}")
        record = _record(rows[0][:6])
        where = (record.checkpoint, record.run, record.seq)
        return record, self._store.seal.open(rows[0][6], "checkpoints", *where)

    async def _written(self) -> None:
        """What was saved here is found here, at once."""
        self.flush()
        for _ in ("the new ones are there", "the old ones are gone"):
            if self._store.writer.behind:
                await self._store.write([], patient=True)


def _warn(error: Exception) -> None:
    _log.warning("a checkpoint was not kept: %s", error)


def _record(row: Sequence[object]) -> CheckpointRecord:
    return CheckpointRecord(**dict(zip(_NAMES, row, strict=True)))  # type: ignore[arg-type]  # as the columns are
