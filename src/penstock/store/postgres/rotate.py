"""Another key for a Postgres store, a first one, or none any more.

Every payload is opened and sealed again, some at a time: `rotation` says how, this where.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
from psycopg import sql

from penstock.errors import Owned, StoreError, WrongKey
from penstock.ids import RunId
from penstock.store import owner, rotation
from penstock.store.postgres.connections import Address, parse
from penstock.store.postgres.migrate import migrate, version
from penstock.store.postgres.store import FRESH, alive
from penstock.store.rotation import Progress, Table, reseal
from penstock.store.sealed import CHECKED, MARK, ONLY, NoSeal, Seal, seal_of, sealed_by

_TABLES = (
    Table("definitions", "body", "hash"),
    Table("commands", "body", "number", 0, ("run", "id")),
    Table("checkpoints", "state", "checkpoint", "", ("checkpoint", "run", "seq")),
    Table("examples", "body", "id"),
    Table("blobs", "body", "hash"),
    Table("events", "batches", "id", -1, (rotation.RUN, rotation.FIRST)),
)

_LIVE = f"SELECT run, process, {FRESH} FROM leases JOIN owners USING (owner)"  # noqa: S608 - constants

_NAMES = """
    SELECT CASE substring({payload} FROM 1 FOR 4) WHEN %s THEN substring({payload} FROM 5 FOR 8)
                ELSE ''::bytea END AS name,
           count(*)
      FROM {table} GROUP BY 1
"""

_SOME = """
    SELECT {row}, {payload}{key} FROM (
        SELECT *, sum(octet_length({payload})) OVER (ORDER BY {row}) - octet_length({payload}) AS before
          FROM (SELECT * FROM {table} WHERE {row} > %s ORDER BY {row} LIMIT %s) AS next
    ) AS counted WHERE before < %s ORDER BY {row}
"""
"""The next rows: as many as are no burden to hold."""

_UPDATE = "UPDATE {table} SET {payload} = %s WHERE {row} = %s AND {payload} = %s"

Connection = psycopg.Connection[Any]


def rotate(
    url: str,
    *,
    old: Sequence[str] = (),
    new: str | None,
    progress: Callable[[Progress], None] = lambda _: None,
    dry_run: bool = False,
) -> int:
    """Seal a store with another key; returns how many payloads were touched.

    `old` are the keys that open it now (none for a plain store). Without `new` it becomes plain.
    Raises `WrongKey` before anything is changed when one of its payloads cannot be opened, and
    `Owned` while a run is being driven. A `dry_run` only says how many payloads there are to touch.
    """
    address = parse(url)
    opener = seal_of([*([new] if new else []), *old], plain=True)
    sealer = seal_of([new] if new else [])
    try:
        with address.connect_at_once() as db:
            if version(db, address) < 1:
                raise StoreError(f"there is no store at {address.shown}, schema {address.schema!r}")
            _refuse_if_live(db)
            left = _left(db, address, opener, sealer)
            if dry_run:
                return left
            migrate(address, opener)
            _shut_out(db, sealer)
            db.execute(rotation.STRAYS)
            touched = reseal(
                lambda: _left(db, address, opener, sealer),
                lambda: (some for table in _TABLES for some in _slices(db, table, opener, sealer)),
                progress,
            )
            check = sealer.seal(opener.open(_check(db), *CHECKED), *CHECKED)
            db.execute("UPDATE meta SET value = %s WHERE name = 'seal'", (check,))
            if touched:
                _tidy(db)
    except psycopg.Error as error:
        raise address.trouble(error) from error
    return touched


def _refuse_if_live(db: Connection) -> None:
    for run, process, fresh in db.execute(_LIVE):
        if alive(process, fresh):
            raise Owned(RunId(run), str(owner.decode(process)))


def _shut_out(db: Connection, sealer: Seal | NoSeal) -> None:
    """From now on nobody who seals otherwise begins to drive a run, or wakes up and goes on with one."""
    put = "INSERT INTO meta VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    with db.transaction():
        db.execute("LOCK TABLE leases IN EXCLUSIVE MODE")
        _refuse_if_live(db)
        db.execute("DELETE FROM leases")
        db.execute(put, (ONLY, sealer.current))


def _check(db: Connection) -> bytes:
    """What tells a wrong key at once when the store is opened. It is the last to change."""
    row = db.execute("SELECT value FROM meta WHERE name = 'seal'").fetchone()
    return bytes(row[0]) if row else b""


def _left(db: Connection, address: Address, opener: Seal | NoSeal, sealer: Seal | NoSeal) -> int:
    """How many payloads are still to be sealed. One that could not be opened is an error."""
    opener.open(_check(db), *CHECKED)
    names = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (address.schema,))
    there = {name for (name,) in names}
    left = 0
    for table in (table for table in _TABLES if table.name in there):  # an older schema has fewer
        for name, count in db.execute(_query(_NAMES, table), (MARK,), binary=True):
            if name not in opener.names:
                raise WrongKey
            left += count if name != sealer.current else 0
    return left


def _slices(db: Connection, table: Table, opener: Seal | NoSeal, sealer: Seal | NoSeal) -> Iterator[int]:
    """Seal the payloads of one table, some in each transaction; yields how many each time."""
    after = table.first
    some, update = _query(_SOME, table), _query(_UPDATE, table)
    while rows := db.execute(some, (after, rotation.ROWS, rotation.BYTES), binary=True).fetchall():
        after = rows[-1][0]
        stale = [row for row in rows if sealed_by(row[1]) != sealer.current]
        if not stale:
            continue
        with db.transaction():
            for row, payload, *key in stale:
                where = (table.name, *(key or [row]))
                db.execute(update, (sealer.seal(opener.open(payload, *where), *where), row, payload))
        yield len(stale)


def _query(text: str, table: Table) -> sql.Composed:
    return sql.SQL(text).format(
        table=sql.Identifier(table.name),
        payload=sql.Identifier(table.payload),
        row=sql.Identifier(table.row),
        key=sql.SQL("".join(f", {part}" for part in table.key)),  # our own words
    )


def _tidy(db: Connection) -> None:
    """What was readable before is still in the tables' dead rows: write them anew."""
    db.execute("SET lock_timeout = '5s'")
    for table in _TABLES:
        with contextlib.suppress(psycopg.Error):  # someone reads, or no room for a copy: not an error
            db.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}").format(sql.Identifier(table.name)))
