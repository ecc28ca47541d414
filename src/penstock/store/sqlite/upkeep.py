"""Keeping a SQLite file small while others write to it.

Forgetting has two halves. The first is one short transaction: the runs are gone for everyone,
and their keys are noted. The second removes what they left in slices, with pauses in between,
and goes on where it was interrupted. Keys are never used again, so nobody notices the time
between the two.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import StoreError
from penstock.ids import RunId
from penstock.store import owner
from penstock.store.sqlite.jobs import Statement

if TYPE_CHECKING:
    from penstock.store.sqlite.store import SqliteStore

SLICE: Final = 0.020
"""Seconds that one transaction should take: others wait for it."""

TOGETHER: Final = 200
"""Runs that disappear in one transaction. A larger family takes its own."""

_OF_RUN = "id BETWEEN forgotten.key << 32 AND forgotten.key << 32 | 4294967295"

_EVENTS = "SELECT id >> 32, sum(length(batches)) FROM events GROUP BY id >> 32"
_CHECKPOINTS = "SELECT key, sum(length(state)) FROM checkpoints JOIN runs USING (run) GROUP BY key"
_NEWEST_USES = "SELECT hash, max(key) FROM blob_uses GROUP BY hash"
_BLOBS = "SELECT hash, length(body) FROM blobs"
"""By itself: within a join or a group SQLite would read the bodies to know their lengths."""

_FORGET = """
    INSERT INTO forgotten SELECT key FROM runs WHERE run IN (SELECT value FROM json_each(?1))
       AND NOT EXISTS (SELECT 1 FROM runs WHERE run IN (SELECT value FROM json_each(?1))
                          AND status NOT IN ('succeeded', 'failed', 'partial', 'aborted'))
       AND NOT EXISTS (SELECT 1 FROM leases WHERE run IN (SELECT value FROM json_each(?1))
                          AND claim NOT IN (SELECT value FROM json_each(?2)))
       AND NOT EXISTS (SELECT 1 FROM runs WHERE parent IN (SELECT value FROM json_each(?1))
                          AND run NOT IN (SELECT value FROM json_each(?1)))
       AND NOT EXISTS (SELECT 1 FROM runs WHERE fork_of IN (SELECT value FROM json_each(?1))
                          AND run NOT IN (SELECT value FROM json_each(?1)))
    RETURNING key
"""
_FORGOTTEN_RUNS = "run IN (SELECT run FROM runs JOIN forgotten USING (key))"
_GONE = (
    *(
        (f"DELETE FROM {table} WHERE {_FORGOTTEN_RUNS}", ())  # noqa: S608 - names of our tables
        for table in ("leases", "commands", "checkpoints")
    ),
    ("DELETE FROM runs WHERE key IN (SELECT key FROM forgotten)", ()),
)

_SOME_CHECKPOINTS = """
    DELETE FROM checkpoints WHERE checkpoint IN
        (SELECT checkpoint FROM checkpoints WHERE run IN (SELECT value FROM json_each(?1)) LIMIT ?2)
    RETURNING 1
"""
_SOME_EVENTS = f"""
    DELETE FROM events WHERE id IN (SELECT id FROM forgotten CROSS JOIN events ON {_OF_RUN} LIMIT ?1)
    RETURNING 1
"""  # noqa: S608 - a constant
_USES = "SELECT key, hash FROM forgotten CROSS JOIN blob_uses USING (key) ORDER BY key, hash LIMIT ?1"
_SOME_BLOBS = f"""
    DELETE FROM blobs WHERE hash IN (SELECT hash FROM ({_USES}))
       AND NOT EXISTS (SELECT 1 FROM blob_uses AS other
                        WHERE other.hash = blobs.hash AND other.key NOT IN (SELECT key FROM forgotten))
"""  # noqa: S608 - a constant
_SOME_USES = f"DELETE FROM blob_uses WHERE (key, hash) IN ({_USES}) RETURNING 1"  # noqa: S608 - a constant
_STRAYS = "SELECT DISTINCT key FROM blob_uses WHERE key > 0 AND key NOT IN (SELECT key FROM runs)"
"""A process that lost its run may still have booked a blob."""
_DONE = f"""
    DELETE FROM forgotten WHERE NOT EXISTS (SELECT 1 FROM events WHERE {_OF_RUN})
       AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob_uses.key = forgotten.key)
"""  # noqa: S608 - a constant

_UNUSED = """
    SELECT hash, (SELECT max(key) FROM runs) FROM definitions
     WHERE hash NOT IN (SELECT hash FROM runs UNION SELECT value FROM runs JOIN json_each(children))
"""
_DROP = """
    DELETE FROM definitions WHERE hash = ?1
       AND NOT EXISTS (SELECT 1 FROM runs LEFT JOIN json_each(children) AS child
                        WHERE runs.key > ?2 AND ?1 IN (runs.hash, child.value))
