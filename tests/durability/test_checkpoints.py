"""Checkpoints save time and decide nothing: what is wrong with them, the journal puts right."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.ids import RunId
from penstock.run.commands import Checkpoint, Decide
from penstock.run.events import Checkpointed, DecisionRequired
from penstock.run.replay import replay

PATIENCE = 20.0


@ps.tool(id="kept:give", effect="write")
async def give(n: int) -> int:
    return n


def flow(name: str = "kept", *, value: int = 7, **config: Any) -> ps.Workflow:
    """A run that asks in its middle, and whose outputs show what it took its context for."""
    made = ps.Workflow(name, **config)
    made.step("one", give, n=value, set={"total": "${ output }"})
    made.step("two", give, n=2, needs="one", approval=True)
    made.step("three", give, n="${ context.total }", needs="two")
    made.output("total", "${ steps.three.output }")
    return made


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[ps.Penstock]:
    async with asyncio.timeout(PATIENCE), ps.open(f"sqlite:///{path}", tools=(give,)) as penstock:
        yield penstock


async def asked(penstock: ps.Penstock, run: ps.RunHandle) -> str:
    """The question in the middle of a run, once everything before it is durable."""
    async for event in run.events():
        if isinstance(event, DecisionRequired):
            await penstock.store.write([])  # type: ignore[attr-defined]  # of a store on a disk
            return event.decision
    raise AssertionError("it never asked")


async def left_behind(path: Path, made: ps.Workflow) -> RunId:
    """A run that was left in its middle, where a checkpoint was kept."""
    async with opened(path) as penstock:
        run = await penstock.start(made)
        await asked(penstock, run)
        await run.send(Checkpoint())
        return run.id


async def taken_up(path: Path, id: RunId) -> ps.Result:
    async with opened(path) as penstock:
        run = await penstock.resume(id)
        await run.send(Decide(decision=next(iter(run.state.decisions)), verb="approve"))
        return await run.result()


def kept(path: Path) -> dict[str, bytes]:
    with closing(sqlite3.connect(path)) as db:
        return dict(db.execute("SELECT checkpoint, state FROM checkpoints"))


def put(path: Path, state: bytes) -> None:
    """In place of every checkpoint."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE checkpoints SET state = ?", (state,))


def without(state: bytes) -> bytes:
    """As another version may have written it."""
    whole = json.loads(state)
    del whole["run"]["phases"]
    return json.dumps(whole).encode()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda _: b"\xff\x00 nothing of the kind",
    "nothing": lambda _: b"",
    "cut short": lambda state: state[: len(state) // 2],
    "another value": lambda state: state.replace(b'"total":7', b'"total":8'),
    "a number elsewhere": lambda state: state.replace(b'"sum":', b'"sum":1'),
    "another version": without,
    "something else": lambda _: b'{"run":[],"maps":{},"sum":0}',
}


@pytest.mark.parametrize("damage", list(DAMAGES.values()), ids=list(DAMAGES))
async def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "runs.db"
    run = await left_behind(path, flow(checkpoints="manual"))
    [(_, state)] = kept(path).items()
    assert b'"total":7' in state, "there is something that could be damaged"
    assert damage(state) != state
    put(path, damage(state))

    result = await taken_up(path, run)

    assert (result.status, result.outputs) == ("succeeded", {"total": 7})


@pytest.mark.parametrize("other", ["kept", "another"])
async def test_a_checkpoint_of_another_run_or_another_workflow_is_passed_over(
    tmp_path: Path, other: str
) -> None:
    elsewhere, path = tmp_path / "elsewhere.db", tmp_path / "runs.db"
    await left_behind(elsewhere, flow(other, value=9, checkpoints="manual"))
    run = await left_behind(path, flow(checkpoints="manual"))
    put(path, next(iter(kept(elsewhere).values())))

    assert (await taken_up(path, run)).outputs == {"total": 7}


async def test_a_run_goes_on_without_any_of_its_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    run = await left_behind(path, flow(checkpoints="per_task"))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DELETE FROM checkpoints")

    assert (await taken_up(path, run)).outputs == {"total": 7}


@pytest.mark.parametrize(
    ("mode", "most"), [("per_layer", 2), ("per_task", 1), ("manual", 0), ("off", 0)], ids=str
)
async def test_the_mode_says_when_one_is_kept_and_the_command_always_does(
    tmp_path: Path, mode: str, most: int
) -> None:
    async with opened(tmp_path / "runs.db") as penstock:
        run = await penstock.start(flow(checkpoints=mode))
        await asked(penstock, run)
        by_itself = len(await penstock.store.checkpoints.list(run.id))
        await run.send(Checkpoint())
        by_command = len(await penstock.store.checkpoints.list(run.id))

    assert min(most, 1) <= by_itself <= most
    assert by_command == by_itself + 1


async def test_only_as_many_are_kept_as_the_workflow_says(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with opened(path) as penstock:
        run = await penstock.start(flow(checkpoints="manual", retention={"checkpoints": 2}))
        for _ in range(4):
            await run.send(Checkpoint())

    assert len(kept(path)) == 2


async def test_a_checkpoint_that_cannot_be_written_is_a_warning_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "runs.db"
    with caplog.at_level(logging.WARNING, "penstock.store"):
        async with opened(path) as penstock:
            run = await penstock.start(flow(checkpoints="manual"))
            question = await asked(penstock, run)
            with closing(sqlite3.connect(path, isolation_level=None)) as db:
                db.execute("DROP TABLE checkpoints")
            await run.send(Checkpoint())
            await run.send(Decide(decision=question, verb="approve"))
            result = await run.result()

    assert result.status == "succeeded"
    assert [m for m in caplog.messages if m.startswith("a checkpoint was not kept")] != []


async def test_a_checkpoint_that_someone_asks_for_is_kept_however_busy_the_run_is(tmp_path: Path) -> None:
    """Much more has happened by the time that what was asked for is durable."""
    reached = asyncio.Event()

    @ps.tool(id="kept:look", effect="read")
    async def look(n: int) -> int:
        if n == 100:
            reached.set()
        return n

    made = ps.Workflow("busy", checkpoints="manual", max_parallel=8)
    made.step("many", look, n="${ item }", for_each=list(range(2000)))
    path = tmp_path / "runs.db"
    async with opened(path) as penstock:
        run = await penstock.start(made)
        await reached.wait()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            before = run.state.seq
            sent = asyncio.ensure_future(run.send(Checkpoint()))
            while run.state.seq < before + 100:  # noqa: ASYNC110 - nobody hears of what is not durable
                await asyncio.sleep(0)
            other.execute("ROLLBACK")
        await sent
        assert (await run.result()).ok
        events = await penstock.store.load(run.id)
        await penstock.store.write([])  # type: ignore[attr-defined]  # of a store on a disk
        kept = await penstock.store.checkpoints.list(run.id)
        [named] = [event.checkpoint for event in events if isinstance(event, Checkpointed)]
        assert [one.checkpoint for one in kept] == [named]
        record, state = await penstock.store.checkpoints.get(named)

    expected = replay(run.id, run.state.graph, events, until=record.seq)
    assert json.loads(state)["run"] == json.loads(expected.encoded())
