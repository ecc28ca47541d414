"""A process that dies between the end of a run and the start of the one that follows it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import PenstockError

BEFORE = """
name: before
steps: [{id: one, uses: "py:deeds_here:say", with: {what: one}}]
outputs: {word: "${ steps.one.output }"}
on_complete: after
"""
AFTER = """
name: after
inputs: {word: {type: string}}
steps: [{id: two, uses: "py:deeds_here:say", with: {what: "after ${ inputs.word }"}}]
outputs: {said: "${ steps.two.output }"}
"""
DEEDS = """
import penstock as ps

@ps.tool(effect="idempotent")
async def say(what: str) -> str:
    return what
"""
VICTIM = """
import asyncio, os, signal
from pathlib import Path
import penstock as ps

async def main():
    async with ps.open("sqlite:///runs.db") as penstock:
        create = penstock.store.create

        async def die_before_the_follower(new, events):
            if "+" in new.run:
                os.kill(os.getpid(), signal.SIGKILL)
            return await create(new, events)

        penstock.store.create = die_before_the_follower
        await (await penstock.start(Path("before.yaml"))).result()

asyncio.run(main())
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a process has just died that way."""
    for name, text in (("before.yaml", BEFORE), ("after.yaml", AFTER), ("deeds_here.py", DEEDS)):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    died = subprocess.run([sys.executable, "-c", VICTIM], check=False)
    assert died.returncode == -signal.SIGKILL
    return f"sqlite:///{tmp_path}/runs.db"


async def test_a_run_whose_follower_is_owed_is_not_done_with(store: str) -> None:
    async with ps.open(store) as penstock:
        (left,) = await penstock.store.runs()
        ended = await penstock.at(left.run)

    assert (ended.status, ended.then, left.status) == ("succeeded", "on_complete", "running")


async def test_resuming_it_starts_the_follower_once(store: str) -> None:
    async with ps.open(store) as penstock:
        (left,) = await penstock.store.runs()

        result = await (await penstock.resume(left.run)).result()

        assert (result.status, result.followed_by) == ("succeeded", f"{left.run}+after")
        follower = await penstock.result(str(result.followed_by))
        assert follower.outputs == {"said": "after one"}
        with pytest.raises(PenstockError, match=r"has ended \(succeeded\)"):
            await penstock.resume(left.run)
    async with ps.open(store) as penstock:
        assert [one.status for one in await penstock.store.runs()] == ["succeeded", "succeeded"]


async def test_a_worker_finds_it_and_drives_the_follower_to_its_end(store: str) -> None:
    command = [sys.executable, "-m", "penstock", "worker", "--once", "--store", store]

    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: ASYNC221 - nothing else to do

    assert done.returncode == 0, done.stderr
    async with ps.open(store) as penstock:
        after, before = await penstock.store.runs()
    assert (after.run, after.status, before.status) == (f"{before.run}+after", "succeeded", "succeeded")
