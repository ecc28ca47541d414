"""Failures remembered in the database, until they expire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.store.batches import value
from penstock.store.postgres.connections import text

if TYPE_CHECKING:
    from penstock.store.postgres.store import PostgresStore

_INSERT = """
    INSERT INTO examples (id, workflow, step, tool, at, expires, body)
    VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO NOTHING
"""


class PostgresExamples:
    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    async def add(self, id: str, example: Mapping[str, Any]) -> None:
        names = (text(example[name]) for name in ("workflow", "step", "tool"))
        body = self._store.seal.seal(msgspec.json.encode(example), "examples", text(id))
        times = float(example["at"]), float(example["expires"])
        await self._store.write([(_INSERT, (text(id), *names, *times, body))])

    async def list(
        self, *, workflow: str = "", step: str = "", tool: str = "", now: float = 0.0
    ) -> Sequence[dict[str, Any]]:
        asked = {
            "workflow = %s": text(workflow),
            "step = %s": text(step),
            "tool = %s": text(tool),
            "expires > %s": float(now),
        }
        tests = {test: value for test, value in asked.items() if value}
        where = " AND ".join(tests) or "true"
        sql = f"SELECT id, body FROM examples WHERE {where} ORDER BY at DESC, number DESC"  # noqa: S608 - constants
        rows = await self._store.query(sql, tuple(tests.values()))
        return [value(self._store.seal.open(body, "examples", id), "an example") for id, body in rows]

    async def expire(self, *, now: float) -> int:
        sql = "DELETE FROM examples WHERE expires <= %s RETURNING 1"
        return len((await self._store.write([(sql, (float(now),))], patient=False))[0])
