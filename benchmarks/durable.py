"""What it costs to remember: figures of durable runs, each with what it may be at most.

    python benchmarks/durable.py [steps busy bytes cpu checkpoint resume memory …] [--small]

One JSON line per figure. `steps` runs beside a loop that does nothing but write and fsync, in turn
and in the same process: the ratio says what the engine adds to a disk. `--small` takes
seconds and proves only that everything runs. The files are made where temporary files are
(`TMPDIR`): that has to be a disk, not memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from io import FileIO
from pathlib import Path
from statistics import median

from figures import best, chain, fan, nothing
from report import Figure, Measure, figure, main, p95

import penstock as ps
from penstock.engines.checkpoints import Keeper
from penstock.engines.items import Items
from penstock.engines.tail import tail
from penstock.ids import CommandId, RunId, StepId
from penstock.run.commands import Message
from penstock.run.events import Checkpointed, Event, StateUpdated, TaskCompleted, TaskStarted, WorkflowStarted
from penstock.run.evolve import evolve
from penstock.run.state import Run
from penstock.store.base import NewRun
from penstock.store.sqlite.store import SqliteStore
from penstock.testing.postgres import Server, programs
from penstock.workflow.graph import compile_graph

TICK = 0.0003
"""Seconds that a busy event loop works without a pause."""

KILOBYTE = "x" * 1024

LINUX = sys.platform.startswith("linux")
"""Elsewhere a process is not told what it has written and how large it is."""

LIMITS: dict[str, float] = {
    "chain": 1.5,
    "fan-out": 0.04,
    "busy burst": 250,
    "busy spread": 250,
    "bytes": 16,
    "bytes growth": 1.05,
    "cpu": 15,
    "checkpoint": 5,
    "checkpoint kept": 5,
    "resume": 1,
    "memory": 10,
    "command sqlite": 200,
    "command postgres": 50,
    "follow sqlite": 200,
    "follow postgres": 50,
}
"""The most that a figure may be, in its own unit."""


def marked(line: Figure) -> Figure:
    limit = LIMITS.get(line["figure"])
    return line if limit is None else {**line, "limit": limit, "ok": line["value"] <= limit}


@ps.tool(effect="write")
async def send() -> int:
    """Something that must not happen twice: its start is durable before it begins."""
    return 1


@ps.tool(effect="write")
async def fetch() -> str:
    return KILOBYTE


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as path:
        yield Path(path)


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[ps.Penstock]:
    async with ps.open(f"sqlite:///{path}/runs.db") as penstock:
        yield penstock


async def finished(penstock: ps.Penstock, flow: ps.Workflow) -> None:
    (await (await penstock.start(flow)).result()).check()


# --- beside a loop that only writes -------------------------------------------------------------


async def steps(*, small: bool) -> list[Figure]:
    """A strict chain ÷ a loop that commits one row after the other, and a fan-out, of steps that write."""
    n, repeats = (50, 2) if small else (1000, 9)
    lines = []
    bare: list[float] = []
    for name, shape in (("chain", chain), ("fan-out", fan)):
        flow = shape(n, send)
        ours: list[float] = []
        bare.clear()
        for _ in range(repeats):
            with folder() as path:
                bare.append(_inline(path, n))
            with folder() as path:
                ours.append(await _run(path, flow, n))
        each = {"ours_ms": min(ours) * 1e3, "fsync_ms": min(bare) * 1e3,
                "median_ratio": median(a / b for a, b in zip(ours, bare, strict=True))}  # fmt: skip
        if name == "chain":
            lines.append(figure("chain", min(ours) / min(bare), "×", n=n, **each))
        else:
            lines.append(figure("fan-out", min(ours) * 1e3, "ms/step", n=n, **each))
    return lines


async def _run(path: Path, flow: ps.Workflow, n: int) -> float:
    """Seconds that each step of a durable run takes, its beginning and its end included."""
    async with opened(path) as penstock:
        penstock.prepare(flow)
        gc.collect()
        began = time.perf_counter()
        await finished(penstock, flow)
        return (time.perf_counter() - began) / n


def _inline(path: Path, n: int) -> float:
    """Seconds that each row takes in a loop which inserts, commits and waits for the disk."""
    with contextlib.closing(sqlite3.connect(path / "rows.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE rows (run INTEGER, step INTEGER, result BLOB)")
        result = b"x" * 64
        gc.collect()
        began = time.perf_counter()
        for i in range(n):
            db.execute("BEGIN")
            db.execute("INSERT INTO rows VALUES (0, ?, ?)", (i, result))
            db.execute("COMMIT")
        return (time.perf_counter() - began) / n


# --- how much is written ------------------------------------------------------------------------


async def written(*, small: bool) -> list[Figure]:
    """Bytes written for a chain of 1,600 steps with results of 1 KB, and how they grow with the chain."""
    if not LINUX:
        return []
    few, many = (50, 100) if small else (1600, 6400)
    sizes = {n: await _bytes(n) for n in (few, many)}
    exponent = math.log(sizes[many] / sizes[few]) / math.log(many / few)
    return [
        figure("bytes", sizes[few] / 1e6, "MB", n=few, payload=1024),
        figure("bytes growth", exponent, "exponent", few=few, many=many, many_mb=sizes[many] / 1e6),
    ]


async def _bytes(n: int) -> int:
    flow = chain(n, fetch)
    with folder() as path:
        async with opened(path) as penstock:
            penstock.prepare(flow)
            before = _written()
            await finished(penstock, flow)
            return _written() - before


def _written() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text("ascii").splitlines())
    return int(fields["wchar"])


# --- what a task costs --------------------------------------------------------------------------


async def cpu(*, small: bool) -> list[Figure]:
    """CPU time that a durable store adds to each task of a fan-out, over a store in memory."""
    n, repeats = (50, 2) if small else (1000, 40)
    flow = fan(n, nothing)
    with folder() as path:
        async with opened(path) as durable, ps.open("memory:") as memory:

            async def remembered() -> None:
                await finished(durable, flow)

            async def forgotten() -> None:
                await finished(memory, flow)
                await memory.store.close()  # each repeat starts from the same memory

            least = await best({"memory": forgotten, "sqlite": remembered}, repeats, time.process_time)
    us = {name: seconds / n * 1e6 for name, seconds in least.items()}
    return [figure("cpu", us["sqlite"] - us["memory"], "µs/task", n=n, **us)]


# --- checkpoints and going on -------------------------------------------------------------------


async def checkpoint(*, small: bool) -> list[Figure]:
    """What a run is held up by keeping a fold of 1 MB, and how long until it is kept: whoever opens the
    file finds it there, whatever becomes of this process. (The disk itself is not waited for. What a power
    cut takes of a cache is folded again.)

    The first is work of the event loop, the rest happens behind the run's back. In turn with it:
    `insert_ms`, one INSERT of as many bytes by SQLite alone, with an fsync, and `disk_ms`, a bare write of
    them. `ratio` is what we take for each millisecond of that INSERT.
    """
    times, size = (3, 10_000) if small else (100, 1_000_000)
    new, first = _begun("large")
    run = Run(new.run, compile_graph(new.workflow))
    held, kept, insert, disk = [], [], [], []
    with folder() as path, _table(path) as table, (path / "bare").open("wb", buffering=0) as bare:
        store = SqliteStore(path / "runs.db")
        await store.create(new, first)
        evolve(run, first[0])
        evolve(run, StateUpdated(run.seq + 1, 0.0, {f"k{i}": KILOBYTE for i in range(size // 1030)}, {}))
        keeper, items = Keeper(store.checkpoints, run), Items(run)
        for _ in range(times):
            event = Checkpointed(run.seq + 1, 0.0, f"large@{run.seq + 1}")
            evolve(run, event)
            began = time.perf_counter()
            fold = keeper.commanded([event], items)
            if fold is None or len(fold[1]) < size:
                raise SystemExit("this is not the checkpoint that was to be measured")
            keeper.keep(fold)
            held.append(time.perf_counter() - began)
            store.checkpoints.flush()
            await store.write([])
            kept.append(time.perf_counter() - began)
            await store.checkpoints.list(run.id)
            await store.write([])  # it has tidied up, and so has the other
            insert.append(_inserted(table, size))
            disk.append(_flushed(bare, size))
        await store.close()
    return [
        figure("checkpoint", p95(held) * 1e3, "ms p95", mb=size / 1e6, n=times),
        figure("checkpoint kept", p95(kept) * 1e3, "ms p95", median=median(kept) * 1e3,
               insert_ms=p95(insert) * 1e3, disk_ms=p95(disk) * 1e3,
               ratio=median(a / b for a, b in zip(kept, insert, strict=True))),
    ]  # fmt: skip


@contextlib.contextmanager
def _table(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path / "rows.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("CREATE TABLE rows (body BLOB)")
        yield db


def _inserted(db: sqlite3.Connection, size: int) -> float:
    """Seconds until a row of so many bytes is durable, and the one before the last is gone."""
    began = time.perf_counter()
    db.execute("BEGIN")
    row = db.execute("INSERT INTO rows VALUES (?)", (bytes(size),)).lastrowid
    db.execute("DELETE FROM rows WHERE rowid = ?", ((row or 0) - 5,))
    db.execute("COMMIT")
    took = time.perf_counter() - began
    db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    return took


def _flushed(file: FileIO, size: int) -> float:
    """Seconds until so many bytes are on the disk."""
    began = time.perf_counter()
    file.seek(0)
    file.write(bytes(size))
    os.fdatasync(file.fileno())
    return time.perf_counter() - began


async def resume(*, small: bool) -> list[Figure]:
    """Going on with a run of 10,000 tasks of which all but the last have ended, in a store just opened."""
    n, repeats = (50, 1) if small else (10_000, 5)
    flow = fan(n - 1, nothing)
    flow.step("halt", halt, needs=["last"])
    took = []
    for _ in range(repeats):
        with folder() as path:
            DOOR.clear()
            REACHED.clear()
            async with opened(path) as penstock:
                handle = await penstock.start(flow)
                while not REACHED.is_set():  # noqa: ASYNC110 - it belongs to no event loop
                    await asyncio.sleep(0.01)
            DOOR.set()
            gc.collect()
            began = time.perf_counter()
            async with opened(path) as penstock:
                again = await penstock.resume(handle.id)
                took.append(time.perf_counter() - began)
                (await again.result()).check()
    return [figure("resume", min(took), "s", n=n, worst=max(took))]


DOOR, REACHED = threading.Event(), threading.Event()


@ps.tool(effect="read")
async def halt() -> int:
    """The end of a run that stops just before it."""
    REACHED.set()
    while not DOOR.is_set():  # noqa: ASYNC110 - the same
        await asyncio.sleep(0.01)
    return 1


# --- memory ---------------------------------------------------------------------------------------


async def memory(*, small: bool) -> list[Figure]:
    """What a run of 10,000 tasks with results of 1 KB adds to its process, in one of its own."""
    if not LINUX:
        return []
    n = 100 if small else 10_000
    command = [sys.executable, __file__, "--grow", str(n)]
    done = await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)
    peak, kept = map(float, done.stdout.split())
    return [figure("memory", peak, "MB", n=n, payload=1024, kept_mb=kept)]


async def _grow(n: int) -> None:
    flow = fan(n, fetch)
    with folder() as path:
        async with opened(path) as penstock:
            penstock.prepare(flow)
            gc.collect()
            before = _status("VmRSS")
            await finished(penstock, flow)
            gc.collect()
            print(_status("VmHWM") - before, _status("VmRSS") - before)


def _status(name: str) -> float:
    """Megabytes. What `getrusage` says of the peak is the parent's as well."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(f"{name}:"))


