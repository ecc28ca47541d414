"""Runs remembered in a SQLite file: WAL, one writer thread, group commit.

Reading happens on a connection of its own and never waits for the writer. What is written
and when is `writer`'s business, what a batch looks like `batches`', who owns a run `owner`'s.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import Conflict, Owned, StoreError, UnknownRun
from penstock.ids import RunId
from penstock.run.commands import Command
from penstock.run.events import Event
from penstock.store import batches, owner
from penstock.store.base import CheckpointRecord, NewRun, RunRecord, Watcher
from penstock.store.migrate import migrate
from penstock.store.sealed import NoSeal, Seal
from penstock.store.writer import Job, Segment, Statement, Writer
from penstock.workflow import spec
from penstock.workflow.spec import Workflow

LAG = 0.010
"""Seconds that events may wait before the event loop makes room for the writer."""

GIVE_WAY = 0.00005
"""Seconds of room."""

LEASE = 10.0
"""Seconds after which a silent owner on another machine is taken for dead."""

POLL = 0.05
"""Seconds between looks for commands from other processes."""

_RUN_COLUMNS = """
    SELECT runs.run, workflow, hash, status, started, ended, parent, reason, source, fork_of, fork_at,
           leases.owner, leases.expires,
           coalesce((SELECT last FROM events WHERE id BETWEEN runs.key << 32 AND runs.key << 32 | 4294967295
                      ORDER BY id DESC LIMIT 1), fork_at, 0)
      FROM runs LEFT JOIN leases ON leases.run = runs.run
"""


class SqliteJournal:
    """What one run writes. Taken batches are on their way; `durable` names what has arrived."""

    lasting = True
    __slots__ = ("_last", "_loop", "_since", "_store", "_watcher", "durable", "key", "run")

    def __init__(self, store: SqliteStore, run: RunId, key: int, last: int) -> None:
        self.run = run
        self.key = key
        self.durable = self._last = last
        self._store = store
        self._watcher: Watcher | None = None
        self._since = 0.0
        self._loop = asyncio.get_running_loop()

    def watch(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def append(self, events: Sequence[Event]) -> None:
        put = self._store.writer.put
        line, blobs = batches.encode(events)
        for ref, body in blobs:
            put(Job([("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (ref, self._store.seal(body)))]))
        self._last = last = events[-1].seq
        put(Segment(self.key, events[0].seq, last, line, self._arrived, self._lost))
        now = time.monotonic()
        if not self._since:
            self._since = now
        elif now - self._since > LAG:
            time.sleep(GIVE_WAY)  # beside a busy loop the writer cannot get the GIL back

    def note(self, status: str, reason: str) -> None:
        ended = time.time() if status in ("succeeded", "failed", "partial", "aborted") else None
        sql = "UPDATE runs SET status = ?, reason = ?, ended = ? WHERE key = ?"
        self._store.writer.put(Job([(sql, (status, reason, ended, self.key))]))

    async def sync(self) -> None:
        await self._store.write([])

    def release(self) -> None:
        if self._store.journals.pop(self.run, None) is not None:
            sql = "DELETE FROM leases WHERE run = ? AND owner = ?"
            self._store.writer.put(Job([(sql, (self.run, owner.me().encoded()))]))

    def _arrived(self, last: int) -> None:
        """On the writer's thread."""
        _on(self._loop, self._hear, last)

    def _lost(self) -> None:
        """On the writer's thread."""
        self._store.journals.pop(self.run, None)
        if self._watcher is not None:
            _on(self._loop, self._watcher.lost)

    def _hear(self, last: int) -> None:
        self.durable = last
        self._since = 0.0 if last >= self._last else time.monotonic()
        if self._watcher is not None:
            self._watcher.arrived(last)

    def stalled(self, reason: str) -> None:
        """On the writer's thread."""
        if self._watcher is not None:
            _on(self._loop, self._watcher.stalled, reason)


