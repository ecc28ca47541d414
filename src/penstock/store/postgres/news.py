"""What other processes say: a connection that only listens.

A message is a hint to look, never the news itself. Whoever was not listening when it came
looks anyway, once the connection is there again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import psycopg
from psycopg import sql

from penstock.store.postgres.connections import AGAIN, LOST, Address, Connection


class News:
    def __init__(self, address: Address, channels: Mapping[str, Callable[[str], None]]) -> None:
        self._address = address
        self._channels = {f"{address.schema}.{name}": hear for name, hear in channels.items()}
        """What to call with each message; with an empty one when messages may have been missed."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Listen from now on. The loop never waits for it."""
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._task = loop.create_task(self._listen(), name="penstock-news")

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _listen(self) -> None:
        wait, longest = AGAIN
        while True:
            try:
                db = await self._address.connect()
                try:
                    for channel in self._channels:
                        await db.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                    wait = AGAIN[0]
                    for hear in self._channels.values():
                        hear("")
                    await self._hear(db)
                finally:
                    db.pgconn.finish()
            except (psycopg.Error, OSError):
                await asyncio.sleep(wait)
                wait = min(wait * 2, longest)

    async def _hear(self, db: Connection) -> None:
        """Wait for messages until the connection is lost. Nothing happens in between, not even a timer."""
        loop = asyncio.get_running_loop()
        socket = db.fileno()
        over: asyncio.Future[None] = loop.create_future()

        def readable() -> None:
            try:
                db.pgconn.consume_input()
                while (message := db.pgconn.notifies()) is not None:
                    hear = self._channels.get(message.relname.decode())
                    if hear is not None:
                        hear(message.extra.decode())
            except LOST as error:
                loop.remove_reader(socket)  # at once: its number may be another's soon
                if not over.done():
                    over.set_exception(error)

        loop.add_reader(socket, readable)
        try:
            readable()  # what came with the answers to LISTEN
            await over
        finally:
            if not db.closed:
                loop.remove_reader(socket)
