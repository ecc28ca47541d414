"""What it costs to remember: figures of durable runs.

    python benchmarks/durable.py [busy commands server] [--small]

One JSON line per figure. `--small` takes seconds and proves only that everything runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import penstock as ps
from penstock.ids import CommandId, RunId, StepId
from penstock.run.commands import Message
from penstock.run.events import Event, TaskCompleted, TaskStarted, WorkflowStarted
from penstock.store.base import NewRun, Store
from penstock.store.postgres.store import PostgresStore
from penstock.store.sqlite.store import SqliteStore
from penstock.testing.postgres import Server

Figure = dict[str, Any]

TICK = 0.0003
"""Seconds that a busy event loop works without a pause."""


# --- beside a busy event loop -----------------------------------------------------------------


async def busy_loop(*, small: bool = False) -> list[Figure]:
    """How long it takes until 4,000 events are durable while the event loop never rests.

    The thread that writes and the loop share one interpreter: whoever works without a pause
    keeps the other waiting. `burst` takes all events at once, `spread` 40 in each tick.
    """
    repeats = 2 if small else 9
    lines = []
    for name, at_once in (("burst", 2000), ("spread", 20)):
        took = [await _until_durable(4000, at_once) for _ in range(repeats)]
        lines.append(_figure(f"busy {name}", median(took) * 1e3, "ms", worst=max(took) * 1e3, n=repeats))
    return lines


async def _until_durable(events: int, at_once: int) -> float:
    """Seconds until so many events are durable, taken `at_once` batches a tick."""
    workflow = _flow().build()
    run = RunId("busy")
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder, "busy.db"))
        first: list[Event] = [WorkflowStarted(1, time.time(), workflow.name, workflow.hash, {})]
        journal = await store.create(NewRun(run=run, workflow=workflow, hash=workflow.hash), first)
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


def _flow() -> ps.Workflow:
    flow = ps.Workflow("benchmark")
    flow.step("n", _nothing)
    return flow


async def _nothing() -> None:
    return None


# --- commands from elsewhere --------------------------------------------------------------------


async def commands(*, small: bool = False) -> list[Figure]:
    """How long a command of another process takes to reach whoever drives the run.

    From the call that leaves it in one store to the moment when another store, on connections of
    its own, hands it over. One at a time: this is about waiting, not about throughput.
    """
    count = 20 if small else 200
    lines = []
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        path = Path(folder, "commands.db")
        kinds: dict[str, Callable[[], Store]] = {
            "sqlite": lambda: SqliteStore(path),
            "postgres": lambda: PostgresStore(server.url),
        }
        for name, opened in kinds.items():
            took = sorted(await _deliveries(opened, count))
            p95 = took[int(0.95 * len(took))] * 1e3
            lines.append(
                _figure(f"command {name} p95", p95, "ms", median=median(took) * 1e3, worst=took[-1] * 1e3)
            )
    return lines


async def _deliveries(opened: Callable[[], Store], count: int) -> list[float]:
    """Seconds that each command took."""
    owner, other = opened(), opened()
    workflow = _flow().build()
    run = RunId("commands")
    first: list[Event] = [WorkflowStarted(1, time.time(), workflow.name, workflow.hash, {})]
    await owner.create(NewRun(run=run, workflow=workflow, hash=workflow.hash), first)
    came = asyncio.Event()
    owner.mail.deliver(lambda _run, _command: came.set())
    took = []
    for i in range(count):
        came.clear()
        await asyncio.sleep(random.uniform(0.0, 0.06))  # noqa: S311 - so that no rhythm helps or hurts
        began = time.perf_counter()
        await other.mail.post(run, Message(id=CommandId(f"c{i}"), text="hello"))
        await came.wait()
        took.append(time.perf_counter() - began)
        owner.mail.answered(run, f"c{i}", "")
    await owner.close()
    await other.close()
    return took


# --- on a server --------------------------------------------------------------------------------


async def on_a_server(*, small: bool = False) -> list[Figure]:
    """What a step costs when a Postgres server keeps the journal: a strict chain, and a fan-out."""
    steps = 50 if small else 1000
    lines = []
    with Server() as server:
        for name, chained in (("chain", True), ("fan-out", False)):
            flow = ps.Workflow(name)
            for i in range(steps):
                flow.step(f"n{i}", _nothing, needs=[f"n{i - 1}"] if chained and i else [])
            async with ps.open(server.url) as penstock:
                penstock.prepare(flow)
                took = []
                for _ in range(1 if small else 3):
                    began = time.perf_counter()
                    await (await penstock.start(flow)).result()
                    took.append((time.perf_counter() - began) / steps)
            lines.append(_figure(f"postgres {name}", min(took) * 1e3, "ms/step", steps=steps))
    return lines


# --- output -----------------------------------------------------------------------------------

FIGURES = {"busy": busy_loop, "commands": commands, "server": on_a_server}


def _figure(name: str, value: float, unit: str, **details: Any) -> Figure:
    shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in details.items()}
    return {"figure": name, "value": round(value, 4), "unit": unit, **shown}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="FIGURE", help=f"of {', '.join(FIGURES)}; default: all")
    parser.add_argument("--small", action="store_true", help="tiny sizes: does it run at all?")
    given = parser.parse_args()
    unknown = set(given.names) - set(FIGURES)
    if unknown:
        parser.error(f"there is no figure {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    for name in given.names or FIGURES:
        for figure in asyncio.run(FIGURES[name](small=given.small)):
            print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
