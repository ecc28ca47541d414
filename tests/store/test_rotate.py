"""A store gets another key, a first one, or none, and nothing in it changes but the seal."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from vault import FLOW, PAYLOADS, RUNS, SECRET, Database, File, Place, contents, fill

from penstock.errors import Conflict, Owned, StoreError, WrongKey
from penstock.ids import RunId
from penstock.run.events import Event, WorkflowCompleted, WorkflowStarted
from penstock.store.base import NewRun
from penstock.store.rotation import Progress
from penstock.store.sealed import is_sealed, new_key, seal_of, sealed_by
from penstock.store.sqlite.rotate import rotate

OLD, NEW, THIRD = new_key(), new_key(), new_key()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "penstock.db"


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


def test_a_store_that_is_not_sealed_is_not_opened_with_a_key_until_it_was(there: Place) -> None:
    there.at((), fill)
    before = sorted(there.values())

    with pytest.raises(StoreError, match="seal it with `penstock rotate-key`"):
        there.at([NEW], contents)

    assert sorted(there.values()) == before
    there.rotate(new=NEW)
    there.at([NEW], contents)


def test_what_belongs_to_no_run_any_more_is_in_nobodys_way(there: Place) -> None:
    there.at([OLD], fill)
    stray = "SELECT (SELECT 100 + max(key) FROM runs) << 32 | 1, last, batches FROM events LIMIT 1"
    there.change(f"INSERT INTO events {stray}")

    there.rotate(old=[OLD], new=NEW)

    assert {sealed_by(value) for value in there.values()} - {b""} == {seal_of([NEW]).current}


def test_every_column_for_payloads_is_rotated(there: Place) -> None:
    """One that rotation does not know would be lost with the old key."""
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


def new_run(name: str) -> tuple[NewRun, list[Event]]:
    new = NewRun(run=RunId(name), workflow=FLOW, hash=FLOW.hash)
    return new, [WorkflowStarted(1, 100.0, FLOW.name, FLOW.hash, {})]


@pytest.mark.parametrize(
    ("before", "after"), [((OLD,), NEW), ((), NEW), ((OLD,), None)], ids=["other", "on", "off"]
)
def test_who_was_idle_while_the_key_was_changed_writes_nothing_with_the_old_one(
    there: Place, before: tuple[str, ...], after: str | None
) -> None:
    there.at(before, fill)

    async def scene(store: Any) -> None:
        await asyncio.to_thread(there.rotate, old=before, new=after)
        with pytest.raises(StoreError, match="key of the store was changed"):
            await store.create(*new_run("late"))
        with pytest.raises(StoreError, match="key of the store was changed"):
            await store.reopen(RUNS[0])

    there.at(before, scene)
    keys = [after] if after else []
    assert {sealed_by(value) for value in there.values() if is_sealed(value)} == (
        {seal_of(keys).current} if keys else set()
    )
    assert len(there.at(keys, lambda store: store.runs())) == len(RUNS)


def test_a_lease_that_had_run_out_is_worth_nothing_after_the_key_was_changed(path: Path) -> None:
    there = File(path)
    there.at([OLD], fill)

    async def scene(store: Any) -> None:
        journal = await store.reopen(RUNS[0])
        there.change("UPDATE leases SET expires = 0")  # it was silent for long
        await asyncio.to_thread(there.rotate, old=[OLD], new=NEW)
        journal.append([WorkflowCompleted(4, 100.0, "succeeded", {})])
        with contextlib.suppress(Conflict):
            await journal.sync()

    there.at([OLD], scene)
    assert len(there.at([NEW], lambda store: store.load(RUNS[0]))) == 3


def test_the_next_change_of_the_key_begins_like_the_first(there: Place) -> None:
    there.at([OLD], fill)
    there.rotate(old=[OLD], new=NEW)

    there.at([THIRD, NEW], lambda store: store.create(*new_run("newer")))
    there.at([THIRD, NEW], lambda store: store.create(*new_run("newest")))

    there.rotate(old=[NEW], new=THIRD)
    assert len(there.at([THIRD], lambda store: store.runs())) == len(RUNS) + 2
    with pytest.raises(StoreError):
        there.at([NEW, OLD], contents)
