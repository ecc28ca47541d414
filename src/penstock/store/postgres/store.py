"""Runs remembered in a Postgres database that many processes share.

Writing is `writer`'s business, reaching the server `connections`', what a batch looks like
`batches`', who owns a run `owner`'s. Time is the database's: its clock is the one that all
processes have in common.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Sequence
from typing import Any

import psycopg

from penstock.errors import Conflict, Owned, StoreError, UnknownRun
from penstock.ids import RunId
from penstock.run.events import Event
from penstock.store import batches, definitions, owner
from penstock.store.base import NewRun, Pinned, RunRecord
from penstock.store.postgres.checkpoints import PostgresCheckpoints
from penstock.store.postgres.connections import Readers, parse, text
from penstock.store.postgres.examples import PostgresExamples
from penstock.store.postgres.jobs import Job, Statement
from penstock.store.postgres.journal import PostgresJournal
from penstock.store.postgres.mail import PostgresMail
from penstock.store.postgres.migrate import migrate
from penstock.store.postgres.news import News
from penstock.store.postgres.upkeep import PostgresUpkeep
from penstock.store.postgres.writer import Writer
from penstock.store.sealed import NoSeal, Seal, rekeyed
from penstock.workflow.spec import Workflow

LEASE = 10
"""Seconds after which a silent owner on another machine is taken for dead."""

PATIENCE = 5.0
"""Seconds that a reader waits for a server that is gone; for runs driven here, as long as it takes."""

GATHER = 0.02
"""Seconds in which news of events gathers before others are told."""

FRESH = f"greatest(expires, pg_postmaster_start_time() + interval '{LEASE} s') > clock_timestamp()"
"""Owners could not be heard while the server was down: after a start they have time to come back."""

_RUN_COLUMNS = f"""
    SELECT runs.run, workflow, hash, status, extract(epoch FROM started)::float8,
           extract(epoch FROM ended)::float8,
           coalesce((SELECT last FROM events
                      WHERE id BETWEEN runs.key << 32 AND runs.key << 32 | 4294967295
                      ORDER BY id DESC LIMIT 1), fork_at, 0),
           parent, reason, source, fork_of, fork_at, process, {FRESH}
      FROM runs LEFT JOIN leases USING (run) LEFT JOIN owners USING (owner)
"""  # noqa: S608 - constants
_RUN_FIELDS = (
    "run", "workflow", "hash", "status", "started", "ended", "events", "parent", "reason", "source",
    "fork_of", "fork_at",
)  # fmt: skip

_HERE = """
    INSERT INTO owners VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s))
        ON CONFLICT (owner) DO UPDATE SET expires = excluded.expires
"""

_NEW_RUN = """
    INSERT INTO runs (run, workflow, hash, source, parent, fork_of, fork_at, claim)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
        ON CONFLICT (run) DO UPDATE SET claim = excluded.claim WHERE runs.claim = excluded.claim
    RETURNING key
"""

_DEFINITION = "INSERT INTO definitions VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
_BLOB = "INSERT INTO blobs VALUES (%s, %s) ON CONFLICT DO NOTHING"
_USE = """
    INSERT INTO blob_uses SELECT key, %s FROM runs WHERE run = %s AND claim = %s ON CONFLICT DO NOTHING
"""
_PIN = """
    INSERT INTO pins SELECT key, %s, %s FROM runs WHERE run = %s AND claim = %s ON CONFLICT DO NOTHING
"""

_FIRST_EVENTS = """
    INSERT INTO events SELECT key << 32 | %s, %s, %s FROM runs WHERE run = %s AND claim = %s
        ON CONFLICT DO NOTHING
"""

_NO_EVENTS = """
    DELETE FROM events USING runs
     WHERE run = %s AND claim = %s AND id BETWEEN key << 32 AND key << 32 | 4294967295
"""

_MINE = "CASE WHEN %s <> (SELECT value FROM meta WHERE name = 'key') THEN NULL ELSE %s END"
"""Who does not seal with the only key that may seal owns nothing."""

_FIRST_LEASE = f"""
    INSERT INTO leases SELECT run, {_MINE}, claim FROM runs WHERE run = %s AND claim = %s
        ON CONFLICT DO NOTHING
"""  # noqa: S608 - constants

_HELD = f"SELECT claim, process, {FRESH} FROM leases JOIN owners USING (owner) WHERE run = %s"  # noqa: S608 - constants

_TAKE_LEASE = f"""
    INSERT INTO leases VALUES (%s, {_MINE}, %s)
        ON CONFLICT (run) DO UPDATE SET owner = excluded.owner, claim = excluded.claim
            WHERE leases.claim IN (%s, excluded.claim)
    RETURNING 1
