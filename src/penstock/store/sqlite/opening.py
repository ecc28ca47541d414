"""Connections to the file: to read and write, or to read alone; and what to do when there is none."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from penstock.errors import StoreError
from penstock.store.sealed import NoSeal, Seal
from penstock.store.sqlite import pen
from penstock.store.sqlite.migrate import check, migrate
from penstock.store.sqlite.pen import busy

ELSEWHERE = "choose another file with --store"

_LOCKED = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})
"""What SQLite says of a file or a folder that may not be written."""


def connect(path: Path, synchronous: str) -> sqlite3.Connection:
    """A connection that may write."""
    db = sqlite3.connect(path, timeout=pen.WAIT, isolation_level=None, check_same_thread=False)
    while True:
        try:
            if not db.execute("PRAGMA page_count").fetchone()[0]:
                db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of no effect once there are tables
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {synchronous}")
        except sqlite3.DatabaseError as error:
            if not busy(error):
                db.close()
                raise
        else:
            return db


def reader(path: Path, synchronous: str, seal: Seal | NoSeal) -> tuple[sqlite3.Connection, bool]:
    """A connection to the file, which is up to date and ours; and whether it may only be read."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        db = connect(path, synchronous)
        try:
            migrate(db, path, seal)
        except BaseException:
            db.close()
            raise
    except OSError as error:
        raise StoreError(f"{path} cannot be made: {error.strerror}; {ELSEWHERE}") from error
    except sqlite3.Error as error:
        if _code(error) not in _LOCKED or not _is(path, Path.is_file):
            raise StoreError(trouble(path, error)) from error
        return _looking(path, seal), True
    return db, False


def _looking(path: Path, seal: Seal | NoSeal) -> sqlite3.Connection:
    """A connection that only looks.

    SQLite wants to write beside the file even then. Unless someone else has it open, and so has made
    what it needs, it is told that nothing will change.
    """
    shared = _is(path.with_name(f"{path.name}-wal"), Path.exists)
    uri = f"file:{quote(str(path.absolute()))}?mode=ro{'' if shared else '&immutable=1'}"
    try:
        db = sqlite3.connect(
            uri, uri=True, timeout=pen.WAIT, isolation_level=None, check_same_thread=False
        )  # fmt: skip
        try:
            check(db, path, seal)
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        raise StoreError(trouble(path, error)) from error
    return db


def trouble(path: Path, error: sqlite3.Error) -> str:
    """What is wrong with the file, and what to do about it."""
    code = _code(error)
    if _is(path, Path.is_dir):
        return f"{path} is a folder; name a file in it with --store"
    if code == sqlite3.SQLITE_NOTADB:
        return f"{path}: {error}; {ELSEWHERE}"
    if code == sqlite3.SQLITE_CORRUPT:
        return f"{path}: {error}; restore it from a backup, or {ELSEWHERE}"
    if code in _LOCKED:
        return f"{path} cannot be opened ({error}); look at who may use it and its folder, or {ELSEWHERE}"
    return f"{path}: {error}"


def only_read(path: Path) -> str:
    return f"{path} may only be read; allow writing to it and its folder, or {ELSEWHERE}"


def _is(path: Path, what: Callable[[Path], bool]) -> bool:
    """What a path is; in a folder where nobody lets us look it is nothing."""
    try:
        return what(path)
    except OSError:
        return False


def _code(error: sqlite3.Error) -> int:
    """The kind of trouble, without the shade."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
