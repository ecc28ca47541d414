"""Runs remembered in a SQLite file: WAL, one writer thread, group commit.

Reading happens on a connection of its own and never waits for the writer. What is written
and when is `writer`'s business, what a batch looks like `batches`', who owns a run `owner`'s.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from penstock.errors import Conflict, Owned, StoreError, UnknownRun
from penstock.ids import RunId
from penstock.run.events import Event
from penstock.store import batches, definitions, owner
from penstock.store.base import NewRun, Pinned, RunRecord
from penstock.store.sealed import NoSeal, Seal, rekeyed
from penstock.store.sqlite import opening
from penstock.store.sqlite.checkpoints import SqliteCheckpoints
from penstock.store.sqlite.examples import SqliteExamples
from penstock.store.sqlite.jobs import Job, Statement
from penstock.store.sqlite.journal import LARGE, SqliteJournal, on_loop
from penstock.store.sqlite.mail import SqliteMail
from penstock.store.sqlite.room import Room
from penstock.store.sqlite.upkeep import SqliteUpkeep
from penstock.store.sqlite.writer import Writer
from penstock.workflow.spec import Workflow

LEASE = 10.0
"""Seconds after which a silent owner on another machine is taken for dead."""

_RUN_COLUMNS = """
    SELECT runs.run, workflow, hash, status, started, ended, parent, reason, source, fork_of, fork_at,
           leases.owner, leases.expires,
           coalesce((SELECT last FROM events WHERE id BETWEEN runs.key << 32 AND runs.key << 32 | 4294967295
                      ORDER BY id DESC LIMIT 1), fork_at, 0)
      FROM runs LEFT JOIN leases ON leases.run = runs.run
"""

_NEW_RUN = """
    INSERT INTO runs (run, workflow, hash, source, children, started, parent, fork_of, fork_at, status)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'running') RETURNING key
"""

_FIRST_EVENTS = "INSERT INTO events VALUES ((SELECT key FROM runs WHERE run = ?) << 32 | ?, ?, ?)"
_DEFINITION = "INSERT OR IGNORE INTO definitions VALUES (?, ?, ?)"
_USE = "INSERT OR IGNORE INTO blob_uses SELECT key, ? FROM runs WHERE run = ?"
_BLOB = "INSERT OR IGNORE INTO blobs VALUES (?, ?)"

_LEASE = """
    INSERT INTO leases
    VALUES (?1, CASE WHEN ?5 <> (SELECT value FROM meta WHERE name = 'key') THEN NULL ELSE ?2 END, ?3, ?4)
"""
"""Who does not seal with the only key that may seal owns nothing."""

_TAKE_LEASE = f"""
    {_LEASE}
        ON CONFLICT (run) DO UPDATE SET owner = ?2, claim = ?3, expires = ?4 WHERE claim = ?6
    RETURNING 1
"""

_LAST = """
    SELECT key, coalesce((SELECT last FROM events WHERE id BETWEEN key << 32 AND key << 32 | 4294967295
                           ORDER BY id DESC LIMIT 1), fork_at, 0)
      FROM runs WHERE run = ?