"""  # noqa: S608 - constants

_LET_GO = "DELETE FROM leases WHERE run = %s AND claim = %s"

_LINE = """
    WITH RECURSIVE line AS (
        SELECT run, key, fork_of, fork_at, 4294967295 AS until, 0 AS depth FROM runs WHERE run = %s
        UNION ALL
        SELECT runs.run, runs.key, runs.fork_of, runs.fork_at, least(line.until, line.fork_at), depth + 1
          FROM runs JOIN line ON runs.run = line.fork_of
    )
"""
"""A run and those it was forked from, each with the number of the last event that it shares."""

_EVENTS = f"""
    {_LINE}
    SELECT batches, run, id, until FROM line JOIN events
        ON id BETWEEN coalesce((SELECT max(id) FROM events
                                 WHERE id BETWEEN key << 32 AND (key << 32) + least(until, %s)), key << 32)
                  AND (key << 32) + until
     WHERE last > %s ORDER BY depth DESC, id
"""  # noqa: S608 - constants

_EVENT = f"""
    {_LINE}
    SELECT batches, run, id FROM line JOIN events ON id BETWEEN key << 32 AND (key << 32) + %s
     WHERE until >= %s AND coalesce(fork_at, 0) < %s ORDER BY depth, id DESC LIMIT 1
"""  # noqa: S608 - constants


_PINNED = """
    SELECT NULL, body, hash, source FROM runs JOIN definitions USING (hash) WHERE run = %s
    UNION ALL
    SELECT pins.name, body, pins.hash, source
      FROM runs JOIN pins USING (key) JOIN definitions ON definitions.hash = pins.hash WHERE run = %s
