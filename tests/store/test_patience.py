"""A child run waits for storage as its parent does: trouble with storage is no failure of a step."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import StoreError
from penstock.ids import RunId
from penstock.store.postgres.store import PostgresStore
from penstock.store.sqlite.store import SqliteStore
from penstock.testing.conformance.places import A, B, begin, beginning, new
from penstock.testing.postgres import Server

CHILD = RunId(f"{A}/s.1.1")


@contextlib.contextmanager
def full() -> Iterator[None]:
    """As when the disk is: no file of this process can be written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def gone(server: Server) -> Iterator[None]:
    server.kill()
    try:
        yield
    finally:
        server.start()


Trouble = contextlib.AbstractContextManager[None]


@pytest.fixture(params=["sqlite", "postgres"])
def troubled(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, Trouble]:
    """A store, and a time in which it cannot be written."""
    if request.param == "sqlite":
        return SqliteStore(tmp_path / "runs.db"), full()
    monkeypatch.setattr("penstock.store.postgres.store.PATIENCE", 0.05)
    server = request.getfixturevalue("server")
    return PostgresStore(server.url), gone(server)


async def waits(work: Awaitable[Any], trouble: Trouble) -> Any:
    """Whatever comes of it once the trouble is over; it must not have ended before."""
    with trouble:
        task = asyncio.ensure_future(work)
        assert (await asyncio.wait([task], timeout=0.8))[0] == set()
    async with asyncio.timeout(20):
        return await task


async def test_a_child_begins_when_storage_is_back(troubled: Any) -> None:
    store, trouble = troubled
    await begin(store, A)

    await waits(store.create(new(CHILD, parent=A), beginning()), trouble)

    assert list(await store.load(CHILD)) == beginning()
    await store.close()


async def test_a_child_is_taken_up_when_storage_is_back(troubled: Any) -> None:
    store, trouble = troubled
    await begin(store, A)
    (await store.create(new(CHILD, parent=A), beginning())).release()
    await store.write([])

    journal = await waits(store.reopen(CHILD), trouble)

    assert journal.durable == 1
    await store.close()


async def test_whoever_has_no_run_here_is_told_at_once(troubled: Any) -> None:
    store, trouble = troubled
    await begin(store, A)

    with trouble, pytest.raises(StoreError):
        async with asyncio.timeout(10):
            await store.create(new(B), beginning())
    await store.close()


async def test_what_a_child_has_written_is_read_when_the_server_is_back(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.store.postgres.store.PATIENCE", 0.05)
    store = PostgresStore(server.url)
    await begin(store, A)
    (await store.create(new(CHILD, parent=A), beginning())).release()
    await store.write([])

    found = await waits(
        asyncio.gather(
            store.load(CHILD), store.definition(CHILD), store.runs(run=CHILD), store.checkpoints.list(CHILD)
        ),
        gone(server),
    )

    assert [len(found[0]), len(found[2]), found[3]] == [1, 1, []]
    await store.close()
