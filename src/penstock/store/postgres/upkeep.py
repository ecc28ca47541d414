"""Keeping a Postgres database small while others write to it.

Deleting keeps nobody waiting here, so a family goes in one transaction, with everything that
it leaves. Foreign keys see to it that nothing goes that someone has begun to use meanwhile.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.errors import StoreError
from penstock.ids import RunId
from penstock.store.postgres.connections import LOST, Connection, words

if TYPE_CHECKING:
    from penstock.store.postgres.store import PostgresStore

TOGETHER = 200
"""Runs that disappear in one transaction. A larger family takes its own."""

_SIZES = """
    SELECT id >> 32, sum(octet_length(batches)) FROM events GROUP BY 1
    UNION ALL
    SELECT key, sum(octet_length(state)) FROM checkpoints JOIN runs USING (run) GROUP BY 1
    UNION ALL
    SELECT key, sum(octet_length(body))
      FROM blobs JOIN (SELECT hash, max(key) AS key FROM blob_uses GROUP BY hash) AS newest USING (hash)
     GROUP BY 1
"""

_LOCK = "SELECT run FROM runs WHERE run = ANY(%b::text[]) ORDER BY key FOR UPDATE"
"""Nobody can take one of them from here on."""

_FORGET = """
    DELETE FROM runs WHERE run = ANY(%(family)b::text[])
       AND NOT EXISTS (SELECT FROM runs WHERE run = ANY(%(family)b)
                          AND status NOT IN ('succeeded', 'failed', 'partial', 'aborted'))
       AND NOT EXISTS (SELECT FROM leases WHERE run = ANY(%(family)b) AND claim <> ALL(%(over)b::text[]))
       AND NOT EXISTS (SELECT FROM runs WHERE (parent = ANY(%(family)b) OR fork_of = ANY(%(family)b))
                          AND run <> ALL(%(family)b))
    RETURNING key, run
"""
_EVENTS = """
    DELETE FROM events USING unnest(%b::bigint[]) AS key
     WHERE id BETWEEN key << 32 AND key << 32 | 4294967295
"""

_SWEEP = (
    "DELETE FROM blobs WHERE NOT EXISTS (SELECT FROM blob_uses WHERE blob_uses.hash = blobs.hash)",
    """
    DELETE FROM definitions WHERE NOT EXISTS (SELECT FROM runs WHERE runs.hash = definitions.hash)
       AND NOT EXISTS (SELECT FROM pins WHERE pins.hash = definitions.hash)
    """,
    "DELETE FROM owners WHERE expires < clock_timestamp() - interval '1 day'",
)

_TABLES = (
    "blob_uses",
    "blobs",
    "checkpoints",
    "commands",
    "definitions",
    "events",
    "examples",
    "leases",
    "owners",
    "pins",
    "runs",
)
_ON_DISK = "SELECT sum(pg_total_relation_size(to_regclass(name))) FROM unnest(%b::text[]) AS name"


class PostgresUpkeep:
    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    async def sizes(self) -> Mapping[RunId, int]:
        sizes: dict[int, int] = defaultdict(int)
        for key, size in await self._store.query(_SIZES, ()):
            sizes[key] += int(size)
        return {run: sizes[key] for run, key in await self._store.query("SELECT run, key FROM runs", ())}

    async def forget(self, families: Sequence[Sequence[RunId]]) -> Sequence[RunId]:
        gone: list[RunId] = []
        async with self._connection() as db:
            for some in _bunches(families):
                gone += await self._forget(db, some)
            for sql in _SWEEP:
                with contextlib.suppress(psycopg.errors.ForeignKeyViolation):  # in use again: another time
                    await db.execute(sql)
        return gone

    async def _forget(self, db: Connection, families: Sequence[Sequence[RunId]]) -> list[RunId]:
        runs = [run for family in families for run in family]
        over = await self._store.claims_of_the_dead(runs)
        rows: list[Any] = []
        async with db.transaction():
            await db.execute(_LOCK, (runs,))
            for family in families:
                found = await db.execute(_FORGET, {"family": list(family), "over": over})
                rows += await found.fetchall()
            await db.execute(_EVENTS, ([key for key, _ in rows],))
        return [run for _, run in rows]

    async def compact(self) -> int:
        async with self._connection() as db:
            before = await self._on_disk(db)
            await db.execute("VACUUM (ANALYZE) " + ", ".join(_TABLES))
            return max(0, before - await self._on_disk(db))

    async def _on_disk(self, db: Connection) -> int:
        row = await (await db.execute(_ON_DISK, (list(_TABLES),))).fetchone()
        return int(row[0]) if row else 0

    @contextlib.asynccontextmanager
    async def _connection(self) -> Any:
        """One of our own: this may take a while."""
        try:
            async with await self._store.connect() as db:
                yield db
        except (psycopg.Error, *LOST) as error:
            raise StoreError(f"the store could not be cleaned up: {words(error)}") from error


def _bunches(families: Sequence[Sequence[RunId]]) -> Iterator[list[Sequence[RunId]]]:
    """Families that go in one transaction."""
    bunch: list[Sequence[RunId]] = []
    for family in families:
        if bunch and sum(map(len, bunch)) + len(family) > TOGETHER:
            yield bunch
            bunch = []
        bunch.append(family)
    if bunch:
        yield bunch
