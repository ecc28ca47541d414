"""Connections to a Postgres server: where it is, how it is reached, and reading with some patience.

The rest of the package names no host and no timeout. Every connection commits by itself:
whoever wants a transaction says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import psycopg
from psycopg import conninfo, waiting
from psycopg.abc import PQGen

from penstock.errors import StoreError

SCHEMA = "penstock"

MOST = 4
"""Connections that read at the same time."""

AGAIN = 0.05, 1.0
"""Seconds between tries to reach a server that is gone: the first, and the longest."""

_DEFAULTS = {
    "application_name": "penstock",
    "client_encoding": "utf8",
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""A server that vanished without a word is noticed in seconds. What the URL says goes first."""

_SETTINGS = """
    SELECT set_config('search_path', quote_ident(%s), false),
           CASE current_setting('synchronous_commit') WHEN 'off'
                THEN set_config('synchronous_commit', 'on', false) END
"""

_Answer = TypeVar("_Answer")


class Connection(psycopg.AsyncConnection[Any]):
    """One that ends when whoever waits for it is cancelled.

    Psycopg would ask the server to stop the query first. A server that is gone then turns the cancellation
    into the error of a lost connection, which we would take for a reason to try again.
    """

    async def wait(
        self,
        gen: PQGen[_Answer],
        interval: float = 0.1,
        timeout: float | None = None,  # noqa: ASYNC109 - psycopg's
    ) -> _Answer:
        try:
            return await waiting.wait_async(gen, self.pgconn.socket, interval=interval, timeout=timeout)
        except asyncio.CancelledError:
            self.pgconn.finish()
            raise


LOST = (psycopg.OperationalError, psycopg.InterfaceError, OSError)
"""What is raised when the server is gone. Any other error is an answer."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is."""

    server: str
    """As libpq wants it, with the password."""
    schema: str
    shown: str
    """As people may see it."""

    async def connect(self) -> Connection:
        db = await Connection.connect(self.server, autocommit=True)
        try:
            await db.execute(_SETTINGS, (self.schema,))
        except BaseException:
            db.pgconn.finish()
            raise
        return db

    def connect_at_once(self) -> psycopg.Connection[Any]:
        """Before there is an event loop."""
        db = psycopg.connect(self.server, autocommit=True)
        db.execute(_SETTINGS, (self.schema,))
        return db

    def trouble(self, error: BaseException) -> StoreError:
        return StoreError(f"{self.shown}: {words(error)}")


def parse(url: str) -> Address:
    """`postgresql://…` as libpq reads it; `?schema=` chooses where in the database the tables are."""
    parts = urlsplit(url)
    pairs = [pair.partition("=") for pair in parts.query.split("&") if pair]
    schema = unquote(next((value for name, _, value in pairs if name == "schema"), SCHEMA))
    query = "&".join("".join(pair) for pair in pairs if pair[0] != "schema")
    if not 0 < len(schema.encode()) <= 48 or "\0" in schema:
        raise StoreError(f"schema={schema!r}: the name of a schema has 1 to 48 bytes")
    try:
        given = conninfo.conninfo_to_dict(urlunsplit(parts._replace(query=query)))
    except psycopg.Error:
        raise StoreError("the store's URL is not one that Postgres understands (postgresql://…)") from None
    host, port = given.get("host") or given.get("hostaddr") or "localhost", given.get("port")
    place = f"{host}:{port}" if port else host
    settings: dict[str, Any] = {**_DEFAULTS, **given}
    shown = f"postgresql://{place}/{given.get('dbname') or ''}"
    return Address(conninfo.make_conninfo(**settings), schema, shown)


def words(error: BaseException) -> str:
    """What went wrong, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def text(value: str) -> str:
    """As Postgres can keep it: it knows no NUL, and no half of a character."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


class Readers:
    """A few connections that only read. A server that is gone is waited for, within reason."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[Connection] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places: asyncio.Semaphore

    async def rows(self, sql: str, values: Sequence[Any] = (), *, patience: float = 5.0) -> list[Any]:
        """Run one statement. `StoreError` when it is wrong, or when the server stays away too long."""
        deadline = time.monotonic() + patience
        wait, longest = AGAIN
        while True:
            try:
                async with self._connection() as db:
                    return await (await db.execute(sql, values, binary=True)).fetchall()
            except LOST as error:
                if time.monotonic() + wait > deadline:
                    raise self._address.trouble(error) from error
            except (psycopg.Error, UnicodeError) as error:
                raise self._address.trouble(error) from error
            await asyncio.sleep(wait)
            wait = min(wait * 2, longest)

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # connections belong to the loop they were made on
            await self.close()
            self._loop, self._places = loop, asyncio.Semaphore(MOST)
        async with self._places:
            db = self._idle.pop() if self._idle else await self._address.connect()
            try:
                yield db
            finally:
                if db.closed or db.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                    db.pgconn.finish()
                else:
                    self._idle.append(db)

    async def close(self) -> None:
        for db in self._idle:
            db.pgconn.finish()
        self._idle.clear()
