"""Who commits to a SQLite file: the event loop while commits are quick, else the thread."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.ids import RunId, StepId
from penstock.run.events import Event, TaskCompleted, WorkflowStarted
from penstock.store.base import NewRun
from penstock.store.sealed import NoSeal
from penstock.store.sqlite import journal as journals
from penstock.store.sqlite import pen
from penstock.store.sqlite.journal import SqliteJournal
from penstock.store.sqlite.store import SqliteStore
from penstock.workflow.spec import Step, Workflow

RUN = RunId("run")
FLOW = Workflow(name="flow", steps=(Step(id=StepId("s"), uses="some:tool"),))


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def play(**given: Any) -> None:
        async def scene() -> None:
            await test(**given)

        asyncio.run(scene())

    return play


class Witness(NoSeal):
    """Notes which thread writes what."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def seal(self, data: bytes, table: str, *row: object) -> bytes:
        self.threads.append(threading.current_thread())
        return super().seal(data, table, *row)


class Reader:
    """Whoever waits until something is durable."""

    def __init__(self) -> None:
        self.seq = 0
        self.came = asyncio.Event()

    def arrived(self, seq: int) -> None:
        self.seq = seq
        self.came.set()

    def stalled(self, reason: str) -> None: ...

    def lost(self) -> None: ...

    async def until(self, seq: int) -> None:
        while self.seq < seq:
            self.came.clear()
            await self.came.wait()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk without a delay, whatever this one is like today."""
    monkeypatch.setattr(pen, "QUICK", math.inf)
    monkeypatch.setattr(journals, "_LONG", math.inf)


def batch(seq: int, output: str = "") -> list[Event]:
    return [TaskCompleted(seq, 100.0, StepId("s"), output)]


async def begun(store: SqliteStore) -> tuple[SqliteJournal, Reader]:
    first = WorkflowStarted(1, 100.0, FLOW.name, FLOW.hash, {})
    journal = await store.create(NewRun(run=RUN, workflow=FLOW, hash=FLOW.hash), [first])
    reader = Reader()
    journal.watch(reader)
    return journal, reader


async def chain(journal: SqliteJournal, reader: Reader, upto: int, output: str = "") -> None:
    """Batches, each after the one before is durable."""
    for seq in range(2, upto + 1):
        journal.append(batch(seq, output))
        await reader.until(seq)


async def by(path: Path, output: str = "") -> set[threading.Thread]:
    """The threads that write a chain of batches."""
    witness = Witness()
    store = SqliteStore(path, seal=witness)
    journal, reader = await begun(store)
    witness.threads.clear()
    await chain(journal, reader, 40, output)
    assert [event.seq for event in await store.load(RUN)] == list(range(1, 41))
    await store.close()
    return set(witness.threads)


@pytest.mark.usefixtures("quick")
@on_a_loop
async def test_while_commits_are_quick_the_loop_makes_them_itself(tmp_path: Path) -> None:
    assert threading.current_thread() in await by(tmp_path / "runs.db")


@on_a_loop
async def test_while_commits_are_slow_the_loop_never_waits_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pen, "QUICK", 0.0)

    assert threading.current_thread() not in await by(tmp_path / "runs.db")


@pytest.mark.usefixtures("quick")
@on_a_loop
async def test_a_loop_whose_turns_are_long_leaves_commits_to_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "_LONG", 0.0)

    assert threading.current_thread() not in await by(tmp_path / "runs.db")


@pytest.mark.usefixtures("quick")
@on_a_loop
async def test_large_batches_are_the_threads_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "LARGE", 10_000)

    assert threading.current_thread() not in await by(tmp_path / "runs.db", "x" * 11_000)


@pytest.mark.usefixtures("quick")
@on_a_loop
async def test_the_loop_does_not_wait_for_another_process_that_writes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    journal, reader = await begun(store)
    await chain(journal, reader, 10)
    loop = asyncio.get_running_loop()

    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = loop.time()
        journal.append(batch(11))
        for _ in range(5):
            await asyncio.sleep(0)
        assert loop.time() - began < 2.0  # SQLite itself would have waited for five seconds
        assert journal.durable == 10
        other.execute("ROLLBACK")

    await reader.until(11)
    assert [event.seq for event in await store.load(RUN)] == list(range(1, 12))
    await store.close()


@pytest.mark.usefixtures("quick")
@on_a_loop
async def test_what_comes_in_one_turn_of_the_loop_is_one_row(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    journal, reader = await begun(store)
    await chain(journal, reader, 10)

    for seq in range(11, 31):
        journal.append(batch(seq))
    await reader.until(30)

    rows = store.rows("SELECT last FROM events ORDER BY id DESC LIMIT 2", ())
    assert rows == [(30,), (10,)]
    await store.close()


@pytest.mark.usefixtures("quick")
@on_a_loop
async def test_another_owner_is_noticed_by_a_commit_of_the_loop(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    journal, reader = await begun(store)
    await chain(journal, reader, 10)
    gone = asyncio.Event()
    reader.lost = gone.set  # type: ignore[method-assign]  # what the engine would do

    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("UPDATE leases SET claim = 'theirs'")
    journal.append(batch(11))

    await gone.wait()
    assert [event.seq for event in await store.load(RUN)] == list(range(1, 11))
    await store.close()


@pytest.mark.usefixtures("quick")
@on_a_loop
async def test_closing_writes_what_the_loop_has_not_come_to(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    journal, reader = await begun(store)
    await chain(journal, reader, 10)
    journal.append(batch(11))

    await store.close()

    assert not store.writer.behind  # nobody has to look after it any more
    again = SqliteStore(tmp_path / "runs.db")
    assert [event.seq for event in await again.load(RUN)] == list(range(1, 12))
    await again.close()
