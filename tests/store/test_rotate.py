"""A store gets another key, a first one, or none, and nothing in it changes but the seal."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Owned, StoreError, WrongKey
from penstock.ids import CommandId, RunId, StepId
from penstock.run.commands import Message
from penstock.run.events import TaskCompleted, WorkflowCompleted, WorkflowStarted
from penstock.store.base import CheckpointRecord, NewRun
from penstock.store.rotation import Progress
from penstock.store.sealed import new_key, seal_of, sealed_by
from penstock.store.sqlite.rotate import rotate
from penstock.store.sqlite.store import SqliteStore
from penstock.workflow.spec import Step, Workflow

OLD, NEW, THIRD = new_key(), new_key(), new_key()
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


@pytest.fixture(params=["sqlite", "postgres"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return File(tmp_path / "penstock.db")
    return Database(request.getfixturevalue("url"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "penstock.db"


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
    bodies = await store.query("SELECT body FROM commands ORDER BY run", ())
    said += [store.seal.open(row[0]) for row in bodies]
    return [*said, await store.examples.list(), await store.runs()]


@pytest.mark.parametrize(
    ("before", "after"),
    [((OLD,), NEW), ((), NEW), ((OLD,), None), ((OLD,), OLD)],
    ids=["other", "on", "off", "same"],
)
def test_everything_reads_the_same_under_the_new_key_and_nothing_under_the_old(
    there: Place, before: tuple[str, ...], after: str | None
) -> None:
    there.at(before, fill)
    said = there.at(before, contents)
    heard: list[Progress] = []

    touched = there.rotate(old=before, new=after, progress=heard.append)

    new = [after] if after else []
    assert there.at(new, contents) == said
    assert heard[0] == (0, touched)
    assert heard[-1] == (touched, touched)
    assert touched == (0 if after in before else PAYLOADS)
    if after not in before and before and after:
        with pytest.raises(WrongKey):
            there.at(before, contents)
    if after:
        with pytest.raises(WrongKey):
            there.at((), contents)
        assert SECRET.encode() not in there.raw()
    else:
        assert SECRET.encode() in there.raw()


def test_a_store_goes_round_and_comes_home(there: Place) -> None:
    there.at((), fill)
    said = there.at((), contents)

    for old, new in (((), OLD), ((OLD,), NEW), ((THIRD, NEW), THIRD), ((THIRD,), None)):
        there.rotate(old=old, new=new)

    assert there.at((), contents) == said


def test_a_wrong_key_changes_nothing(there: Place) -> None:
    there.at([OLD], fill)
    there.at([NEW, OLD], lambda store: store.runs())  # from now on NEW seals; what is there is OLD's
    before = there.raw()

    for old in ([THIRD], [], [NEW]):
        with pytest.raises(WrongKey):
            there.rotate(old=old, new=THIRD)

    assert there.raw() == before


def test_while_a_run_is_driven_nothing_is_changed(there: Place) -> None:
    there.at([OLD], fill)

    async def scene(store: Any) -> None:
        journal = await store.reopen(RUNS[0])
        with pytest.raises(Owned, match=RUNS[0]):
            await asyncio.to_thread(there.rotate, old=[OLD], new=NEW)
        journal.release()

    there.at([OLD], scene)
    said = there.at([OLD], contents)
    there.rotate(old=[OLD], new=NEW)
    assert there.at([NEW], contents) == said


@pytest.mark.parametrize("crash", [1, 2, 3, 4])
def test_a_rotation_that_was_killed_is_finished_by_the_next_one(there: Place, crash: int) -> None:
    there.at([OLD], fill)
    said = there.at([OLD], contents)
    killed = f"""
import os, sys
from penstock.store import rotation
from penstock.store.{there.kind} import rotate as module
rotation.ROWS = 7
calls = []
def count(progress):
    calls.append(progress)
    if len(calls) > {crash}: os._exit(9)
module.rotate({there.address!r}, old=[{OLD!r}], new={NEW!r}, progress=count)
"""
    assert subprocess.run([sys.executable, "-c", killed], check=False).returncode == 9
    assert there.at([NEW, OLD], contents) == said  # between the two, both keys are needed
    heard: list[Progress] = []

    there.rotate(old=[OLD], new=NEW, progress=heard.append)

    assert heard[0].total < PAYLOADS
    assert there.at([NEW], contents) == said


def test_every_sealed_column_of_the_schema_is_rotated(there: Place) -> None:
    """A payload in a column that rotation does not know would be lost with the old key."""
    there.at([OLD], fill)
    there.rotate(old=[OLD], new=NEW)

    values = list(there.values())

    assert len(values) > PAYLOADS
    for value in values:
        assert seal_of([NEW]).open(value) is not None


def test_no_column_for_payloads_is_forgotten(there: Place) -> None:
    """Every table with bytes in it is filled by these tests, or nobody would notice."""
    there.at([OLD], fill)

    assert {sealed_by(value) for value in there.values()} - {b""} == {seal_of([OLD]).current}
    there.rotate(old=[OLD], new=NEW)
    assert {sealed_by(value) for value in there.values()} - {b""} == {seal_of([NEW]).current}


def test_a_dry_run_says_how_many_there_are_and_changes_nothing(there: Place) -> None:
    there.at([OLD], fill)
    before = there.raw()

    assert there.rotate(old=[OLD], new=NEW, dry_run=True) == PAYLOADS
    assert there.rotate(old=[], new=OLD, dry_run=True) == 0
    with pytest.raises(WrongKey):
        there.rotate(old=[THIRD], new=NEW, dry_run=True)

    assert there.raw() == before


def test_where_there_is_no_store_none_is_made(url: str) -> None:
    there = Database(url)

    with pytest.raises(StoreError, match="there is no store"):
        there.rotate(new=NEW)

    assert there.rows(there.names) == []


def test_other_files_are_left_alone(path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        rotate(path, new=NEW)
    assert not path.exists()

    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE mine (x)")
    with pytest.raises(StoreError, match="not a store of Penstock"):
        rotate(path, new=NEW)

    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError):
        rotate(path, new=NEW)
