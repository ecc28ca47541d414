"""What it costs to remember: figures of durable runs.

    python benchmarks/durable.py [busy] [--small]

One JSON line per figure. `--small` takes seconds and proves only that everything runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import penstock as ps
from penstock.ids import RunId, StepId
from penstock.run.events import Event, TaskCompleted, TaskStarted, WorkflowStarted
from penstock.store.base import NewRun
from penstock.store.sqlite.store import SqliteStore

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
    flow = ps.Workflow("busy")
    flow.step("n", _nothing)
    workflow = flow.build()
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


async def _nothing() -> None:
    return None


# --- output -----------------------------------------------------------------------------------

FIGURES = {"busy": busy_loop}


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
