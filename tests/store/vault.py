"""A store that is full of secrets, in a file or on a server, and how it looks from outside."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.ids import CommandId, RunId, StepId
from penstock.run.commands import Message
from penstock.run.events import TaskCompleted, WorkflowCompleted, WorkflowStarted
from penstock.store.base import CheckpointRecord, NewRun
from penstock.store.sealed import seal_of
from penstock.store.sqlite.rotate import rotate
from penstock.store.sqlite.store import SqliteStore
from penstock.workflow.spec import Step, Workflow

SECRET = "the cat sat on the mat"  # noqa: S105 - what must not be readable
RUNS = [RunId(f"run{n}") for n in range(12)]
PAYLOADS = 1 + 12 * 7
"""A definition, and for each run three rows of events, a blob, a checkpoint, a command and an example."""
EXAMPLE = {"workflow": "flow", "step": "s", "tool": "t", "at": 1.0, "expires": 9e12, "text": SECRET}
FLOW = Workflow(name="flow", steps=(Step(id=StepId("s"), uses="some:tool", with_={"text": SECRET}),))


class Place:
    """Where a store is, and how to look at it from outside."""

    kind: str
    address: str
    names: str
    """A query for the tables, and `rows` for what is in them."""

    def store(self, keys: Sequence[str]) -> Any: ...

    def rotate(self, **how: Any) -> int: ...

    def rows(self, sql: str) -> list[tuple[Any, ...]]: ...

    def change(self, sql: str) -> None: ...

    def at(self, keys: Sequence[str], scene: Callable[[Any], Awaitable[Any]]) -> Any:
        async def play() -> Any:
            store = self.store(keys)
            try:
                return await scene(store)
            finally:
                await store.close()

        return asyncio.run(play())

    def values(self) -> Iterator[bytes]:
        """Every payload there is."""
        for (table,) in self.rows(self.names):
            for row in self.rows(f"SELECT * FROM {table}"):  # noqa: S608 - our own tables
                yield from (bytes(value) for value in row if isinstance(value, bytes | memoryview))

    def raw(self) -> bytes:
        return b"".join(sorted(self.values()))


class File(Place):
    kind = "sqlite"
    names = "SELECT name FROM sqlite_master WHERE type = 'table'"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = str(path)

    def store(self, keys: Sequence[str]) -> SqliteStore:
        return SqliteStore(self.path, seal=seal_of(keys))

    def rotate(self, **how: Any) -> int:
        return rotate(self.path, **how)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.path)) as db:
            return db.execute(sql).fetchall()

    def change(self, sql: str) -> None:
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            db.execute(sql)

    def raw(self) -> bytes:
        """The files as they are, free space and all."""
        return b"".join(file.read_bytes() for file in sorted(self.path.parent.glob("penstock.db*")))


class Database(Place):
    kind = "postgres"

    def __init__(self, url: str) -> None:
        self.address = url
        self.schema = url.partition("schema=")[2]
        self.names = f"SELECT tablename FROM pg_tables WHERE schemaname = '{self.schema}'"  # noqa: S608 - ours

    def store(self, keys: Sequence[str]) -> Any:
        from penstock.store.postgres.store import PostgresStore

        return PostgresStore(self.address, seal=seal_of(keys))

    def rotate(self, **how: Any) -> int:
        from penstock.store.postgres.rotate import rotate as rotate_there

        return rotate_there(self.address, **how)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        from penstock.store.postgres.connections import parse

        with parse(self.address).connect_at_once() as db:
            return db.execute(sql.encode()).fetchall()

    def change(self, sql: str) -> None:
        from penstock.store.postgres.connections import parse

        with parse(self.address).connect_at_once() as db:
            db.execute(sql.encode())


async def fill(store: Any) -> None:
    for run in RUNS:
        started = WorkflowStarted(1, 100.0, FLOW.name, FLOW.hash, {"text": SECRET})
        journal = await store.create(NewRun(run=run, workflow=FLOW, hash=FLOW.hash), [started])
        journal.append([TaskCompleted(2, 100.0, StepId("s"), f"{SECRET} {run} " * 3_000)])
        await journal.sync()
        journal.note("succeeded", "")
        journal.append([WorkflowCompleted(3, 100.0, "succeeded", {"text": SECRET})])
        record = CheckpointRecord(checkpoint=f"{run}@2", run=run, seq=2, at=1.0, layer=0, size=1)
        store.checkpoints.save(record, SECRET.encode(), keep=5)
        await store.mail.post(run, Message(id=CommandId("c"), text=SECRET))
        await store.examples.add(f"{run}/e", EXAMPLE)
        journal.release()
        await journal.sync()


async def contents(store: Any) -> list[Any]:
    """Everything that a store has to say."""
    said: list[Any] = []
    for run in RUNS:
        said += [await store.load(run), await store.output(run, 2), await store.definition(run)]
        said.append((await store.checkpoints.get(f"{run}@2"))[1])
    commands = await store.query("SELECT run, id, body FROM commands ORDER BY run", ())
    said += [store.seal.open(body, "commands", run, id) for run, id, body in commands]
    return [*said, await store.examples.list(), await store.runs()]