# --- beside a busy event loop -----------------------------------------------------------------


async def busy_loop(*, small: bool) -> list[Figure]:
    """How long it takes until 4,000 events are durable while the event loop never rests.

    `burst` takes all events at once: the thread that writes and the loop share one interpreter,
    and whoever works without a pause keeps the other waiting. `spread` takes 40 in each tick.
    """
    repeats = 2 if small else 9
    lines = []
    for name, at_once in (("burst", 2000), ("spread", 20)):
        took = [await _until_durable(4000, at_once) for _ in range(repeats)]
        lines.append(figure(f"busy {name}", median(took) * 1e3, "ms", worst=max(took) * 1e3, n=repeats))
    return lines


async def _until_durable(events: int, at_once: int) -> float:
    """Seconds until so many events are durable, taken `at_once` batches a tick."""
    with folder() as path:
        store = SqliteStore(path / "busy.db")
        journal = await store.create(*_begun("busy"))
        batches = [_step(2 + 2 * i) for i in range(events // 2)]
        began = time.perf_counter()
        while batches or journal.durable <= events:
            taken, batches = batches[:at_once], batches[at_once:]
            for batch in taken:
                journal.append(batch)
            until = time.perf_counter() + TICK
            while time.perf_counter() < until:
                pass
            await asyncio.sleep(0)
        took = time.perf_counter() - began
        await store.close()
    return took


def _step(seq: int) -> list[Event]:
    """What one step of a chain adds: it ends, and the next begins."""
    now = time.time()
    return [TaskCompleted(seq, now, StepId("n"), {"value": seq}), TaskStarted(seq + 1, now, StepId("n"))]


def _begun(run: str) -> tuple[NewRun, list[Event]]:
    flow = ps.Workflow("benchmark")
    flow.step("n", nothing)
    workflow = flow.build()
    first: list[Event] = [WorkflowStarted(1, time.time(), workflow.name, workflow.hash, {})]
    return NewRun(run=RunId(run), workflow=workflow, hash=workflow.hash), first


# --- between processes --------------------------------------------------------------------------


async def commands(*, small: bool) -> list[Figure]:
    """How long a command of another process takes to reach whoever drives the run.

    From the call that leaves it in one store to the moment when another store, on connections of
    its own, hands it over. One at a time: this is about waiting, not about throughput.
    """
    return await _between("command", _deliveries, 20 if small else 200)


async def follow(*, small: bool) -> list[Figure]:
    """How long an event takes from being durable to whoever follows the run from another store."""
    return await _between("follow", _lags, 20 if small else 200)


Lags = Callable[[Callable[[], ps.Penstock], int], Awaitable[list[float]]]


async def _between(name: str, measure: Lags, count: int) -> list[Figure]:
    lines = []
    with folder() as path, contextlib.ExitStack() as stack:
        urls = {"sqlite": f"sqlite:///{path}/shared.db"}
        if programs() is not None:
            urls["postgres"] = stack.enter_context(Server()).url
        for kind, url in urls.items():
            took = await measure(partial(ps.open, url), count)
            lines.append(figure(f"{name} {kind}", p95(took) * 1e3, "ms p95", median=median(took) * 1e3,
                                worst=max(took) * 1e3, n=count))  # fmt: skip
    return lines


async def _deliveries(opened: Callable[[], ps.Penstock], count: int) -> list[float]:
    """Seconds that each command took."""
    owner, other = opened().store, opened().store
    new, first = _begun("commands")
    await owner.create(new, first)
    came = asyncio.Event()
    owner.mail.deliver(lambda _run, _command: came.set())
    took = []
    for i in range(count):
        came.clear()
        await asyncio.sleep(random.uniform(0.0, 0.06))  # noqa: S311 - so that no rhythm helps or hurts
        began = time.perf_counter()
        await other.mail.post(new.run, Message(id=CommandId(f"c{i}"), text="hello"))
        await came.wait()
        took.append(time.perf_counter() - began)
        owner.mail.answered(new.run, f"c{i}", "")
    await owner.close()
    await other.close()
    return took


async def _lags(opened: Callable[[], ps.Penstock], count: int) -> list[float]:
    """Seconds from when an event is durable until the follower has it."""
    owner, other = opened(), opened()
    new, first = _begun("follow")
    journal = await owner.store.create(new, first)
    news = tail(other.store, new.run)
    await anext(news)
    took = []
    for i in range(count):
        heard = asyncio.ensure_future(anext(news))
        await asyncio.sleep(random.uniform(0.0, 0.06))  # noqa: S311 - so that no rhythm helps or hurts
        journal.append([TaskStarted(2 + i, time.time(), StepId("n"))])
        await journal.sync()
        began = time.perf_counter()
        await heard
        took.append(time.perf_counter() - began)
    await news.aclose()
    journal.release()
    await owner.close()
    await other.close()
    return took


# --- on a server --------------------------------------------------------------------------------


async def on_a_server(*, small: bool) -> list[Figure]:
    """What a step costs when a Postgres server keeps the journal: a strict chain, and a fan-out."""
    n = 50 if small else 1000
    lines = []
    if programs() is None:
        return []
    with Server() as server:
        for name, shape in (("chain", chain), ("fan-out", fan)):
            flow = shape(n, send)
            async with ps.open(server.url) as penstock:
                penstock.prepare(flow)
                took = []
                for _ in range(1 if small else 3):
                    began = time.perf_counter()
                    await finished(penstock, flow)
                    took.append((time.perf_counter() - began) / n)
            lines.append(figure(f"postgres {name}", min(took) * 1e3, "ms/step", n=n))
    return lines


# --- output -----------------------------------------------------------------------------------

FIGURES: dict[str, Measure] = {
    "steps": steps,
    "busy": busy_loop,
    "bytes": written,
    "cpu": cpu,
    "checkpoint": checkpoint,
    "resume": resume,
    "memory": memory,
    "commands": commands,
    "follow": follow,
    "server": on_a_server,
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--grow"]:  # in a process of its own, for `memory`
        asyncio.run(_grow(int(sys.argv[2])))
    else:
        main(__doc__, FIGURES, marked)
