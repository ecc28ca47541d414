"""A store is kept small without anyone noticing, except those whose runs are gone."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StoreError, UnknownRun
from penstock.ids import CommandId, RunId, StepId
from penstock.policy.retention import DAY, Limits
from penstock.run.commands import Message
from penstock.run.events import Event, TaskCompleted, WorkflowCompleted, WorkflowStarted
from penstock.store.base import CheckpointRecord, NewRun
from penstock.store.gc import plan_and_forget
from penstock.store.memory import MemoryStore
from penstock.store.sealed import Seal, new_key
from penstock.store.sqlite.store import SqliteStore
from penstock.store.sqlite.upkeep import SqliteUpkeep
from penstock.workflow.spec import Step, Workflow

LARGE = 40_000
"""Bytes of an output that is kept as a blob."""


class Kept(SqliteStore):
    def __init__(self, path: Path, **more: Any) -> None:
        super().__init__(path, **more)
        self.upkeep = SqliteUpkeep(self)


def flow(name: str = "flow") -> Workflow:
    return Workflow(name=name, steps=(Step(id=StepId("s"), uses="some:tool"),))


async def a_run(
    store: SqliteStore, name: str, *outputs: Any, workflow: str = "flow", end: bool = True, **more: Any
) -> RunId:
    """A run of the given outputs, ended and let go."""
    run, definition = RunId(name), flow(workflow)
    at = (more.get("fork_at") or 0) + 1
    new = NewRun(run=run, workflow=definition, hash=definition.hash, **more)
    journal = await store.create(new, [WorkflowStarted(at, 100.0, workflow, definition.hash, {})])
    for output in outputs:
        at += 1
        journal.append([TaskCompleted(at, 100.0, StepId("s"), output)])
    if end:
        journal.note("succeeded", "")
        journal.append([WorkflowCompleted(at + 1, 100.0, "succeeded")])
    await journal.sync()
    if end:
        journal.release()
        await journal.sync()
    return run


def played(scene: Callable[[Kept], Awaitable[None]], path: Path, **more: Any) -> None:
    async def play() -> None:
        async with opened(path, **more) as store:
            await scene(store)

    asyncio.run(play())


@contextlib.asynccontextmanager
async def opened(path: Path, **more: Any) -> AsyncIterator[Kept]:
    store = Kept(path, **more)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "penstock.db"


def rows(path: Path, sql: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


def size(path: Path) -> int:
    return path.stat().st_size


def count(path: Path) -> dict[str, int]:
    tables = (
        "runs",
        "events",
        "blobs",
        "blob_uses",
        "checkpoints",
        "commands",
        "leases",
        "definitions",
        "forgotten",
    )
    return {table: rows(path, f"SELECT count(*) FROM {table}")[0][0] for table in tables}  # noqa: S608 - our tables


def test_a_forgotten_run_leaves_nothing_behind(path: Path) -> None:
    async def scene(store: Kept) -> None:
        run = await a_run(store, "r", {"text": "x" * LARGE}, 1, 2)
        record = CheckpointRecord(checkpoint="r@3", run=run, seq=3, at=1.0, layer=0, size=3)
        store.checkpoints.save(record, b"abc", keep=5)
        await store.mail.post(run, Message(id=CommandId("c"), text="hello"))

        assert await store.upkeep.forget([[run]]) == [run]

        with pytest.raises(UnknownRun):
            await store.load(run)

    played(scene, path)
    assert set(count(path).values()) == {0}


def test_other_runs_are_as_they_were(path: Path) -> None:
    async def scene(store: Kept) -> None:
        large = "x" * LARGE
        old = await a_run(store, "old", large, "only mine" * LARGE)
        kept = await a_run(store, "kept", large, 5)
        before = await store.load(kept)

        await store.upkeep.forget([[old]])

        assert await store.load(kept) == before
        assert await store.output(kept, 2) == large
        assert (await store.definition(kept)).workflow == flow()

    played(scene, path)
    left = count(path)
    assert [left[table] for table in ("runs", "blobs", "blob_uses", "definitions", "forgotten")] == [
        1,
        1,
        1,
        1,
        0,
    ]


def test_a_run_that_goes_on_or_that_others_need_is_not_forgotten(path: Path) -> None:
    async def scene(store: Kept) -> None:
        running = await a_run(store, "running", 1, end=False)
        base = await a_run(store, "base", 1)
        fork = await a_run(store, "fork", 2, fork_of=base, fork_at=2)
        parent = await a_run(store, "parent", 1)
        child = await a_run(store, "child", 1, parent=parent)

        assert await store.upkeep.forget([[running], [base], [parent]]) == []
        assert await store.load(fork)

        assert sorted(await store.upkeep.forget([[base, fork], [parent, child]])) == [
            base,
            child,
            fork,
            parent,
        ]
        assert [record.run for record in await store.runs()] == [running]

    played(scene, path)


def test_an_ended_run_whose_lease_is_held_by_a_living_process_stays(path: Path) -> None:
    async def scene(store: Kept) -> None:
        run = await a_run(store, "r", 1)
        journal = await store.reopen(run)
        assert await store.upkeep.forget([[run]]) == []

        journal.release()
        await journal.sync()
        assert await store.upkeep.forget([[run]]) == [run]

    played(scene, path)


def test_the_lease_of_a_dead_process_holds_nothing(path: Path) -> None:
    died = f"""