class SqliteStore:
    def __init__(
        self, path: str | Path, *, synchronous: str = "FULL", seal: Seal | NoSeal | None = None
    ) -> None:
        self.path = Path(path)
        self._synchronous = synchronous
        self._sealer = seal or NoSeal()
        self.seal = self._sealer.seal
        self.journals: dict[RunId, SqliteJournal] = {}
        self._receive: Callable[[RunId, Command], None] | None = None
        self._postman: asyncio.Task[None] | None = None
        self._lock = threading.Lock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._reader = self._connect()
            migrate(self._reader, self.path, self._sealer)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{self.path}: {error}") from error
        self.writer = Writer(self._connect, seal=self.seal, beat=self._beat, stalled=self._stalled)

    # --- writing ---

    async def create(self, new: NewRun) -> SqliteJournal:
        body = self.seal(spec.encode(new.workflow))
        now = time.time()
        statements: list[Statement] = [
            ("INSERT OR IGNORE INTO definitions VALUES (?, ?, ?)", (new.hash, new.workflow.name, body)),
            (
                "INSERT INTO runs (run, workflow, hash, source, started, parent, fork_of, fork_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING key",
                (new.run, new.workflow.name, new.hash, new.source, now, new.parent, new.fork_of, new.fork_at),
            ),
            ("INSERT INTO leases VALUES (?, ?, ?)", (new.run, owner.me().encoded(), now + LEASE)),
        ]
        try:
            results = await self.write(statements)
        except sqlite3.IntegrityError:
            raise Conflict(new.run, 0) from None
        return self._own(new.run, results[1][0][0], new.fork_at or 0)

    async def reopen(self, run: RunId) -> SqliteJournal:
        record = await self._record(run)
        held = await self._query("SELECT owner, expires FROM leases WHERE run = ?", (run,))
        if held:
            holder, expires = owner.decode(held[0][0]), held[0][1]
            dead = holder.dead()
            if dead is False or (dead is None and expires > time.time()) or run in self.journals:
                raise Owned(run, str(holder))
        now = time.time()
        take = (
            "INSERT INTO leases VALUES (?1, ?2, ?3) ON CONFLICT (run) DO UPDATE SET owner = ?2, expires = ?3"
            " WHERE owner = ?4 RETURNING 1",
            (run, owner.me().encoded(), now + LEASE, held[0][0] if held else ""),
        )
        if not (await self.write([take]))[0]:
            raise Owned(run, "another process")  # it was quicker
        key = (await self._query("SELECT key FROM runs WHERE run = ?", (run,)))[0][0]
        return self._own(run, key, record.events)

    def _own(self, run: RunId, key: int, last: int) -> SqliteJournal:
        journal = self.journals[run] = SqliteJournal(self, run, key, last)
        return journal

    async def write(self, statements: Sequence[Statement]) -> list[list[Any]]:
        """Commit statements and return their rows. Raises what SQLite says of them."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[list[Any]]] = loop.create_future()
        job = Job(
            statements,
            lambda results: _on(loop, _settle, done, results, None),
            lambda error: _on(loop, _settle, done, None, error),
        )
        self.writer.put(job)
        return await done

    # --- reading ---

    async def load(self, run: RunId, *, after: int = 0) -> Sequence[Event]:
        return await asyncio.to_thread(self._load, run, after)

    def _load(self, run: RunId, after: int) -> list[Event]:
        """A fork's events are its own and, before them, those of the run it was forked from."""
        key, fork_of, fork_at = self._key(run)
        events: list[Event] = []
        if fork_of is not None and after < fork_at:
            events = [event for event in self._load(fork_of, after) if event.seq <= fork_at]
        base = key << 32
        start = self._rows("SELECT max(id) FROM events WHERE id BETWEEN ? AND ?", (base, base | after + 1))[
            0
        ][0]
        rows = self._rows(
            "SELECT batches FROM events WHERE id BETWEEN ? AND ? ORDER BY id",
            (start or base, base | 0xFFFFFFFF),
        )
        return events + batches.flat((self._sealer.open(row[0]) for row in rows), after=after)

    async def output(self, run: RunId, seq: int) -> Any:
        return await asyncio.to_thread(self._output, run, seq)

    def _output(self, run: RunId, seq: int) -> Any:
        key, fork_of, fork_at = self._key(run)
        if fork_of is not None and seq <= fork_at:
            return self._output(fork_of, seq)
        sql = "SELECT batches FROM events WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1"
        rows = self._rows(sql, (key << 32, key << 32 | seq))
        for batch in batches.decode(self._sealer.open(rows[0][0])) if rows else ():
            for event in batch:
                if event.seq == seq:
                    value, ref = batches.output_of(event)
                    return self._blob(ref) if ref else value
        raise StoreError(f"run {run} has no event {seq}")

    def _blob(self, ref: str) -> Any:
        rows = self._rows("SELECT body FROM blobs WHERE hash = ?", (ref,))
        if not rows:
            raise StoreError(f"the output {ref[:12]}… is missing from the store")
        return msgspec.json.decode(self._sealer.open(rows[0][0]))

    async def definition(self, run: RunId) -> Workflow:
        sql = "SELECT body FROM definitions JOIN runs USING (hash) WHERE run = ?"
        rows = await self._query(sql, (run,))
        if not rows:
            raise UnknownRun(run)
        return spec.decode(self._sealer.open(rows[0][0]))

    async def runs(self, *, limit: int = 100, **where: Any) -> Sequence[RunRecord]:
        names = {"run": "runs.run", "status": "status", "workflow": "workflow", "parent": "parent"}
        tests = " AND ".join(f"{names[name]} = ?" for name in where) or "true"
        sql = f"{_RUN_COLUMNS} WHERE {tests} ORDER BY started DESC, runs.key DESC LIMIT ?"
        return [_record(row) for row in await self._query(sql, (*where.values(), limit))]

    async def _record(self, run: RunId) -> RunRecord:
        found = await self.runs(run=run)
        if not found:
            raise UnknownRun(run)
        return found[0]

    def _key(self, run: RunId) -> tuple[int, RunId | None, int]:
        rows = self._rows("SELECT key, fork_of, fork_at FROM runs WHERE run = ?", (run,))
        if not rows:
            raise UnknownRun(run)
        return rows[0][0], rows[0][1], rows[0][2] or 0

    async def _query(self, sql: str, values: Sequence[Any]) -> list[Any]:
        return await asyncio.to_thread(self._rows, sql, values)

    def _rows(self, sql: str, values: Sequence[Any]) -> list[Any]:
        with self._lock:
            try:
                return self._reader.execute(sql, values).fetchall()
            except sqlite3.DatabaseError as error:
                raise StoreError(f"{self.path}: {error}") from error

    # --- commands from other processes ---

    async def post(self, run: RunId, command: Command) -> None:
        await self._record(run)
        body = self.seal(msgspec.json.encode(command))
        sql = "INSERT OR IGNORE INTO commands (id, run, sent, body) VALUES (?, ?, ?, ?)"
        await self.write([(sql, (command.id, run, time.time(), body))])

    async def answer(self, run: RunId, id: str) -> str | None:
        rows = await self._query("SELECT answer FROM commands WHERE run = ? AND id = ?", (run, id))
        return rows[0][0] if rows else None

    def deliver(self, receive: Callable[[RunId, Command], None]) -> None:
        self._receive = receive
        if self._postman is None:
            self._postman = asyncio.get_running_loop().create_task(self._carry(), name="penstock-mail")

    def answered(self, run: RunId, id: str, reason: str) -> None:
        sql = "UPDATE commands SET taken = ?, answer = ? WHERE run = ? AND id = ?"
        self.writer.put(Job([(sql, (time.time(), reason, run, id))]))

    async def _carry(self) -> None:
        """Look for commands whenever the file has been changed by someone else."""
        seen: set[tuple[RunId, str]] = set()
        version = -1
        while True:
            await asyncio.sleep(POLL)
            now = self._rows("PRAGMA data_version", ())[0][0]
            if now == version or not self.journals or self._receive is None:
                continue
            version = now
            rows = self._rows("SELECT run, id, body FROM commands WHERE taken IS NULL ORDER BY sent", ())
            for run, id, body in rows:
                if run in self.journals and (run, id) not in seen:
                    seen.add((run, id))
                    self._receive(run, msgspec.json.decode(self._sealer.open(body), type=Command))

    # --- checkpoints ---

    def save(self, record: CheckpointRecord, state: bytes, *, keep: int) -> None:
        prune = (
            "DELETE FROM checkpoints WHERE run = ?1 AND checkpoint NOT IN"
            " (SELECT checkpoint FROM checkpoints WHERE run = ?1 ORDER BY seq DESC LIMIT ?2)"
        )
        insert = "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?, ?)"
        values = (record.checkpoint, record.run, record.seq, record.at, record.layer, self.seal(state))
        self.writer.put(Job([(insert, values), (prune, (record.run, keep))]))

    async def checkpoints(self, run: RunId) -> Sequence[CheckpointRecord]:
        sql = "SELECT checkpoint, run, seq, at, layer, length(state) FROM checkpoints WHERE run = ? ORDER BY seq"
        names = ("checkpoint", "run", "seq", "at", "layer", "size")
        return [
            CheckpointRecord(**dict(zip(names, row, strict=True))) for row in await self._query(sql, (run,))
        ]

    async def checkpoint(self, checkpoint: str) -> tuple[CheckpointRecord, bytes]:
        sql = "SELECT checkpoint, run, seq, at, layer, length(state), state FROM checkpoints WHERE checkpoint = ?"
        rows = await self._query(sql, (checkpoint,))
        if not rows:
            raise StoreError(f"no checkpoint {checkpoint!r}")
        names = ("checkpoint", "run", "seq", "at", "layer", "size")
        record = CheckpointRecord(**dict(zip(names, rows[0][:6], strict=True)))
        return record, self._sealer.open(rows[0][6])

    # --- upkeep ---

    async def close(self) -> None:
        if self._postman is not None:
            self._postman.cancel()
            await asyncio.wait([self._postman])
            self._postman = None
        for journal in list(self.journals.values()):
            journal.release()
        await asyncio.to_thread(self.writer.close)
        self._reader.close()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=5.0, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {self._synchronous}")
        db.execute("PRAGMA busy_timeout = 5000")
        return db

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
        dead = who.dead()
        holder = str(who) if dead is False or (dead is None and expires > time.time()) else ""
    return RunRecord(
        run=run, workflow=workflow, hash=hash_, status=status, started=started, ended=ended, events=last,
        parent=parent, reason=reason, source=source, fork_of=fork_of, fork_at=fork_at, owner=holder,
    )  # fmt: skip


def _on(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *values: Any) -> None:
    """Call on the loop's thread; a loop that is closed has nobody left who cares."""
    try:
        loop.call_soon_threadsafe(call, *values)
    except RuntimeError:
        return


def _settle(done: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