"""


class SqliteStore:
    lasting = True

    def __init__(
        self, path: str | Path, *, synchronous: str = "FULL", seal: Seal | NoSeal | None = None
    ) -> None:
        self.path = Path(path)
        self.seal = seal or NoSeal()
        self.journals: dict[RunId, SqliteJournal] = {}
        self.mail = SqliteMail(self)
        self.checkpoints = SqliteCheckpoints(self)
        self.examples = SqliteExamples(self)
        self.upkeep = SqliteUpkeep(self)
        self._lock = threading.Lock()
        self._reader, self._only_read = opening.reader(self.path, synchronous, self.seal)
        self.writer = Writer(
            partial(opening.connect, self.path, synchronous),
            name=str(self.path),
            seal=self.seal.seal,
            beat=self._beat,
            stalled=self._stalled,
        )
        self.room = Room(self.writer)

    # --- writing ---

    async def create(self, new: NewRun, events: Sequence[Event]) -> SqliteJournal:
        now, claim = time.time(), secrets.token_hex(8)
        pinned, children = definitions.pinned(new)
        seal = self.seal.seal
        line, blobs = batches.encode(events)
        first, last = events[0].seq, events[-1].seq
        statements: list[Statement] = [
            *(
                (_DEFINITION, (hash_, name, seal(body, "definitions", hash_)))
                for hash_, (name, body) in pinned.items()
            ),
            *((_BLOB, (ref, seal(body, "blobs", ref))) for ref, body in blobs),
            (
                _NEW_RUN,
                (
                    new.run,
                    new.workflow.name,
                    new.hash,
                    new.source,
                    json.dumps(children),
                    now,
                    new.parent,
                    new.fork_of,
                    new.fork_at,
                ),
            ),
            *((_USE, (ref, new.run)) for ref, _ in blobs),
            (_FIRST_EVENTS, (new.run, first, last, seal(line, "events", new.run, first))),
            (_LEASE, (new.run, owner.me().encoded(), claim, now + LEASE, self.seal.current)),
        ]
        if new.fork_of is not None:
            await self._record(new.fork_of)
        try:
            patient = owner.in_family(new.parent, self.journals)
            results = await self.write(statements, patient=patient, large=bool(blobs) or len(line) > LARGE)
        except sqlite3.IntegrityError as error:
            shut_out = error.sqlite_errorname == "SQLITE_CONSTRAINT_NOTNULL"
            raise rekeyed() if shut_out else Conflict(new.run, 0) from None
        key = next(rows[0][0] for rows in results if rows)
        return self._own(new.run, key, last, claim)

    async def reopen(self, run: RunId) -> SqliteJournal:
        await self.write([], patient=True)  # a release of ours may still be on its way
        await self._record(run)
        held = await self.query("SELECT owner, claim, expires FROM leases WHERE run = ?", (run,))
        if held:
            holder, expires = owner.decode(held[0][0]), held[0][2]
            if run in self.journals or (holder.dead() is not True and expires > time.time()):
                raise Owned(run, str(holder))
        claim, before = secrets.token_hex(8), held[0][1] if held else ""
        lease = (run, owner.me().encoded(), claim, time.time() + LEASE, self.seal.current, before)
        patient = owner.in_family(run, self.journals)
        try:
            taken, found = await self.write([(_TAKE_LEASE, lease), (_LAST, (run,))], patient=patient)
        except sqlite3.IntegrityError:
            raise rekeyed() from None
        if not taken:
            raise Owned(run, "another process")  # it was quicker
        key, last = found[0]
        return self._own(run, key, last, claim)

    def _own(self, run: RunId, key: int, last: int, claim: str) -> SqliteJournal:
        journal = self.journals[run] = SqliteJournal(self, run, key, last, claim)
        self.writer.stay_awake()  # there is a lease to keep now
        return journal

    async def write(
        self, statements: Sequence[Statement], *, patient: bool = False, large: bool = False
    ) -> list[list[Any]]:
        """Commit statements and return their rows. Raises what SQLite says of them.

        Trouble with the disk is an error too, unless the caller is `patient` and waits for its end.
        What is `large` is left to the writer's thread.
        """
        if self._only_read:
            raise StoreError(opening.only_read(self.path))
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[list[Any]]] = loop.create_future()
        job = Job(
            statements,
            lambda results: on_loop(loop, _settle, done, results, None),
            lambda error: on_loop(loop, _settle, done, None, error),
            patient=patient,
        )
        self.writer.leave(job)
        if large or not self.writer.here():
            self.writer.wake()
            self.room.wanted(loop)
        return await done

    # --- reading ---

    async def load(self, run: RunId, *, after: int = 0) -> Sequence[Event]:
        return batches.whole(await asyncio.to_thread(self._load, run, after), after=after)

    def _load(self, run: RunId, after: int) -> list[Event]:
        """A fork's events are its own and, before them, those of the run it was forked from."""
        key, fork_of, fork_at = self._key(run)
        events: list[Event] = []
        if fork_of is not None and after < fork_at:
            events = [event for event in self._load(fork_of, after) if event.seq <= fork_at]
        base = key << 32
        found = self.rows("SELECT max(id) FROM events WHERE id BETWEEN ? AND ?", (base, base | after + 1))
        start = found[0][0]
        rows = self.rows(
            "SELECT batches, id FROM events WHERE id BETWEEN ? AND ? ORDER BY id",
            (start or base, base | 0xFFFFFFFF),
        )
        return events + batches.flat((self._opened(run, *row) for row in rows), after=after)

    def _opened(self, run: RunId, body: bytes, id: int) -> bytes:
        return self.seal.open(body, "events", run, id & 0xFFFFFFFF)

    async def output(self, run: RunId, seq: int) -> Any:
        return await asyncio.to_thread(self._output, run, seq)

    def _output(self, run: RunId, seq: int) -> Any:
        key, fork_of, fork_at = self._key(run)
        if fork_of is not None and seq <= fork_at:
            return self._output(fork_of, seq)
        sql = "SELECT batches, id FROM events WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1"
        rows = self.rows(sql, (key << 32, key << 32 | seq))
        for batch in batches.decode(self._opened(run, *rows[0])) if rows else ():
            for event in batch:
                if event.seq == seq:
                    value, ref = batches.output_of(event)
                    return self._blob(ref) if ref else value
        raise StoreError(f"run {run} has no event {seq}")

    def _blob(self, ref: str) -> Any:
        rows = self.rows("SELECT body FROM blobs WHERE hash = ?", (ref,))
        if not rows:
            raise StoreError(f"the output {ref[:12]}… is missing from the store")
        return batches.blob(self.seal.open(rows[0][0], "blobs", ref), ref)

    async def definition(self, run: RunId) -> Pinned:
        sql = "SELECT hash, source, children FROM runs WHERE run = ?"
        rows = await self.query(sql, (run,))
        if not rows:
            raise UnknownRun(run)
        own, source, children = rows[0]
        return Pinned(
            workflow=await self._definition(own),
            children={name: await self._definition(hash_) for name, hash_ in json.loads(children).items()},
            source=source,
        )

    async def _definition(self, hash_: str) -> Workflow:
        rows = await self.query("SELECT body FROM definitions WHERE hash = ?", (hash_,))
        if not rows:
            raise StoreError(f"the definition {hash_} is missing from the store")
        return definitions.decode(self.seal.open(rows[0][0], "definitions", hash_), hash_)

    async def runs(
        self, *, limit: int = 100, before: RunId | None = None, **where: Any
    ) -> Sequence[RunRecord]:
        names = {"run": "runs.run", "status": "status", "workflow": "workflow", "parent": "parent"}
        tests = [f"{names[name]} IS ?" for name in where]
        values = [*where.values()]
        if before is not None:
            tests.append("(started, runs.key) < (SELECT b.started, b.key FROM runs AS b WHERE b.run = ?)")
            values.append(before)
        chosen = " AND ".join(tests) or "true"
        sql = f"{_RUN_COLUMNS} WHERE {chosen} ORDER BY started DESC, runs.key DESC LIMIT ?"
        return [_record(row) for row in await self.query(sql, (*values, limit))]

    async def _record(self, run: RunId) -> RunRecord:
        found = await self.runs(run=run)
        if not found:
            raise UnknownRun(run)
        return found[0]

    def _key(self, run: RunId) -> tuple[int, RunId | None, int]:
        rows = self.rows("SELECT key, fork_of, fork_at FROM runs WHERE run = ?", (run,))
        if not rows:
            raise UnknownRun(run)
        return rows[0][0], rows[0][1], rows[0][2] or 0

    async def query(self, sql: str, values: Sequence[Any]) -> list[Any]:
        return await asyncio.to_thread(self.rows, sql, values)

    def rows(self, sql: str, values: Sequence[Any]) -> list[Any]:
        with self._lock:
            try:
                return self._reader.execute(sql, values).fetchall()
            except sqlite3.DatabaseError as error:
                raise StoreError(opening.trouble(self.path, error)) from error

    # --- the rest ---

    async def close(self) -> None:
        await self.mail.close()
        for journal in list(self.journals.values()):
            journal.release()
        self.checkpoints.flush()
        try:
            await asyncio.to_thread(self.writer.close)
        finally:
            await asyncio.to_thread(self._close_reader)

    def _close_reader(self) -> None:
        """A query that nobody waits for any more may still be under way: closing under it would crash."""
        while not self._lock.acquire(timeout=0.05):
            self._reader.interrupt()
        try:
            self._reader.close()
        finally:
            self._lock.release()

    def _beat(self) -> Statement | None:
        """On the writer's thread: say that we are still here, for all our runs at once."""
        if not self.journals:
            return None
        return "UPDATE leases SET expires = ? WHERE owner = ?", (time.time() + LEASE, owner.me().encoded())

    def _stalled(self, reason: str) -> None:
        """On the writer's thread."""
        for journal in list(self.journals.values()):
            journal.stalled(reason)


def _record(row: Sequence[Any]) -> RunRecord:
    (
        run,
        workflow,
        hash_,
        status,
        started,
        ended,
        parent,
        reason,
        source,
        fork_of,
        fork_at,
        held,
        expires,
        last,
    ) = row
    holder = ""
    if held:
        who = owner.decode(held)
        holder = str(who) if who.dead() is not True and expires > time.time() else ""
    return RunRecord(
        run=run, workflow=workflow, hash=hash_, status=status, started=started, ended=ended, events=last,
        parent=parent, reason=reason, source=source, fork_of=fork_of, fork_at=fork_at, owner=holder,
    )  # fmt: skip


def _settle(done: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
