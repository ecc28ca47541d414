"""Commands that other processes leave in the file for whoever drives a run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import StoreError, UnknownRun
from penstock.ids import RunId
from penstock.run.commands import Command
from penstock.store.sqlite.jobs import Job

if TYPE_CHECKING:
    from penstock.store.sqlite.store import SqliteStore

POLL = 0.05
"""Seconds between looks at whether the file was changed by someone else: one cheap read."""

_WAITING = "SELECT run, id, body FROM commands WHERE taken IS NULL ORDER BY sent, rowid"

Receive = Callable[[RunId, Command], None]


class SqliteMail:
    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._receive: Receive | None = None
        self._postman: asyncio.Task[None] | None = None

    async def post(self, run: RunId, command: Command) -> None:
        store = self._store
        if not await store.query("SELECT 1 FROM runs WHERE run = ?", (run,)):
            raise UnknownRun(run)
        body = store.seal.seal(msgspec.json.encode(command), "commands", run, command.id)
        sql = "INSERT OR IGNORE INTO commands (id, run, sent, body) VALUES (?, ?, ?, ?)"
        await store.write([(sql, (command.id, run, time.time(), body))])

    async def answer(self, run: RunId, id: str) -> str | None:
        rows = await self._store.query("SELECT answer FROM commands WHERE run = ? AND id = ?", (run, id))
        return rows[0][0] if rows else None

    def answered(self, run: RunId, id: str, reason: str) -> None:
        sql = "UPDATE commands SET taken = ?, answer = ? WHERE run = ? AND id = ?"
        self._store.writer.put(Job([(sql, (time.time(), reason, run, id))], optional=True))

    def deliver(self, receive: Receive) -> None:
        self._receive = receive
        if self._postman is None:
            self._postman = asyncio.get_running_loop().create_task(self._carry(), name="penstock-mail")

    async def close(self) -> None:
        if self._postman is not None:
            self._postman.cancel()
            await asyncio.wait([self._postman])
            self._postman = None

    async def _carry(self) -> None:
        """Look for commands whenever the file has been changed by someone else."""
        store = self._store
        known: tuple[Any, ...] | None = None
        while True:
            await asyncio.sleep(POLL)
            if not store.journals or self._receive is None:
                continue
            try:
                now = (store.rows("PRAGMA data_version", ())[0][0], tuple(store.journals))
                if now != known:
                    self._hand_out()
                    known = now
            except StoreError:
                continue  # it will be there again, or the writer says so

    def _hand_out(self) -> None:
        store = self._store
        for run, id, body in store.rows(_WAITING, ()):
            journal = store.journals.get(run)
            if journal is None or id in journal.delivered or self._receive is None:
                continue
            journal.delivered.add(id)
            try:
                command = msgspec.json.decode(store.seal.open(body, "commands", run, id), type=Command)
            except (msgspec.MsgspecError, StoreError) as error:
                self.answered(run, id, f"it cannot be read: {error}")
            else:
                self._receive(run, command)
