"""Real workflows on the native engine in virtual time: how close is the makespan to the best possible?

    python benchmarks/makespan.py --workflows workflows.jsonl --workers 4,16,64 --out predictions.jsonl

A workflow is `{"id", "tasks": [{"id", "parents", "runtime"}]}`. Each becomes a Penstock workflow
whose steps sleep their run time; `max_parallel` is the number of workers, and the durations are
told to the engine beforehand (`--durations unknown`: they are not). What is written is when each
task really began and ended by the engine's clock: `{"id", "workers", "schedule": [[task, start,
end]]}`. Beside it, two list schedulers that are nothing but arithmetic take the same workflows:
critical path first, and first in first out.

The score is the geometric mean of makespan ÷ lower bound, the bound being the longer of the
critical path and all work shared evenly. `--metrics DIR` has `DIR/makespan.py` score the
predictions as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.ids import StepId
from penstock.testing import clock

Slot = tuple[str, float, float]
"""A task, when it began, when it ended."""


class Dag:
    """A workflow as numbers: tasks by position, parents and children by position."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.id = str(row["id"])
        self.names = [str(task["id"]) for task in row["tasks"]]
        self.seconds = [float(task["runtime"] or 0.0) for task in row["tasks"]]
        place = {name: i for i, name in enumerate(self.names)}
        self.parents = [sorted({place[str(p)] for p in task["parents"]}) for task in row["tasks"]]
        self.children: list[list[int]] = [[] for _ in self.names]
        for i, parents in enumerate(self.parents):
            for parent in parents:
                self.children[parent].append(i)

    def levels(self) -> list[float]:
        """Seconds from the start of each task to the end of the workflow, if nothing ever waited."""
        levels = [0.0] * len(self.names)
        for i in reversed(self._order()):
            levels[i] = self.seconds[i] + max((levels[c] for c in self.children[i]), default=0.0)
        return levels

    def bound(self, workers: int) -> float:
        return max(max(self.levels(), default=0.0), sum(self.seconds) / workers)

    def _order(self) -> list[int]:
        left = [len(parents) for parents in self.parents]
        order = [i for i, count in enumerate(left) if not count]
        for i in order:
            for child in self.children[i]:
                left[child] -= 1
                if not left[child]:
                    order.append(child)
        if len(order) != len(left):
            raise SystemExit(f"{self.id} has a cycle")
        return order


# --- schedulers -------------------------------------------------------------------------------


def engine(dag: Dag, workers: int, *, known: bool = True) -> list[Slot]:
    """The native engine, in virtual time."""
    slots: list[Slot] = []

    def body(i: int) -> Callable[[], Awaitable[None]]:
        name, seconds = dag.names[i], dag.seconds[i]

        async def work() -> None:
            now = asyncio.get_running_loop().time
            began = now()
            await asyncio.sleep(seconds)
            slots.append((name, began, now()))

        return work

    async def go() -> None:
        # A task may run for days here, and nothing is to be cut short.
        forever = 1.0 + sum(dag.seconds)
        flow = ps.Workflow("makespan", max_parallel=workers)
        for i, parents in enumerate(dag.parents):
            flow.step(f"t{i}", body(i), needs=[f"t{p}" for p in parents], timeout=forever)
        durations = {StepId(f"t{i}"): seconds for i, seconds in enumerate(dag.seconds)} if known else None
        async with ps.open("memory:") as penstock:
            run = await penstock.start_with(flow, {}, durations=durations)
            (await run.result()).check()

    clock.run(go())
    return slots


def critical_path_first(dag: Dag, workers: int) -> list[Slot]:
    """Whenever a worker is free, the ready task with the longest way to the end."""
    levels = dag.levels()
    return _simulated(dag, workers, lambda i, _: -levels[i])


def first_in_first_out(dag: Dag, workers: int) -> list[Slot]:
    """Whenever a worker is free, the task that has been ready for longest."""
    return _simulated(dag, workers, lambda _, number: number)


