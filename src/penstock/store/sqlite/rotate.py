"""Another key for a SQLite store, a first one, or none any more.

Every payload is opened and sealed again, some at a time: `rotation` says how, this where.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import Owned, StoreError, WrongKey
from penstock.ids import RunId
from penstock.store import owner, rotation
from penstock.store.rotation import Progress, Table, reseal
from penstock.store.sealed import CHECKED, MARK, ONLY, NoSeal, Seal, seal_of, sealed_by
from penstock.store.sqlite.migrate import MARK as OURS
from penstock.store.sqlite.migrate import migrate
from penstock.store.sqlite.pen import busy

_PATIENCE = 60.0
"""Seconds to wait for others who write."""

_TABLES = (
    Table("definitions", "body", "hash"),
    Table("commands", "body", "rowid", -1, ("run", "id")),
    Table("checkpoints", "state", "rowid", -1, ("checkpoint", "run", "seq")),
    Table("examples", "body", "id"),
    Table("blobs", "body", "hash"),
    Table("events", "batches", "id", -1, (rotation.RUN, rotation.FIRST)),
)


def rotate(
    path: str | Path,
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
    path = Path(path)
    if not path.is_file():
        raise StoreError(f"there is no store at {path}")
    opener = seal_of([*([new] if new else []), *old], plain=True)
    sealer = seal_of([new] if new else [])
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)) as db:
            if db.execute("PRAGMA application_id").fetchone()[0] != OURS:
                raise StoreError(f"{path} is not a store of Penstock")
            _refuse_if_live(db)
            left = _left(db, opener, sealer)
            if dry_run:
                return left
            migrate(db, path, opener)
            _shut_out(db, sealer)
            db.execute("PRAGMA secure_delete = ON")  # what was readable must not stay in free space
            db.execute(rotation.STRAYS)
            touched = reseal(
                lambda: _left(db, opener, sealer),
                lambda: (some for table in _TABLES for some in _slices(db, table, opener, sealer)),
                progress,
            )
            check = sealer.seal(opener.open(_check(db), *CHECKED), *CHECKED)
            db.execute("UPDATE meta SET value = ? WHERE name = 'seal'", (check,))
            _tidy(db)
    except sqlite3.Error as error:
        said = "it is in use; close what uses it and try again" if busy(error) else str(error)
        raise StoreError(f"{path}: {said}") from error
    return touched


def _refuse_if_live(db: sqlite3.Connection) -> None:
    now = time.time()
    for run, who, expires in db.execute("SELECT run, owner, expires FROM leases"):
        holder = owner.decode(who)
        if expires > now and holder.dead() is not True:
            raise Owned(RunId(run), str(holder))


def _shut_out(db: sqlite3.Connection, sealer: Seal | NoSeal) -> None:
    """From now on nobody who seals otherwise begins to drive a run, or wakes up and goes on with one."""
    with _transaction(db):
        _refuse_if_live(db)
        db.execute("DELETE FROM leases")
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (ONLY, sealer.current))


def _check(db: sqlite3.Connection) -> bytes:
    """What tells a wrong key at once when the store is opened. It is the last to change."""
    found: bytes = db.execute("SELECT value FROM meta WHERE name = 'seal'").fetchone()[0]
    return found


def _left(db: sqlite3.Connection, opener: Seal | NoSeal, sealer: Seal | NoSeal) -> int:
    """How many payloads are still to be sealed. One that could not be opened is an error."""
    known = opener.names
    opener.open(_check(db), *CHECKED)
    left = 0
    there = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    for table in (table for table in _TABLES if table.name in there):  # an older file has fewer
        head = f"CASE substr({table.payload}, 1, 4) WHEN ? THEN substr({table.payload}, 5, 8) ELSE x'' END"
        sql = f"SELECT {head} AS name, count(*) FROM {table.name} GROUP BY name"  # noqa: S608 - our names
        for name, count in db.execute(sql, (MARK,)):
            if name not in known:
                raise WrongKey
            left += count if name != sealer.current else 0
    return left


def _slices(
    db: sqlite3.Connection, table: Table, opener: Seal | NoSeal, sealer: Seal | NoSeal
) -> Iterator[int]:
    """Seal the payloads of one table, some in each transaction; yields how many each time."""
    after = table.first
    columns = ", ".join((table.row, table.payload, *table.key))
    select = f"SELECT {columns} FROM {table.name} WHERE {table.row} > ? ORDER BY {table.row}"  # noqa: S608 - our names
    update = f"UPDATE {table.name} SET {table.payload} = ? WHERE {table.row} = ? AND {table.payload} = ?"  # noqa: S608 - the same
    while rows := _some(db, select, after):
        began = time.monotonic()
        after = rows[-1][0]
        stale = [row for row in rows if sealed_by(row[1]) != sealer.current]
        if not stale:
            continue
        with _transaction(db):
            for row, payload, *key in stale:
                where = (table.name, *(key or [row]))
                db.execute(update, (sealer.seal(opener.open(payload, *where), *where), row, payload))
        yield len(stale)
        time.sleep((time.monotonic() - began) / 10)  # let others in


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.rollback()
        raise
    db.commit()


def _some(db: sqlite3.Connection, sql: str, after: object) -> list[tuple[Any, ...]]:
    """The next rows: as many as are no burden to hold."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    with contextlib.closing(db.execute(sql, (after,))) as found:
        for row in found:
            rows.append(row)
            size += len(row[1])
            if len(rows) >= rotation.ROWS or size >= rotation.BYTES:
                break
    return rows


def _tidy(db: sqlite3.Connection) -> None:
    """What was readable before may still be in free space and in the log."""
    with contextlib.suppress(sqlite3.OperationalError):  # no room for a copy, or someone reads: not an error
        db.execute("VACUUM")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
