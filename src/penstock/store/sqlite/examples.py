"""Failures remembered in the file, until they expire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.store.batches import value

if TYPE_CHECKING:
    from penstock.store.sqlite.store import SqliteStore

_INSERT = "INSERT OR IGNORE INTO examples VALUES (?, ?, ?, ?, ?, ?, ?)"


class SqliteExamples:
    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def add(self, id: str, example: Mapping[str, Any]) -> None:
        columns = (example[name] for name in ("workflow", "step", "tool", "at", "expires"))
        body = self._store.seal.seal(msgspec.json.encode(example), "examples", id)
        await self._store.write([(_INSERT, (id, *columns, body))], patient=True)

    async def list(
        self, *, workflow: str = "", step: str = "", tool: str = "", now: float = 0.0
    ) -> Sequence[dict[str, Any]]:
        asked = {"workflow = ?": workflow, "step = ?": step, "tool = ?": tool, "expires > ?": now}
        tests = {test: value for test, value in asked.items() if value}
        where = " AND ".join(tests) or "true"
        sql = f"SELECT id, body FROM examples WHERE {where} ORDER BY at DESC, rowid DESC"  # noqa: S608 - constants
        rows = await self._store.query(sql, tuple(tests.values()))
        return [value(self._store.seal.open(body, "examples", id), "an example") for id, body in rows]

    async def expire(self, *, now: float) -> int:
        gone = await self._store.write([("DELETE FROM examples WHERE expires <= ? RETURNING 1", (now,))])
        return len(gone[0])
