"""Closing a store that cannot be written: what counts is waited for, and nothing else is."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from penstock.errors import StoreError
from penstock.ids import RunId
from penstock.store.base import CheckpointRecord
from penstock.store.postgres import writer as postgres_writer
from penstock.store.postgres.store import PostgresStore
from penstock.store.sqlite import pen
from penstock.store.sqlite import writer as sqlite_writer
from penstock.store.sqlite.store import SqliteStore
from penstock.testing.conformance.places import A, Ears, batch, begin, beginning
from penstock.testing.postgres import Server

SOON = 6.0
"""Seconds that nobody needs to close what does not count."""


async def soon(work: Awaitable[None]) -> None:
    async with asyncio.timeout(SOON):
        await work


def fold(run: RunId = A) -> CheckpointRecord:
    return CheckpointRecord(checkpoint=f"{run}@1", run=run, seq=1, at=0.0, layer=0, size=2)


# --- a server ---

_HANG_UP = """
    SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
     WHERE pid <> pg_backend_pid() AND application_name = 'to be cut'
"""


@pytest.mark.parametrize("turns", range(7))
def test_closing_as_connections_are_lost_ends_whatever_has_been_noticed_of_it(url: str, turns: int) -> None:
    async def main() -> None:
        store = PostgresStore(url.replace("&schema=", "&application_name=to%20be%20cut&schema="))
        await begin(store)
        store.mail.deliver(lambda _run, _command: None)
        await store.follow(A, after=0)  # from here on it listens
        listening = asyncio.ensure_future(store.follow(A, after=1, within=SOON))
        await begin(store, RunId("b"))
        store.moved(A)
        await listening
        with psycopg.connect(url.partition("&schema=")[0], autocommit=True) as db:
            db.execute(_HANG_UP)
        for _ in range(turns):
            await asyncio.sleep(0)

        await soon(store.close())

    asyncio.run(main())


def test_closing_while_a_look_for_commands_is_never_answered_ends(server: Server) -> None:
    async def main() -> None:
        store = PostgresStore(server.url)
        (await begin(store)).append(batch(2))
        await store.write([])
        store.mail.deliver(lambda _run, _command: None)
        await store.runs()
        server.freeze()
        store.mail.knock()
        await asyncio.sleep(0.1)  # it asks
        ending = asyncio.ensure_future(store.close())
        await asyncio.sleep(0.1)  # it is told to stop asking
        await asyncio.to_thread(server.kill)

        await soon(ending)

    asyncio.run(main())


def test_a_server_that_is_gone_is_not_waited_for_when_all_events_are_durable(server: Server) -> None:
    async def main() -> None:
        store = PostgresStore(server.url)
        journal = await begin(store)
        journal.append(batch(2))
        await journal.sync()
        store.checkpoints.save(fold(), b"{}", keep=5)
        store.mail.answered(A, "some command", "")
        server.kill()

        await soon(store.close())

        await asyncio.to_thread(server.start)
        again = PostgresStore(server.url)
        assert list(await again.load(A)) == [*beginning(), *batch(2)]
        await again.close()

    asyncio.run(main())


def test_a_server_that_does_not_answer_is_not_waited_for_when_all_events_are_durable(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_writer, "SILENCE", 0.2)
    monkeypatch.setattr("penstock.store.postgres.store.PATIENCE", 0.2)

    async def main() -> None:
        store = PostgresStore(server.url)
        journal = await begin(store)
        journal.append(batch(2))
        await journal.sync()
        store.moved(A)  # others are still to be told of it
        server.freeze()
        try:
            await soon(store.close())
        finally:
            server.thaw()

    asyncio.run(main())


def test_events_that_a_server_never_got_are_named_while_waiting_and_in_the_error(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postgres_writer, "CLOSING", 0.8)

    async def main() -> None:
        store = PostgresStore(server.url)
        journal = await begin(store)
        server.kill()
        journal.append(batch(2, 3))
        waiting = asyncio.ensure_future(journal.sync())
        await asyncio.sleep(0)
        with pytest.raises(StoreError, match="it never got 3 events of run a"):
            await store.close()
        with pytest.raises(StoreError, match="closed"):
            await waiting

    with caplog.at_level(logging.WARNING, "penstock.store"):
        asyncio.run(main())
    assert next(m for m in caplog.messages if m.startswith("closing waits")).endswith(": 3 events of run a")


def test_events_that_are_waited_for_at_the_end_are_kept_when_the_server_comes_back(server: Server) -> None:
    async def main() -> None:
        store = PostgresStore(server.url)
        journal = await begin(store)
        ears = Ears()
        journal.watch(ears)
        server.kill()
        journal.append(batch(2))
        await ears.until(lambda heard: bool(heard.reasons))
        ending = asyncio.ensure_future(store.close())
        await asyncio.to_thread(server.start)
        await ending

        again = PostgresStore(server.url)
        assert list(await again.load(A)) == [*beginning(), *batch(2)]
        await again.close()

    asyncio.run(main())


# --- a file ---


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """Another connection, which may keep the file from being written."""
    monkeypatch.setattr(sqlite_writer, "PATIENCE", 0.8)
    monkeypatch.setattr(pen, "WAIT", 0.2)
    with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as db:
        yield db


async def test_a_file_that_cannot_be_written_is_not_waited_for_when_all_events_are_durable(
    tmp_path: Path, locked: sqlite3.Connection
) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    journal = await begin(store)
    journal.append(batch(2))
    await journal.sync()
    store.checkpoints.save(fold(), b"{}", keep=5)
    store.mail.answered(A, "some command", "")
    locked.execute("BEGIN IMMEDIATE")

    await soon(store.close())

    locked.execute("ROLLBACK")
    again = SqliteStore(tmp_path / "runs.db")
    assert list(await again.load(A)) == [*beginning(), *batch(2)]
    await again.close()


async def test_events_that_a_file_never_got_are_named_while_waiting_and_in_the_error(
    tmp_path: Path, locked: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    journal = await begin(store)
    locked.execute("BEGIN IMMEDIATE")
    journal.append(batch(2, 3))
    waiting = asyncio.ensure_future(journal.sync())
    await asyncio.sleep(0)

    with (
        caplog.at_level(logging.WARNING, "penstock.store"),
        pytest.raises(StoreError, match=r"runs\.db cannot be written .* it never got 3 events of run a"),
    ):
        await store.close()

    assert caplog.messages[0].endswith(": 3 events of run a")
    with pytest.raises(StoreError, match="closed"):
        await waiting


async def test_events_that_are_waited_for_at_the_end_are_kept_when_the_file_can_be_written_again(
    tmp_path: Path, locked: sqlite3.Connection
) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    journal = await begin(store)
    locked.execute("BEGIN IMMEDIATE")
    journal.append(batch(2))
    ending = asyncio.ensure_future(store.close())
    await asyncio.sleep(0.3)
    assert not ending.done()
    locked.execute("ROLLBACK")
    await ending

    again = SqliteStore(tmp_path / "runs.db")
    assert list(await again.load(A)) == [*beginning(), *batch(2)]
    await again.close()


_LEAVING = """
import asyncio, sys
from penstock.store.sqlite.store import SqliteStore

async def main():
    for _ in range(40):
        store = SqliteStore(sys.argv[1])
        asking = [asyncio.ensure_future(store.runs()) for _ in range(8)]
        await asyncio.sleep(0)
        for one in asking:
            one.cancel()
        await store.close()

asyncio.run(main())
"""


def test_questions_that_nobody_waits_for_any_more_do_not_meet_a_closed_file(tmp_path: Path) -> None:
    line = [sys.executable, "-X", "faulthandler", "-c", _LEAVING, str(tmp_path / "runs.db")]

    left = subprocess.run(line, capture_output=True, text=True, check=False, timeout=50)

    assert (left.returncode, left.stderr) == (0, "")


_LONG = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


async def test_a_query_that_would_go_on_for_ever_ends_with_the_store(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    asking = asyncio.ensure_future(store.query(_LONG, ()))
    while store._lock.acquire(blocking=False):
        store._lock.release()
        await asyncio.sleep(0)

    await soon(store.close())

    with pytest.raises(StoreError):
        await asking
