"""Aborting, closing, walking away: everything stops, nothing is left behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from ran import sleeps, steer, stubborn

import penstock as ps
from penstock.testing import clock
from penstock.testing.rig import Rig


def test_aborting_at_once_takes_no_time_and_calls_nothing() -> None:
    called: list[int] = []

    async def work() -> None:
        called.append(1)

    flow = ps.Workflow("w")
    for n in range(5):
        flow.step(f"s{n}", work)

    async def act(_rig: Rig, handle: ps.RunHandle) -> None:
        await handle.send(ps.Abort())

    ran = steer(flow, act)

    assert (ran.result.status, ran.seconds, ran.abandoned, ran.left) == ("aborted", 0, 0, [])
    assert not called


def test_abort_lets_steps_clean_up_and_leaves_no_orphan() -> None:
    cleaned: list[float] = []

    async def careful() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(2)
            cleaned.append(asyncio.get_running_loop().time())

    flow = ps.Workflow("w")
    flow.step("a", careful, timeout=200)
    flow.step("b", careful, timeout=200)

    async def act(_rig: Rig, handle: ps.RunHandle) -> None:
        await asyncio.sleep(1)
        await handle.send(ps.Abort())

    ran = steer(flow, act)

    assert cleaned == [3, 3]
    assert (ran.seconds, ran.left, ran.result.status) == (3, [], "aborted")


def test_abort_during_the_grace_of_a_timed_out_task_ends_the_run() -> None:
    flow = ps.Workflow("w")
    flow.step("stubborn", stubborn, timeout=3)

    async def act(_rig: Rig, handle: ps.RunHandle) -> None:
        await asyncio.sleep(4)
        await handle.send(ps.Abort())

    assert steer(flow, act).result.status == "aborted"


def test_abort_leaves_no_timer_behind() -> None:
    async def fails() -> None:
        raise ValueError("no")

    flow = ps.Workflow("w", timeout=1000)
    flow.step("a", fails, retry={"max_attempts": 3, "backoff": "10m"})

    async def act(_rig: Rig, handle: ps.RunHandle) -> None:
        await asyncio.sleep(1)
        await handle.send(ps.Abort())

    ran = steer(flow, act)

    assert (ran.seconds, ran.left) == (1, [])


def test_whoever_waits_for_a_result_may_be_cancelled_and_the_run_goes_on() -> None:
    flow = ps.Workflow("w")
    flow.step("a", sleeps, seconds=5)

    async def act(_rig: Rig, handle: ps.RunHandle) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await handle.result()

    assert steer(flow, act).result.ok


def test_closing_penstock_stops_every_run() -> None:
    flow = ps.Workflow("w")
    flow.step("a", sleeps, seconds=25)

    async def main() -> list[str]:
        async with Rig() as rig:
            handles = [await rig.start(flow, id=f"r{n}") for n in range(3)]
            # Ids of one's own choosing must not get in the way.
            for id in ("close", "stop", "parent", "r0!stop"):
                await handles[0].send(ps.Message(id=id, text="hello"))  # type: ignore[arg-type]
            await asyncio.sleep(1)
        assert asyncio.get_running_loop().time() == 1
        return [(await handle.result()).status for handle in handles]

    assert clock.run(main()) == ["aborted"] * 3


def test_a_function_that_hangs_does_not_keep_the_process_alive() -> None:
    program = """
import time, penstock as ps
def hangs(): time.sleep(600)
flow = ps.Workflow("w")
flow.step("a", hangs, timeout=0.1)
print(ps.run(flow).status)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )

    assert done.stdout.strip() == "failed"