import asyncio, os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_upkeep import Kept, a_run
async def main():
    store = Kept(Path({str(path)!r}))
    run = await a_run(store, "r", 1)
    journal = await store.reopen(run)
    await journal.sync()
    os._exit(9)
asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", died], check=False).returncode == 9
    assert count(path)["leases"] == 1

    async def scene(store: Kept) -> None:
        assert await store.upkeep.forget([[RunId("r")]]) == ["r"]

    played(scene, path)


def test_definitions_go_with_the_last_run_that_uses_them(path: Path) -> None:
    async def scene(store: Kept) -> None:
        helper = flow("helper")
        first = await a_run(store, "first", 1, workflow="one", children={"helper": helper})
        second = await a_run(store, "second", 1, workflow="two", children={"helper": helper})

        await store.upkeep.forget([[first]])
        assert [row[0] for row in rows(path, "SELECT name FROM definitions ORDER BY name")] == [
            "helper",
            "two",
        ]

        await store.upkeep.forget([[second]])
        assert rows(path, "SELECT name FROM definitions") == []

    played(scene, path)


def test_what_several_runs_share_is_counted_once_with_the_newest(path: Path) -> None:
    async def scene(store: Kept) -> None:
        large = "x" * LARGE
        old = await a_run(store, "old", large, "y" * LARGE)
        new = await a_run(store, "new", large)

        sizes = await store.upkeep.sizes()

        assert LARGE < sizes[old] < LARGE + 2_000
        assert LARGE < sizes[new] < LARGE + 2_000

    played(scene, path)


def test_the_key_of_a_forgotten_run_is_never_used_again(path: Path) -> None:
    async def scene(store: Kept) -> None:
        await a_run(store, "old", 1)
        await store.upkeep.forget([[RunId("old")]])
        await a_run(store, "new", 1)

    played(scene, path)
    assert rows(path, "SELECT key FROM runs") == [(2,)]


def test_an_interrupted_clean_up_is_finished_by_the_next_one(path: Path) -> None:
    async def scene(store: Kept) -> None:
        await a_run(store, "r", *(f"{n}" * LARGE for n in range(5)))
        # As if the process had died right after the first transaction.
        await store.write(
            [
                ("INSERT INTO forgotten SELECT key FROM runs", ()),
                ("DELETE FROM runs", ()),
                ("DELETE FROM leases", ()),
            ]
        )
        assert await store.runs() == []

        await store.upkeep.forget([])

    played(scene, path)
    assert set(count(path).values()) == {0}


def test_a_blob_that_a_lost_process_booked_is_removed_too(path: Path) -> None:
    async def scene(store: Kept) -> None:
        await a_run(store, "r", 1)
        await store.write(
            [("INSERT INTO blobs VALUES ('h', 'body')", ()), ("INSERT INTO blob_uses VALUES (77, 'h')", ())]
        )
        await store.upkeep.forget([])

    played(scene, path)
    assert count(path)["blobs"] == count(path)["blob_uses"] == 0


def test_space_is_given_back(path: Path) -> None:
    async def scene(store: Kept) -> None:
        await a_run(store, "kept", 1)
        for n in range(3):
            await a_run(store, f"r{n}", *(f"{n}.{m}" * LARGE for m in range(10)))
        await store.write([])
        store.upkeep._checkpoint()
        large = size(path)

        await store.upkeep.forget([[RunId(f"r{n}")] for n in range(3)])
        freed = await store.upkeep.compact()

        assert freed > 0
        assert size(path) < large / 10
        assert await store.load(RunId("kept"))

        # Even while a run goes on.
        await a_run(store, "live", 1, end=False)
        await a_run(store, "more", *(f"{m}" * LARGE for m in range(30)))
        await store.upkeep.forget([[RunId("more")]])
        assert await store.upkeep.compact() > 0
        assert rows(path, "PRAGMA freelist_count") == [(0,)]

    played(scene, path)