def _simulated(dag: Dag, workers: int, key: Callable[[int, int], float]) -> list[Slot]:
    left = [len(parents) for parents in dag.parents]
    ready: list[tuple[float, int]] = []
    running: list[tuple[float, int]] = []
    slots: list[Slot] = []
    now, became = 0.0, 0
    for i, count in enumerate(left):
        if not count:
            heappush(ready, (key(i, became), i))
            became += 1
    while ready or running:
        while ready and len(running) < workers:
            i = heappop(ready)[1]
            heappush(running, (now + dag.seconds[i], i))
            slots.append((dag.names[i], now, now + dag.seconds[i]))
        now = running[0][0]
        while running and running[0][0] == now:  # everyone who ends now ends before anyone begins
            for child in dag.children[heappop(running)[1]]:
                left[child] -= 1
                if not left[child]:
                    heappush(ready, (key(child, became), child))
                    became += 1
    return slots


# --- scores -----------------------------------------------------------------------------------


def fault(dag: Dag, workers: int, slots: Sequence[Slot]) -> str:
    """What is wrong with a schedule; empty when it is one."""
    times = {name: (began, ended) for name, began, ended in slots}
    if len(slots) != len(dag.names) or set(times) != set(dag.names):
        return "not every task ran exactly once"
    for i, name in enumerate(dag.names):
        began, ended = times[name]
        if ended - began < dag.seconds[i] - 1e-6:
            return f"{name} did not run for as long as it takes"
        if any(times[dag.names[p]][1] > began + 1e-6 for p in dag.parents[i]):
            return f"{name} began before what it needs had ended"
    # Ends sort before begins at the same moment; what takes no time takes no worker.
    moments = sorted(
        moment for b, e in times.values() if e - b > 1e-9 for moment in ((b + 1e-9, 1), (e - 1e-9, -1))
    )
    busy = 0
    for _, change in moments:
        busy += change
        if busy > workers:
            return f"more than {workers} tasks at a time"
    return ""


def makespan(slots: Sequence[Slot]) -> float:
    return max((ended for _, _, ended in slots), default=0.0)


def geomean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def measured(dags: Sequence[Dag], workers: int, *, known: bool, out: Any) -> dict[str, Any]:
    """One line of figures; the schedules go to `out`."""
    ratios: dict[str, list[float]] = {"penstock": [], "critical_path_first": [], "fifo": []}
    faults: list[str] = []
    for dag in dags:
        slots = engine(dag, workers, known=known)
        wrong = fault(dag, workers, slots)
        if wrong:
            faults.append(f"{dag.id}: {wrong}")
        out.write(json.dumps({"id": dag.id, "workers": workers, "schedule": slots}) + "\n")
        bound = max(dag.bound(workers), 1e-9)
        ratios["penstock"].append(max(makespan(slots), 1e-9) / bound)
        ratios["critical_path_first"].append(max(makespan(critical_path_first(dag, workers)), 1e-9) / bound)
        ratios["fifo"].append(max(makespan(first_in_first_out(dag, workers)), 1e-9) / bound)
    figures = {name: round(geomean(values), 4) for name, values in ratios.items()}
    return {
        "workload": "makespan",
        "workers": workers,
        **figures,
        "over_critical_path_first": round(
            geomean(ratios["penstock"]) / geomean(ratios["critical_path_first"]), 4
        ),
        "worst": round(max(ratios["penstock"], default=math.nan), 3),
        "n": len(dags),
        "invalid": len(faults),
        "faults": faults[:5],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workflows", type=Path, required=True)
    parser.add_argument("--workers", default="4,16,64", help="numbers of workers, separated by commas")
    parser.add_argument("--out", type=Path, required=True, help="where the schedules go (JSON Lines)")
    parser.add_argument("--durations", choices=["known", "unknown"], default="known")
    parser.add_argument("--metrics", type=Path, help="the folder of a makespan.py that scores predictions")
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.workflows.read_text("utf-8").splitlines() if line.strip()]
    dags = [Dag(row) for row in rows]
    with given.out.open("w", encoding="utf-8") as out:
        for workers in map(int, given.workers.split(",")):
            print(json.dumps(measured(dags, workers, known=given.durations == "known", out=out)), flush=True)
    if given.metrics:
        command = [sys.executable, "makespan.py", "--pred", given.out.resolve(), "--gold",
                   given.workflows.resolve()]  # fmt: skip
        score = subprocess.run(command, cwd=given.metrics, check=True, capture_output=True, text=True)
        print(json.dumps({"workload": "makespan", "scored": json.loads(score.stdout)}))


if __name__ == "__main__":
    main()
