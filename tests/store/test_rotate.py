"""A store gets another key, a first one, or none, and nothing in it changes but the seal."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Owned, StoreError, WrongKey
from penstock.ids import CommandId, RunId, StepId
from penstock.run.commands import Message
from penstock.run.events import TaskCompleted, WorkflowCompleted, WorkflowStarted
from penstock.store.base import CheckpointRecord, NewRun
from penstock.store.sealed import new_key, seal_of
from penstock.store.sqlite.rotate import Progress, rotate
from penstock.store.sqlite.store import SqliteStore
from penstock.workflow.spec import Step, Workflow

OLD, NEW, THIRD = new_key(), new_key(), new_key()
SECRET = "the cat sat on the mat"  # noqa: S105 - what must not be readable
RUNS = [RunId(f"run{n}") for n in range(12)]
PAYLOADS = 1 + 12 * 6
"""A definition, and for each run three rows of events, a blob, a checkpoint and a command."""
FLOW = Workflow(name="flow", steps=(Step(id=StepId("s"), uses="some:tool", with_={"text": SECRET}),))


def at(path: Path, keys: Sequence[str], scene: Callable[[SqliteStore], Awaitable[Any]]) -> Any:
    async def play() -> Any:
        store = SqliteStore(path, seal=seal_of(keys))
        try:
            return await scene(store)
        finally:
            await store.close()

    return asyncio.run(play())


async def fill(store: SqliteStore) -> None:
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
        journal.release()
        await journal.sync()


async def contents(store: SqliteStore) -> list[Any]:
    """Everything that a store has to say."""
    said: list[Any] = []
    for run in RUNS:
        said += [await store.load(run), await store.output(run, 2), await store.definition(run)]
        said.append((await store.checkpoints.get(f"{run}@2"))[1])
        said += [
            store.seal.open(row[0])
            for row in await store.query("SELECT body FROM commands WHERE run = ?", (run,))
        ]
    return [*said, await store.runs()]


def raw(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob("penstock.db*")))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "penstock.db"


@pytest.mark.parametrize(
    ("before", "after"),
    [((OLD,), NEW), ((), NEW), ((OLD,), None), ((OLD,), OLD)],
    ids=["other", "on", "off", "same"],
)
def test_everything_reads_the_same_under_the_new_key_and_nothing_under_the_old(
    path: Path, before: tuple[str, ...], after: str | None
) -> None:
    at(path, before, fill)
    said = at(path, before, contents)
    heard: list[Progress] = []

    touched = rotate(path, old=before, new=after, progress=heard.append)

    new = [after] if after else []
    assert at(path, new, contents) == said
    assert heard[0] == (0, touched)
    assert heard[-1] == (touched, touched)
    assert touched == (0 if after in before else PAYLOADS)
    if after not in before and before and after:
        with pytest.raises(WrongKey):
            at(path, before, contents)
    if after:
        with pytest.raises(WrongKey):
            at(path, (), contents)
        assert SECRET.encode() not in raw(path)
    else:
        assert SECRET.encode() in raw(path)


def test_a_store_goes_round_and_comes_home(path: Path) -> None:
    at(path, (), fill)
    said = at(path, (), contents)

    for old, new in (((), OLD), ((OLD,), NEW), ((THIRD, NEW), THIRD), ((THIRD,), None)):
        rotate(path, old=old, new=new)

    assert at(path, (), contents) == said


def test_a_wrong_key_changes_nothing(path: Path) -> None:
    at(path, [OLD], fill)
    at(path, [NEW, OLD], lambda store: store.runs())  # from now on NEW seals; what is there is OLD's
    before = raw(path)

    for old in ([THIRD], [], [NEW]):
        with pytest.raises(WrongKey):
            rotate(path, old=old, new=THIRD)

    assert raw(path) == before


def test_while_a_run_is_driven_nothing_is_changed(path: Path) -> None:
    at(path, [OLD], fill)

    async def scene(store: SqliteStore) -> None:
        journal = await store.reopen(RUNS[0])
        with pytest.raises(Owned, match=RUNS[0]):
            await asyncio.to_thread(rotate, path, old=[OLD], new=NEW)
        journal.release()

    at(path, [OLD], scene)
    said = at(path, [OLD], contents)
    rotate(path, old=[OLD], new=NEW)
    assert at(path, [NEW], contents) == said


@pytest.mark.parametrize("crash", [1, 2, 3, 4])
def test_a_rotation_that_was_killed_is_finished_by_the_next_one(path: Path, crash: int) -> None:
    at(path, [OLD], fill)
    said = at(path, [OLD], contents)
    killed = f"""
import os, sys
from penstock.store.sqlite import rotate as module
module.ROWS = 7
calls = []
def count(progress):
    calls.append(progress)
    if len(calls) > {crash}: os._exit(9)
module.rotate({str(path)!r}, old=[{OLD!r}], new={NEW!r}, progress=count)
"""
    assert subprocess.run([sys.executable, "-c", killed], check=False).returncode == 9
    assert at(path, [NEW, OLD], contents) == said  # between the two, both keys are needed
    heard: list[Progress] = []

    rotate(path, old=[OLD], new=NEW, progress=heard.append)

    assert heard[0].total < PAYLOADS
    assert at(path, [NEW], contents) == said


def test_every_sealed_column_of_the_schema_is_rotated(path: Path) -> None:
    """A payload in a column that rotation does not know would be lost with the old key."""
    at(path, [OLD], fill)
    rotate(path, old=[OLD], new=NEW)

    with contextlib.closing(sqlite3.connect(path)) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in db.execute(f"SELECT * FROM {table}"):  # noqa: S608 - our own tables
                for value in row:
                    if isinstance(value, bytes):
                        assert seal_of([NEW]).open(value) is not None


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