def test_a_file_from_before_is_rewritten_but_not_while_a_run_goes_on(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")  # from here on it cannot learn to shrink in slices

    async def scene(store: Kept) -> None:
        assert rows(path, "PRAGMA auto_vacuum") == [(0,)]
        journal = await store.create(
            NewRun(run=RunId("live"), workflow=flow(), hash=flow().hash),
            [WorkflowStarted(1, 1.0, "flow", flow().hash, {})],
        )
        await a_run(store, "r", *(f"{m}" * LARGE for m in range(10)))
        await store.upkeep.forget([[RunId("r")]])
        free = rows(path, "PRAGMA freelist_count")
        assert free > [(50,)]

        await store.upkeep.compact()
        assert rows(path, "PRAGMA freelist_count") == free

        journal.release()
        await journal.sync()
        await store.upkeep.compact()
        assert rows(path, "PRAGMA freelist_count") == [(0,)]
        assert rows(path, "PRAGMA auto_vacuum") == [(2,)]

    played(scene, path)


@pytest.mark.slow
def test_whoever_writes_meanwhile_hardly_waits(path: Path) -> None:
    async def scene(store: Kept) -> None:
        for n in range(20):
            await a_run(store, f"r{n}", *(f"{n}.{m}" * 3_000 for m in range(40)), "z" * 5_000_000)
        other = Kept(path)
        journal = await other.create(
            NewRun(run=RunId("live"), workflow=flow(), hash=flow().hash),
            [WorkflowStarted(1, 1.0, "flow", flow().hash, {})],
        )
        waits: list[float] = []
        cleaning = asyncio.create_task(store.upkeep.forget([[RunId(f"r{n}")] for n in range(20)]))
        seq = 1
        while not cleaning.done():
            seq += 1
            began = time.monotonic()
            journal.append([TaskCompleted(seq, 1.0, StepId("s"), seq)])
            await journal.sync()
            waits.append(time.monotonic() - began)
        assert len(await cleaning) == 20
        journal.release()
        await other.close()

        assert seq > 3
        assert sorted(waits)[len(waits) // 2] < 0.5
        assert max(waits) < 5

    played(scene, path)


def test_a_sealed_store_is_cleaned_up_like_any_other(path: Path) -> None:
    async def scene(store: Kept) -> None:
        run = await a_run(store, "r", "x" * LARGE)
        kept = await a_run(store, "kept", "x" * LARGE)
        await store.upkeep.forget([[run]])
        assert await store.output(kept, 2) == "x" * LARGE

    played(scene, path, seal=Seal([new_key()]))


# --- with a plan ---


def test_a_dry_run_says_what_would_go_and_changes_nothing(path: Path) -> None:
    async def scene(store: Kept) -> None:
        await a_run(store, "a", 1)
        await a_run(store, "b", 1, end=False)
        limits = Limits(older_than=DAY)

        cleaning = await plan_and_forget(store, limits, dry_run=True, now=time.time() + 10 * DAY)

        assert [(line.run, line.reason) for line in cleaning.forgotten] == [
            ("a", "ended 10 days ago, more than 24 h")
        ]
        assert [line.run for line in cleaning.kept] == ["b"]
        assert cleaning.bytes_after < cleaning.bytes_before
        assert len(await store.runs()) == 2

        done = await plan_and_forget(store, limits, dry_run=False, now=time.time() + 10 * DAY)
        assert done.forgotten == cleaning.forgotten
        assert [record.run for record in await store.runs()] == ["b"]

    played(scene, path)


def test_a_store_that_ends_with_the_process_needs_no_cleaning() -> None:
    with pytest.raises(StoreError):
        asyncio.run(plan_and_forget(MemoryStore(), Limits(), dry_run=True))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "parent", "fork"]), st.integers(0, 7), st.integers(0, 3), st.booleans()
        ),
        max_size=8,
    ),
    st.integers(0, 3),
)
def test_whatever_is_forgotten_all_that_is_kept_can_still_be_read(
    made: list[tuple[str, int, int, bool]], keep: int
) -> None:
    async def scene(store: Kept) -> None:
        names: list[str] = []
        histories: dict[str, tuple[list[Event], list[Any]]] = {}
        for number, (tie, other, blobs, ended) in enumerate(made):
            more: dict[str, Any] = {}
            if tie and names:
                which = RunId(names[other % len(names)])
                more = {"parent": which} if tie == "parent" else {"fork_of": which, "fork_at": 1}
            name = f"r{number}"
            outputs = [f"{n}" * LARGE for n in range(blobs)]  # shared by all runs that have as many
            await a_run(store, name, *outputs, end=ended, **more)
            names.append(name)
        for name in names:
            events = list(await store.load(RunId(name)))
            outputs = [await store.output(RunId(name), e.seq) for e in events if isinstance(e, TaskCompleted)]
            histories[name] = events, outputs

        await plan_and_forget(store, Limits(keep_count=keep), dry_run=False, compact=False)

        kept = {record.run for record in await store.runs()}
        assert {name for name, (_, _, _, ended) in zip(names, made, strict=True) if not ended} <= kept
        for name in kept:
            events = list(await store.load(name))
            outputs = [await store.output(name, e.seq) for e in events if isinstance(e, TaskCompleted)]
            assert (events, outputs) == histories[name]
        used = {
            e.ref
            for events, _ in histories.values()
            for e in events
            if isinstance(e, TaskCompleted) and e.ref
        }
        left = {e.ref for name in kept for e in histories[name][0] if isinstance(e, TaskCompleted) and e.ref}
        assert {row[0] for row in rows(store.path, "SELECT hash FROM blobs")} == left <= used

    with tempfile.TemporaryDirectory() as folder:
        played(scene, Path(folder) / "penstock.db", synchronous="OFF")