"""
"""Unless a run that began since we looked uses it."""


class SqliteUpkeep:
    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def sizes(self) -> Mapping[RunId, int]:
        return await asyncio.to_thread(self._sizes)

    def _sizes(self) -> dict[RunId, int]:
        with self._connection() as db:
            sizes: dict[int, int] = defaultdict(int)
            for sql in (_EVENTS, _CHECKPOINTS):
                for key, size in db.execute(sql):
                    sizes[key] += size
            newest = dict(db.execute(_NEWEST_USES))
            for hash_, size in db.execute(_BLOBS):
                sizes[newest.get(hash_, 0)] += size
            return {run: sizes[key] for run, key in db.execute("SELECT run, key FROM runs")}

    async def forget(self, families: Sequence[Sequence[RunId]]) -> Sequence[RunId]:
        gone: list[RunId] = []
        for some in _bunches(families):
            runs = json.dumps([run for family in some for run in family])
            await self._without_checkpoints(runs)
            over = json.dumps(await self._dead_claims(runs))
            names = ("SELECT key, run FROM runs WHERE run IN (SELECT value FROM json_each(?))", (runs,))
            marks = [(_FORGET, (json.dumps(list(family)), over)) for family in some]
            known, *results = await self._store.write([names, *marks, *_GONE])
            keys = {key for rows in results[: len(some)] for (key,) in rows}
            gone += [run for key, run in known if key in keys]
        await self._sweep()
        return gone

    async def _without_checkpoints(self, runs: str) -> None:
        """They may be large, and losing them loses nothing: they go first, in slices."""
        await self._slices(lambda n: [(_SOME_CHECKPOINTS, (runs, n))], some=8)

    async def _dead_claims(self, runs: str) -> list[str]:
        """Leases that mean nothing any more."""
        sql = "SELECT owner, claim, expires FROM leases WHERE run IN (SELECT value FROM json_each(?))"
        now = time.time()
        return [
            claim
            for who, claim, expires in await self._store.query(sql, (runs,))
            if expires <= now or owner.decode(who).dead()
        ]

    async def _sweep(self) -> None:
        """Remove what forgotten runs have left, of this call or of one that a crash cut short."""
        strays = await asyncio.to_thread(self._rows, _STRAYS)
        await self._store.write([("INSERT OR IGNORE INTO forgotten VALUES (?)", stray) for stray in strays])
        await self._slices(lambda n: [(_SOME_EVENTS, (n,))])
        await self._slices(lambda n: [(_SOME_BLOBS, (n,)), (_SOME_USES, (n,))], some=1)
        await self._store.write([(_DONE, ())])
        for unused in await asyncio.to_thread(self._rows, _UNUSED):
            await self._store.write([(_DROP, unused)])

    async def _slices(self, statements: Callable[[int], Sequence[Statement]], some: int = 64) -> None:
        """Repeat statements until the last one finds less than it may, with what fits in a slice."""
        while True:
            began = time.monotonic()
            results = await self._store.write(statements(some))
            took = time.monotonic() - began
            if len(results[-1]) < some:
                return
            some = max(1, some // 2) if took > 2 * SLICE else min(4096, some * 2) if took < SLICE else some
            await asyncio.sleep(took)  # whoever waited for us comes first

    async def compact(self) -> int:
        before = await asyncio.to_thread(self._on_disk)
        if (await self._store.query("PRAGMA auto_vacuum", ()))[0][0] == 2:
            await self._shrink()
        elif not await self._live():
            await asyncio.to_thread(self._rebuild)
        await asyncio.to_thread(self._checkpoint)
        return max(0, before - await asyncio.to_thread(self._on_disk))

    async def _shrink(self) -> None:
        """Page by page, in slices: others go on working."""
        pages, free = 256, -1
        while True:
            began = time.monotonic()
            before, free = free, await asyncio.to_thread(self._cut, pages)
            took = time.monotonic() - began
            if not free or free == before:
                return
            pages = (
                max(32, pages // 2) if took > 2 * SLICE else min(65536, pages * 2) if took < SLICE else pages
            )
            await asyncio.sleep(took)

    def _cut(self, pages: int) -> int:
        """Take free pages off the end of the file; returns how many are left."""
        with self._connection() as db, contextlib.suppress(sqlite3.OperationalError):
            db.executescript(f"PRAGMA incremental_vacuum({pages})")  # `execute` would take a single one
        return int(self._rows("PRAGMA freelist_count")[0][0])

    def _rebuild(self) -> None:
        """Write the file anew: writers wait as long as it takes. From then on it can shrink in slices."""
        with self._connection() as db:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            with contextlib.suppress(sqlite3.OperationalError):  # busy, or no room for a copy: another time
                db.execute("VACUUM")

    async def _live(self) -> bool:
        now = time.time()
        leases = await self._store.query("SELECT owner, expires FROM leases", ())
        return any(expires > now and not owner.decode(who).dead() for who, expires in leases)

    def _checkpoint(self) -> None:
        with self._connection() as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # busy is not an error: someone else will do it

    def _on_disk(self) -> int:
        path = self._store.path
        files = (path, path.with_name(path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def _rows(self, sql: str) -> list[Any]:
        with self._connection() as db:
            return db.execute(sql).fetchall()

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """One of our own: a long look at the file must not hold up the store's readers."""
        try:
            with contextlib.closing(
                sqlite3.connect(self._store.path, timeout=5.0, isolation_level=None)
            ) as db:
                yield db
        except sqlite3.Error as error:
            raise StoreError(f"{self._store.path}: {error}") from error


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
