"""Penstock on the workloads that its peers are measured on, beside a bare asyncio loop.

    python benchmarks/bench_penstock.py --common DIR W1 --n 1000

`DIR` holds `common.py`, which owns the workloads, the timing and the command line; every
peer has a script of this shape. Events, state, timeouts and the journal are on, as they
always are, and so is the default of 32 tasks at a time; `+subscriber` adds someone who reads
every event while the run goes on. `--suspend` makes every task (the bare loop's as well) give
way once instead of returning at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import penstock as ps
from penstock.settings import Settings


def _common() -> Any:
    """The peers' `common.py`, from `--common DIR` or `PENSTOCK_BENCH_COMMON`."""
    folder = os.environ.get("PENSTOCK_BENCH_COMMON", "")
    if "--common" in sys.argv:
        at = sys.argv.index("--common")
        folder = sys.argv[at + 1]
        del sys.argv[at : at + 2]
    if not folder:
        sys.exit("give the folder of the peers' common.py: --common DIR or PENSTOCK_BENCH_COMMON")
    sys.path.insert(0, folder)
    common = __import__("common")
    _ = (ps.open, ps.Workflow, ps.Message)  # loaded on first use; W5 counts memory from here on
    if "--suspend" in sys.argv:
        sys.argv.remove("--suspend")
        common.noop = _suspend  # for the bare loop as well: both run the same tasks
    return common


async def _suspend() -> int:
    await asyncio.sleep(0)
    return 1


Execute = Callable[[], Awaitable[int]]


def flow_of(dag: Any, body: Callable[[int], Callable[[], Awaitable[Any]]], parallel: int) -> Any:
    """The dag as a workflow: one step per node, needs as given, no expressions."""
    flow = ps.Workflow("bench", max_parallel=parallel)
    for i, deps in enumerate(dag.deps):
        flow.step(f"n{i}", body(i), needs=[f"n{d}" for d in deps])
    return flow


def build(dag: Any, *, parallel: int = 32, subscribers: int = 0, commands: bool = False) -> Execute:
    flow = flow_of(dag, dag.body, parallel)
    flow.build()
    app = ps.open("memory:")
    app.prepare(flow)

    async def run() -> int:
        handle = await app.start(flow)
        readers = [asyncio.ensure_future(_read(handle)) for _ in range(subscribers)]
        if commands:
            await handle.send(ps.Message(text="hello"))
        result = await handle.result()
        for reader in readers:
            await reader
        await app.store.close()  # forget the finished run: each repeat starts from the same memory
        return result.counts.get("succeeded", 0)

    return run


async def _read(handle: ps.RunHandle) -> int:
    count = 0
    async for _ in handle.events():
        count += 1
    return count


def stream(dag: Any) -> tuple[Execute, Execute]:
    app = ps.open("memory:")
    flow = flow_of(dag, dag.body, 1_000_000)

    async def invoke() -> int:
        return (await (await app.start(flow)).result()).counts["succeeded"]

    async def consume() -> int:
        handle = await app.start(flow)
        return await _read(handle)

    return invoke, consume


def durable(effect: str, synchronous: str) -> Callable[..., Awaitable[Execute]]:
    """W4: every step's result is on disk before the next step may write."""

    async def factory(path: str, shape: str, n: int, payload: int) -> Execute:
        blob = "x" * payload

        @ps.tool(effect=effect)
        async def step() -> str:
            return blob

        flow = ps.Workflow("durable")
        for i in range(n):
            flow.step(f"s{i}", step, needs=[f"s{i - 1}"] if shape == "chain" and i else [])
        settings = Settings(store=f"sqlite:///{path}", synchronous=synchronous)
        app = ps.Penstock(settings)
        app.prepare(flow)

        async def run() -> int:
            return (await (await app.start(flow)).result()).counts["succeeded"]

        run.close = app.close  # type: ignore[attr-defined]  # `common` closes what it opened
        return run

    return factory


def variant(**options: Any) -> Callable[[Any], Execute]:
    return lambda dag: build(dag, **options)


VARIANTS = {
    "native": build,
    "native-unbounded": variant(parallel=1_000_000),
    "native+subscriber": variant(subscribers=1),
    "native+subscriber+command": variant(subscribers=1, commands=True),
}


if __name__ == "__main__":
    _common().main(
        "penstock",
        VARIANTS,
        durable={
            "sqlite-full": durable("write", "FULL"),
            "sqlite-full-read": durable("read", "FULL"),
            "sqlite-normal": durable("write", "NORMAL"),
        },
        stream={"events": stream},
    )
