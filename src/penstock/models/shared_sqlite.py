"""Health, cooldowns and buckets in a small SQLite file: shared by processes, kept over restarts and reboots.

WAL, so that looking never waits; no commit waits for the disk, since nothing here is worth that.
A process looks before each call whether anyone has written (some microseconds), and writes what it
knows four times a second, or at once when it finds a provider down. The file is a convenience:
where it cannot be used, `trouble` says so and every process knows what it finds out by itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from penstock.models.clocks import Clock
from penstock.models.shared import Dirty
from penstock.models.state import State, again
from penstock.policy.moments import Saved, moved, shift

VERSION: Final = 1
PATIENCE: Final = 20
"""Milliseconds to wait for another process that is writing. Such a write takes one."""

PAGES: Final = 500
"""Of the write-ahead log, before it is written back."""

MARK: Final = 0x50454E4D
"""`application_id` of our file: another program's database is left alone."""

_SCHEMA: Final = (
    "DROP TABLE IF EXISTS states",
    "DROP TABLE IF EXISTS slots",
    """
    CREATE TABLE states (
        name TEXT PRIMARY KEY, version INTEGER NOT NULL, boot TEXT NOT NULL, now REAL NOT NULL,
        wall REAL NOT NULL, state BLOB NOT NULL) WITHOUT ROWID
    """,
    """
    CREATE TABLE slots (
        slot TEXT PRIMARY KEY, holder TEXT NOT NULL, boot TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID
    """,
    f"PRAGMA application_id = {MARK}",
    f"PRAGMA user_version = {VERSION}",
)
"""What is known of another version is forgotten: it is found out again soon enough."""

_CLAIM = """
    INSERT INTO slots VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (slot) DO UPDATE SET holder = ?2, boot = ?3, until = ?4
        WHERE holder = ?2 OR boot <> ?3 OR until <= ?5
    RETURNING 1
"""
_WRITE = "INSERT OR REPLACE INTO states VALUES (?, (SELECT coalesce(max(version), 0) + 1 FROM states), ?, ?, ?, ?) RETURNING version"  # noqa: E501 - one statement

T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(State).decode


class SqliteShared:
    alone = False

    def __init__(self, path: str | Path, clock: Clock) -> None:
        self.path = Path(path)
        self.trouble = ""
        """Why nothing is shared just now; empty when all is well."""
        self._clock = clock
        self._db: sqlite3.Connection | None = None
        self._seen = -1
        """The `data_version` at the last pull: it moves when someone else has written."""
        self._newest = 0
        self._known: dict[str, int] = {}
        """The version of each state that we wrote or read last."""
        self._open()

    def pull(self) -> Mapping[str, State]:
        return self._tried(self._pulled) or {}

    def push(self, dirty: Mapping[str, Dirty]) -> Mapping[str, State] | None:
        return self._tried(lambda db: self._pushed(db, dirty))

    def claim(self, slot: str, holder: str, *, seconds: float) -> bool:
        now = self._clock.now()
        given = (slot, holder, self._clock.boot, now + seconds, now)
        got = self._tried(lambda db: db.execute(_CLAIM, given).fetchall())
        return bool(got) if got is not None else bool(self.trouble)  # nobody to share it with

    def release(self, slot: str, holder: str) -> None:
        self._tried(lambda db: db.execute("DELETE FROM slots WHERE slot = ? AND holder = ?", (slot, holder)))

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    # --- inside ---

    def _open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self.path, timeout=5.0, isolation_level=None, check_same_thread=False)
            db.execute("PRAGMA busy_timeout = 5000")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("BEGIN IMMEDIATE")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if tables and db.execute("PRAGMA application_id").fetchone()[0] != MARK:
                db.close()
                self.trouble = f"{self.path} is a database of another program"
                return
            for statement in () if version == VERSION else _SCHEMA:
                db.execute(statement)
            db.execute("COMMIT")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA busy_timeout = {PATIENCE}")
            db.execute(f"PRAGMA wal_autocheckpoint = {PAGES}")
            self._db = db
        except (OSError, sqlite3.Error) as error:
            self.trouble = f"{self.path}: {error}"

    def _tried(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        if self._db is None:
            return None
        try:
            done = work(self._db)
        except sqlite3.Error as error:
            busy = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
            if self._db.in_transaction:
                self._db.rollback()
            if not busy:
                self.trouble = f"{self.path}: {error}"
            return None
        self.trouble = ""
        return done

    def _pulled(self, db: sqlite3.Connection) -> dict[str, State]:
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version == self._seen:
            return {}
        rows = db.execute(
            "SELECT name, version, boot, now, wall, state FROM states WHERE version > ? ORDER BY version",
            (self._newest,),
        ).fetchall()
        found: dict[str, State] = {}
        for name, number, *saved in rows:
            self._newest = max(self._newest, number)
            if self._known.get(name, 0) >= number:
                continue
            self._known[name] = number
            state = self._read(saved)
            if state is not None:
                found[name] = state
        self._seen = version
        return found

    def _pushed(self, db: sqlite3.Connection, dirty: Mapping[str, Dirty]) -> dict[str, State]:
        clock, written = self._clock, {}
        known = dict(self._known)
        db.execute("BEGIN IMMEDIATE")
        for name, mine in dirty.items():
            state = mine.state
            row = db.execute(
                "SELECT version, boot, now, wall, state FROM states WHERE name = ?", (name,)
            ).fetchone()
            if row is not None and row[0] != known.get(name):
                base = self._read(row[1:])
                state = state if base is None else again(base, mine.changes, state)
            given = (name, clock.boot, clock.now(), clock.wall(), _encode(state))
            known[name] = db.execute(_WRITE, given).fetchone()[0]
            written[name] = state
        db.execute("COMMIT")
        self._known = known
        return written

    def _read(self, saved: Any) -> State | None:
        """A state as it would be on this boot; None where another version of us wrote it."""
        boot, now, wall, raw = saved
        try:
            state = _decode(raw)
        except msgspec.DecodeError:
            return None
        clock = self._clock
        by = shift(Saved(boot, now, wall), boot=clock.boot, now=clock.now(), wall=clock.wall())
        return moved(state, by)