"""


class PostgresStore:
    lasting = True

    def __init__(self, url: str, *, seal: Seal | NoSeal | None = None) -> None:
        self._address = parse(url)
        self.connect = self._address.connect
        self.seal = seal or NoSeal()
        migrate(self._address, self.seal)
        self.journals: dict[RunId, PostgresJournal] = {}
        self.mail = PostgresMail(self)
        self.checkpoints = PostgresCheckpoints(self)
        self.examples = PostgresExamples(self)
        self.upkeep = PostgresUpkeep(self)
        self.news = News(self._address, {"mail": self.mail.knock, "events": self._heard})
        self.writer = Writer(self.connect, seal=self.seal.seal, beat=self._beat, stalled=self._stalled)
        self._readers = Readers(self._address)
        self._name = secrets.token_hex(8)
        """Of this store among the owners: a process may open several."""
        self._followers: dict[str, set[asyncio.Future[None]]] = {}
        self._moved: set[str] = set()
        self._telling: asyncio.Task[None] | None = None

    def channel(self, name: str) -> str:
        return f"{self._address.schema}.{name}"

    # --- writing ---

    async def create(self, new: NewRun, events: Sequence[Event]) -> PostgresJournal:
        claim = secrets.token_hex(8)
        mine = (new.run, claim)
        pinned, children = definitions.pinned(new)
        seal = self.seal.seal
        line, blobs = batches.encode(events)
        first, last = events[0].seq, events[-1].seq
        source = text(new.source)
        run = (new.run, new.workflow.name, new.hash, source, new.parent, new.fork_of, new.fork_at, claim)
        statements: list[Statement] = [
            *(
                (_DEFINITION, (hash_, name, seal(body, "definitions", hash_)))
                for hash_, (name, body) in pinned.items()
            ),
            (_NEW_RUN, run),
            *((_PIN, (name, hash_, *mine)) for name, hash_ in children.items()),
            *((_BLOB, (ref, seal(body, "blobs", ref))) for ref, body in blobs),
            *((_USE, (ref, *mine)) for ref, _ in blobs),
            (_FIRST_EVENTS, (first, last, seal(line, "events", new.run, first), *mine)),
            self._here(),
            (_FIRST_LEASE, (self.seal.current, self._name, *mine)),
        ]
        undo = [(_NO_EVENTS, mine), ("DELETE FROM runs WHERE run = %s AND claim = %s", mine)]
        patient = owner.in_family(new.parent, self.journals)
        while True:
            try:
                found = (await self.write(statements, patient=patient, undo=undo))[len(pinned)]
                break
            except psycopg.errors.ForeignKeyViolation as error:
                if error.diag.constraint_name == "runs_fork_of_fkey":
                    raise UnknownRun(new.fork_of or "") from None
                # a definition was swept away as it was used again
        if not found:
            raise Conflict(new.run, 0)
        return self._own(new.run, found[0][0], last, claim)

    async def reopen(self, run: RunId) -> PostgresJournal:
        patient = owner.in_family(run, self.journals)
        await self.write([], patient=patient)  # what was let go here a moment ago is free
        await self._record(run)
        held = await self.query(_HELD, (run,), run)
        if held:
            _, process, fresh = held[0]
            if run in self.journals or alive(process, fresh):
                raise Owned(run, str(owner.decode(process)))
        claim = secrets.token_hex(8)
        before = held[0][0] if held else ""
        take = (_TAKE_LEASE, (run, self.seal.current, self._name, claim, before))
        look = (f"{_RUN_COLUMNS.replace('SELECT', 'SELECT runs.key,', 1)} WHERE runs.run = %s", (run,))
        undo = [(_LET_GO, (run, claim))]
        _, taken, found = await self.write([self._here(), take, look], patient=patient, undo=undo)
        if not taken:
            raise Owned(run, "another process")  # it was quicker
        return self._own(run, found[0][0], found[0][7], claim)

    def _own(self, run: RunId, key: int, last: int, claim: str) -> PostgresJournal:
        journal = self.journals[run] = PostgresJournal(self, run, key, last, claim)
        self.mail.knock(run)
        return journal

    def disown(self, journal: PostgresJournal) -> bool:
        """Whether it was ours until now."""
        if self.journals.get(journal.run) is not journal:
            return False
        del self.journals[journal.run]
        return True

    async def write(
        self, statements: Sequence[Statement], *, patient: bool = True, undo: Sequence[Statement] = ()
    ) -> list[list[Any]]:
        """Commit statements and return their rows. Raises what Postgres says of them.

        A server that is gone is waited for: by the `patient` as long as it takes, by others not for
        ever. Who gives up `undo`es what may have been written without anyone hearing of it.
        """
        done: asyncio.Future[list[list[Any]]] = asyncio.get_running_loop().create_future()

        def settle(result: list[list[Any]]) -> None:
            if not done.done():
                done.set_result(result)

        def fail(error: Exception) -> None:
            if not done.done():
                done.set_exception(error)

        job = Job(statements, settle, fail)
        self.writer.put(job)
        try:
            while not (await asyncio.wait([done], timeout=None if patient else PATIENCE))[0]:
                if self.writer.stalled:
                    raise self._address.trouble(StoreError(self.writer.stalled))  # noqa: TRY301 - as when cancelled
        except BaseException:
            job.withdraw()
            if undo and job.sent:
                self.writer.put(Job(undo))
            raise
        try:
            return done.result()
        except psycopg.errors.ForeignKeyViolation:
            raise  # the caller knows what is missing
        except psycopg.errors.NotNullViolation:
            raise rekeyed() from None  # no owner
        except (psycopg.Error, UnicodeError) as error:
            raise self._address.trouble(error) from error

    # --- reading ---

    async def load(self, run: RunId, *, after: int = 0) -> Sequence[Event]:
        rows = await self.query(_EVENTS, (run, after + 1, after), run)
        if not rows:
            await self._record(run)
            return []
        return batches.whole(await asyncio.to_thread(self._decode, rows, after), after=after)

    def _decode(self, rows: Sequence[tuple[bytes, RunId, int, int]], after: int) -> list[Event]:
        events: list[Event] = []
        for body, run, id, until in rows:
            found = batches.flat((self._opened(body, run, id),), after=after)
            events += found if not found or found[-1].seq <= until else [e for e in found if e.seq <= until]
        return events

    def _opened(self, body: bytes, run: RunId, id: int) -> bytes:
        return self.seal.open(body, "events", run, id & 0xFFFFFFFF)

    async def output(self, run: RunId, seq: int) -> Any:
        rows = await self.query(_EVENT, (run, seq, seq, seq), run)
        for batch in batches.decode(self._opened(*rows[0])) if rows else ():
            for event in batch:
                if event.seq == seq:
                    value, ref = batches.output_of(event)
                    return await self._blob(run, ref) if ref else value
        await self._record(run)
        raise StoreError(f"run {run} has no event {seq}")

    async def _blob(self, run: RunId, ref: str) -> Any:
        rows = await self.query("SELECT body FROM blobs WHERE hash = %s", (ref,), run)
        if not rows:
            raise StoreError(f"the output {ref[:12]}… is missing from the store")
        return batches.blob(self.seal.open(rows[0][0], "blobs", ref), ref)

    async def definition(self, run: RunId) -> Pinned:
        rows = await self.query(_PINNED, (run, run), run)
        if not rows:
            raise UnknownRun(run)
        (_, body, hash_, source), *children = sorted(rows, key=lambda row: row[0] is not None)
        return Pinned(
            workflow=self._definition(body, hash_),
            children={name: self._definition(body, hash_) for name, body, hash_, _ in children},
            source=source,
        )

    def _definition(self, body: bytes, hash_: str) -> Workflow:
        return definitions.decode(self.seal.open(body, "definitions", hash_), hash_)

    async def runs(
        self, *, limit: int = 100, before: RunId | None = None, **where: Any
    ) -> Sequence[RunRecord]:
        names = {"run": "runs.run", "status": "status", "workflow": "workflow", "parent": "parent"}
        tests = [f"{names[name]} IS NOT DISTINCT FROM %s" for name in where]
        values = [*where.values()]
        if before is not None:
            tests.append("(started, runs.key) < (SELECT b.started, b.key FROM runs AS b WHERE b.run = %s)")
            values.append(before)
        chosen = " AND ".join(tests) or "true"
        sql = f"{_RUN_COLUMNS} WHERE {chosen} ORDER BY started DESC, runs.key DESC LIMIT %s"
        return [_record(row) for row in await self.query(sql, (*values, limit), where.get("run"))]

    async def _record(self, run: RunId) -> RunRecord:
        found = await self.runs(run=run)
        if not found:
            raise UnknownRun(run)
        return found[0]

    async def query(self, sql: str, values: Sequence[Any], run: RunId | None = None) -> list[Any]:
        """Rows; for a run that is driven here, or its child, the server is waited for as for its journal."""
        patience = math.inf if owner.in_family(run, self.journals) else PATIENCE
        return await self._readers.rows(sql, values, patience=patience)

    async def claims_of_the_dead(self, runs: Sequence[RunId]) -> list[str]:
        """Leases of these runs that mean nothing any more."""
        sql = _HELD.replace("run = %s", "run = ANY(%b::text[])")
        return [
            claim
            for claim, process, fresh in await self.query(sql, (list(runs),))
            if not alive(process, fresh)
        ]

    # --- following runs of other processes ---

    async def follow(self, run: RunId, *, after: int, within: float = 1.0) -> None:
        """Return when there may be events past `after`, at the latest in `within` seconds."""
        self.news.start()
        heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        followers = self._followers.setdefault(run, set())
        followers.add(heard)
        try:
            if (await self._record(run)).events <= after:
                await asyncio.wait([heard], timeout=within)
        finally:
            followers.discard(heard)
            if not followers:
                self._followers.pop(run, None)

    def _heard(self, run: str) -> None:
        for name in [run] if run else list(self._followers):
            for heard in self._followers.get(name, ()):
                if not heard.done():
                    heard.set_result(None)

    def moved(self, run: RunId) -> None:
        """Tell whoever follows the run that it went on, soon."""
        self._moved.add(run)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._tell(), name="penstock-tell")

    async def _tell(self) -> None:
        """Outside the transaction that wrote the events: one that notifies makes all others wait for it."""
        while self._moved:
            await asyncio.sleep(GATHER)
            runs = list(self._moved) if len(self._moved) <= 100 else [""]
            self._moved.clear()
            sql = "SELECT pg_notify(%s, run) FROM unnest(%b::text[]) AS run"
            try:
                await self._readers.rows(sql, (self.channel("events"), runs), patience=0)
            except StoreError:
                return  # who follows looks by himself now and then

    # --- the rest ---

    async def close(self) -> None:
        await self.mail.close()
        await self.news.close()
        self.checkpoints.flush()
        for journal in list(self.journals.values()):
            journal.release()
        self.writer.put(Job([("DELETE FROM owners WHERE owner = %s", (self._name,))], optional=True))
        try:
            await self.writer.close()
        finally:
            if self._telling is not None and not self._telling.done():
                await asyncio.wait([self._telling], timeout=PATIENCE)
                self._telling.cancel()
            await self._readers.close()

    def _here(self) -> Statement:
        return _HERE, (self._name, owner.me().encoded(), LEASE)

    def _beat(self) -> Statement | None:
        """Say that we are still here, for all our runs at once."""
        return self._here() if self.journals else None

    def _stalled(self, reason: str) -> None:
        for journal in list(self.journals.values()):
            journal.stalled(reason)


def _record(row: Sequence[Any]) -> RunRecord:
    process, fresh = row[12:]
    holder = str(owner.decode(process)) if process and alive(process, fresh) else ""
    return RunRecord(**dict(zip(_RUN_FIELDS, row, strict=False)), owner=holder)


def alive(process: str, fresh: bool) -> bool:
    """Whether an owner is there. Machines may share a name: only the same boot is the same machine."""
    who = owner.decode(process)
    return fresh and not (who.boot == owner.me().boot and who.dead())
