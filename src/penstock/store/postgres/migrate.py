"""The tables of a Postgres store, brought up to date: numbered scripts, forward only, a transaction each."""

from __future__ import annotations

from importlib import resources
from typing import Any

import psycopg
from psycopg import sql

from penstock.errors import StoreError
from penstock.store.postgres.connections import Address
from penstock.store.sealed import CHECK, CHECKED, ONLY, NoSeal, Seal, admitted, checked

_LOCK = "SELECT pg_advisory_xact_lock(%s, hashtext(%s))"
_MARK = 0x50454E53
"""Ours among the advisory locks of the database."""

_META = """
    CREATE TABLE meta (name text PRIMARY KEY, value bytea NOT NULL);
    INSERT INTO meta VALUES ('version', '0');
"""


def migrate(address: Address, seal: Seal | NoSeal) -> None:
    """Bring the schema up to date, or say why it cannot be used. One that is too new is not touched."""
    try:
        with address.connect_at_once() as db:
            _upgrade(db, address, _scripts())
            _check_key(db, seal)
    except psycopg.Error as error:
        raise address.trouble(error) from error


def _scripts() -> list[str]:
    folder = resources.files("penstock.store.postgres.migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(folder / name).read_text(encoding="utf-8") for name in names]


def _upgrade(db: psycopg.Connection[Any], address: Address, scripts: list[str]) -> None:
    """Whoever is quicker does the work; who comes second finds it done."""
    while (done := version(db, address)) < len(scripts):
        with db.transaction():
            db.execute(_LOCK, (_MARK, address.schema))
            if version(db, address) != done:
                continue
            if done < 0:
                name = sql.Identifier(address.schema)
                db.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
                db.execute(_META)
                continue
            db.execute(scripts[done].encode())
            db.execute("UPDATE meta SET value = %s WHERE name = 'version'", (b"%d" % (done + 1),))
    if done > len(scripts):
        raise StoreError(
            f"{address.shown} was written by a newer Penstock (schema {done}, this one knows "
            f"{len(scripts)}); upgrade Penstock, or choose another schema with ?schema="
        )


def version(db: psycopg.Connection[Any], address: Address) -> int:
    """The number of the last script that was applied; -1 where there is nothing at all."""
    found = db.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY tablename <> 'meta' LIMIT 1",
        (address.schema,),
    ).fetchone()
    if found is None:
        return -1
    row = None
    if found[0] == "meta":
        row = db.execute("SELECT value FROM meta WHERE name = 'version'").fetchone()
    if row is None:
        raise StoreError(
            f"{address.shown}: the schema {address.schema!r} holds tables of another program; "
            "choose another one with ?schema="
        )
    return int(row[0])


def _check_key(db: psycopg.Connection[Any], seal: Seal | NoSeal) -> None:
    """A wrong key is noticed here, before anything is written with it."""
    find = "SELECT value FROM meta WHERE name = 'seal'"
    row = db.execute(find).fetchone()
    if row is None:
        put = "INSERT INTO meta VALUES ('seal', %s) ON CONFLICT DO NOTHING"
        db.execute(put, (seal.seal(CHECK, *CHECKED),))
        row = db.execute(find).fetchone()
    if row is None or not checked(seal, bytes(row[0])):
        db.execute("UPDATE meta SET value = %s WHERE name = 'seal'", (seal.seal(CHECK, *CHECKED),))
    only = db.execute("SELECT value FROM meta WHERE name = %s", (ONLY,)).fetchone()
    if only is not None and not admitted(seal, bytes(only[0])):
        db.execute("DELETE FROM meta WHERE name = %s AND value = %s", (ONLY, only[0]))
