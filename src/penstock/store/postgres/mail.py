"""Commands that other processes leave in the database for whoever drives a run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from psycopg.errors import ForeignKeyViolation

from penstock.errors import StoreError, UnknownRun
from penstock.ids import RunId
from penstock.run.commands import Command
from penstock.store.postgres.connections import text
from penstock.store.postgres.jobs import Job
from penstock.store.postgres.journal import PostgresJournal
from penstock.store.postgres.writer import guarded

if TYPE_CHECKING:
    from penstock.store.postgres.store import PostgresStore

LOOK = 2.0
"""Seconds between looks that nothing called for: messages are hints, and hints can be lost."""

Receive = Callable[[RunId, Command], None]

_POST = "INSERT INTO commands (id, run, body) VALUES (%s, %s, %s) ON CONFLICT (run, id) DO NOTHING"
_WAITING = """
    SELECT run, id, body FROM commands WHERE taken IS NULL AND run = ANY(%b::text[]) ORDER BY number
"""
_ANSWER = "UPDATE commands SET taken = clock_timestamp(), answer = %s WHERE run = %s AND id = %s"


class PostgresMail:
    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._receive: Receive | None = None
        self._postman: asyncio.Task[None] | None = None
        self._bell: asyncio.Event | None = None

    async def post(self, run: RunId, command: Command) -> None:
        store = self._store
        body = store.seal.seal(msgspec.json.encode(command), "commands", run, command.id)
        tell = ("SELECT pg_notify(%s, %s)", (store.channel("mail"), run))
        try:
            await store.write([(_POST, (command.id, run, body)), tell], patient=False)
        except ForeignKeyViolation:
            raise UnknownRun(run) from None

    async def answer(self, run: RunId, id: str) -> str | None:
        rows = await self._store.query("SELECT answer FROM commands WHERE run = %s AND id = %s", (run, id))
        return rows[0][0] if rows else None

    def answered(self, run: RunId, id: str, reason: str) -> None:
        journal = self._store.journals.get(run)

        def done(_: object) -> None:
            if journal is not None:
                journal.delivered.discard(id)

        self._store.writer.put(Job([(_ANSWER, (text(reason), run, id))], done, optional=True))

    def deliver(self, receive: Receive) -> None:
        self._receive = receive
        if self._postman is None or self._postman.done():
            self._bell = asyncio.Event()
            self._postman = asyncio.get_running_loop().create_task(
                self._carry(self._bell), name="penstock-mail"
            )
            self._store.news.start()

    def knock(self, run: str = "") -> None:
        """There may be something for a run; for any, when it is not named."""
        if self._bell is not None and (not run or run in self._store.journals):
            self._bell.set()

    async def close(self) -> None:
        if self._postman is not None and not self._postman.done():
            self._postman.cancel()
            await asyncio.wait([self._postman])
            self._postman = None

    async def _carry(self, bell: asyncio.Event) -> None:
        store = self._store
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await bell.wait()
            bell.clear()
            if not store.journals:
                continue
            with contextlib.suppress(StoreError):  # the server is gone: the next look will do
                for run, id, body in await store.query(_WAITING, (list(store.journals),)):
                    journal = store.journals.get(run)
                    if journal is not None and id not in journal.delivered:
                        self._hand_over(journal, id, body)

    def _hand_over(self, journal: PostgresJournal, id: str, body: bytes) -> None:
        if (receive := self._receive) is None:
            return
        journal.delivered.add(id)
        try:
            command: Command = msgspec.json.decode(
                self._store.seal.open(body, "commands", journal.run, id), type=Command
            )
        except (msgspec.MsgspecError, StoreError) as error:
            self.answered(journal.run, id, f"the command cannot be read: {error}")
            return
        guarded(lambda: receive(journal.run, command))
