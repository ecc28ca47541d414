"""The schema of a SQLite store, brought up to date: numbered scripts, forward only, one transaction each."""

from __future__ import annotations

import sqlite3
import time
from importlib import resources
from pathlib import Path

from penstock.errors import StoreError
from penstock.store.sealed import CHECK, CHECKED, ONLY, NoSeal, Seal, admitted, checked
from penstock.store.sqlite.pen import busy

MARK = 0x50454E53
"""`application_id` of our files: another program's database is left alone."""

_PATIENCE = 30.0
"""Seconds to wait while another process brings the same file up to date."""


def migrate(db: sqlite3.Connection, path: Path, seal: Seal | NoSeal) -> None:
    """Bring the file up to date, or say why it cannot be used. A file that is too new is not touched."""
    scripts = _scripts()
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            _upgrade(db, path, scripts)
            _check_key(db, seal)
        except sqlite3.OperationalError as error:
            if not busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def check(db: sqlite3.Connection, path: Path, seal: Seal | NoSeal) -> None:
    """Say why a file that may only be read cannot be used as it is, if that is so."""
    scripts = _scripts()
    version = _version(db, path, scripts)
    if version < len(scripts):
        raise StoreError(
            f"{path} was written by an older Penstock (schema {version}, this one needs {len(scripts)}) and "
            "may only be read; allow writing to it, so that it can be brought up to date"
        )
    row = db.execute("SELECT value FROM meta WHERE name = 'seal'").fetchone()
    if row is not None:
        checked(seal, row[0])


def _scripts() -> list[str]:
    folder = resources.files("penstock.store.sqlite.migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(folder / name).read_text(encoding="utf-8") for name in names]


def _version(db: sqlite3.Connection, path: Path, scripts: list[str]) -> int:
    """Up to which script the file has come."""
    # In this order: another process may make the tables and leave the mark at this very moment.
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    mark = db.execute("PRAGMA application_id").fetchone()[0]
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if mark != MARK and tables:
        raise StoreError(f"{path} is a database of another program; choose another file with --store")
    if version > len(scripts):
        raise StoreError(
            f"{path} was written by a newer Penstock (schema {version}, this one knows {len(scripts)}); "
            "upgrade Penstock, or choose another file with --store"
        )
    return version


def _upgrade(db: sqlite3.Connection, path: Path, scripts: list[str]) -> None:
    for number in range(_version(db, path, scripts) + 1, len(scripts) + 1):
        try:
            db.executescript(
                f"BEGIN IMMEDIATE; {scripts[number - 1]};"
                f"PRAGMA application_id = {MARK}; PRAGMA user_version = {number}; COMMIT;"
            )
        except sqlite3.OperationalError:
            if db.in_transaction:
                db.rollback()
            if db.execute("PRAGMA user_version").fetchone()[0] < number:
                raise  # not another process that was quicker


def _check_key(db: sqlite3.Connection, seal: Seal | NoSeal) -> None:
    """A wrong key is noticed here, before anything is written with it."""
    row = db.execute("SELECT value FROM meta WHERE name = 'seal'").fetchone()
    if row is None:
        db.execute("INSERT OR IGNORE INTO meta VALUES ('seal', ?)", (seal.seal(CHECK, *CHECKED),))
    elif not checked(seal, row[0]):
        db.execute("UPDATE meta SET value = ? WHERE name = 'seal'", (seal.seal(CHECK, *CHECKED),))
    only = db.execute("SELECT value FROM meta WHERE name = ?", (ONLY,)).fetchone()
    if only is not None and not admitted(seal, only[0]):
        db.execute("DELETE FROM meta WHERE name = ? AND value = ?", (ONLY, only[0]))
