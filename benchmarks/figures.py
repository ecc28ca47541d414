"""What a workload cannot show: parallel tools, watching, state, scale and starting up.

    python benchmarks/figures.py [parallel watching state scale start] [--small]

One JSON line per figure. What is compared is measured alternately in the same run and the best
of the repeats counts, so the ratios hold on a busy machine; costs are CPU time unless the line
says otherwise. `--small` takes seconds and proves only that everything runs.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from report import Figure, figure, main, p95

import penstock as ps
from penstock.engines.stream import Stream
from penstock.ids import RunId
from penstock.run import reducers
from penstock.run.events import Event, LayerStarted, StateUpdated
from penstock.run.evolve import evolve
from penstock.run.state import Run
from penstock.workflow.graph import compile_graph

Execute = Callable[[], Awaitable[Any]]


# --- workloads --------------------------------------------------------------------------------


async def nothing() -> int:
    return 1


async def suspend() -> int:
    await asyncio.sleep(0)
    return 1


def chain(n: int, task: Callable[[], Awaitable[int]]) -> ps.Workflow:
    flow = ps.Workflow("chain")
    for i in range(n):
        flow.step(f"n{i}", task, needs=[f"n{i - 1}"] if i else [])
    return flow


def fan(n: int, task: Callable[[], Awaitable[int]]) -> ps.Workflow:
    flow = ps.Workflow("fan")
    flow.step("first", task)
    for i in range(n - 2):
        flow.step(f"n{i}", task, needs=["first"])
    flow.step("last", task, needs=[f"n{i}" for i in range(n - 2)])
    return flow


SHAPES = {"W1 fan-out": fan, "W2 chain": chain}


def runner(flow: ps.Workflow, *, watched: bool = False) -> Execute:
    """One run of a flow; `watched`: someone reads every event meanwhile and sends a command."""
    app = ps.open("memory:")
    app.prepare(flow)

    async def run() -> None:
        handle = await app.start(flow)
        if watched:
            reader = asyncio.ensure_future(_read(handle))
            await handle.send(ps.Message(text="hello"))
        (await handle.result()).check()
        if watched:
            await reader
        await app.store.close()  # forget the run: each repeat starts from the same memory

    return run


async def _read(handle: ps.RunHandle) -> int:
    seen = 0
    async for _ in handle.events():
        seen += 1
    return seen


# --- measuring --------------------------------------------------------------------------------


async def best(
    runs: dict[str, Execute], repeats: int, clock: Callable[[], float], often: dict[str, int] | None = None
) -> dict[str, float]:
    """The least that each took, measured in turn; `often`: how many times per turn, if not once."""
    least = dict.fromkeys(runs, float("inf"))
    for execute in runs.values():
        await execute()  # warm up
    turn = [name for name in runs for _ in range((often or {}).get(name, 1))]
    for _ in range(repeats):
        for name in turn:
            gc.collect()
            began = clock()
            await runs[name]()
            least[name] = min(least[name], clock() - began)
    return least


def timed(operation: Callable[[], object], times: int) -> float:
    """The p95 of an operation in the best of five rounds: a neighbour's burst is not our doing."""
    rounds = []
    for _ in range(5):
        taken = []
        for _ in range(times):
            began = time.perf_counter()
            operation()
            taken.append(time.perf_counter() - began)
        rounds.append(p95(taken))
    return min(rounds)


# --- five tools at once -----------------------------------------------------------------------


async def parallel(*, small: bool) -> list[Figure]:
    """Five tools of 500 ms in one workflow ÷ one of them: waiting tools, and tools in threads."""
    seconds, repeats = (0.02, 1) if small else (0.5, 3)

    async def waits() -> int:
        await asyncio.sleep(seconds)
        return 1

    def blocks() -> int:
        time.sleep(seconds)
        return 1

    def tools(tool: Callable[[], Any], number: int) -> ps.Workflow:
        flow = ps.Workflow("tools")
        for i in range(number):
            flow.step(f"tool{i}", tool)
        return flow

    lines = []
    for kind, tool in (("coroutines", waits), ("threads", blocks)):
        runs = {name: runner(tools(tool, number)) for name, number in (("one", 1), ("five", 5))}
        least = await best(runs, repeats, time.perf_counter)
        lines.append(figure("parallel", least["five"] / least["one"], "wall ratio", kind=kind,
                             one_ms=least["one"] * 1e3, five_ms=least["five"] * 1e3))  # fmt: skip
    return lines


# --- events and commands ----------------------------------------------------------------------


async def watching(*, small: bool) -> list[Figure]:
    """Tasks that suspend once: with a subscriber to every event and a command ÷ with neither."""
    n, repeats = (30, 2) if small else (1000, 300)
    lines = []
    for kind, shape in SHAPES.items():
        flow = shape(n, suspend)
        runs = {"off": runner(flow), "on": runner(flow, watched=True)}
        least = await best(runs, repeats, time.process_time)
        lines.append(figure("watching", least["on"] / least["off"], "CPU ratio", kind=kind, n=n,
                             off_us=least["off"] / n * 1e6, on_us=least["on"] / n * 1e6))  # fmt: skip
    return lines


# --- state, events, commands: one at a time ---------------------------------------------------

UPDATES: dict[str, tuple[str, Callable[[int], Any]]] = {
    "last": ("last", lambda i: i),
    "append": ("append", lambda i: {"i": i}),
    "merge": ("merge", lambda i: {f"k{i}": i}),
    "sum": ("sum", lambda i: i),
    "max": ("max", lambda i: i),
    "min": ("min", lambda i: -i),
}


async def state(*, small: bool) -> list[Figure]:
    """A state update, an event and a command, each by itself."""
    times = 50 if small else 2000
    lines = [_reducing(times), await _setting(30 if small else 1000, repeats=2 if small else 20)]
    lines.append(await _emitting(times))
    rounds = [await _commanding(10 if small else 200, tasks=500 if small else 20_000) for _ in range(5)]
    taken = [seconds for round_ in rounds for seconds in round_]
    lines.append(figure("command", p95(taken) * 1e3, "ms p95", n=len(taken), worst=max(taken) * 1e3,
                        rounds=[round(p95(round_) * 1e3, 4) for round_ in rounds]))  # fmt: skip
    return lines


def _run(**options: Any) -> Run:
    flow = ps.Workflow("state", **options)
    flow.step("only", nothing)
    return Run(RunId("bench"), compile_graph(flow.build()))


def _reducing(times: int) -> Figure:
    """An update checked, turned into an event and folded in, while the value grows with each."""
    worst, kind = 0.0, ""
    for name, (reducer, value) in UPDATES.items():
        run, numbers = _run(reducers={"key": reducer}), count()

        def update(run: Run = run, numbers: Iterator[int] = numbers, value: Any = value) -> None:
            plain, values = reducers.split(run, {"key": value(next(numbers))})
            evolve(run, StateUpdated(run.seq + 1, 0.0, plain, values))

        taken = timed(update, times)
        if taken > worst:
            worst, kind = taken, name
    return figure("reducer", worst * 1e3, "ms p95", kind=kind, n=5 * times)


async def _setting(n: int, repeats: int) -> Figure:
    """The same as part of a run: what `set` adds to a step, expression and journal included."""
    plain = chain(n, nothing)
    flow = ps.Workflow("chain", reducers={"key": "append"})
    for i in range(n):
        flow.step(f"n{i}", nothing, needs=[f"n{i - 1}"] if i else [], set={"key": "${ output }"})
    least = await best({"plain": runner(plain), "set": runner(flow)}, repeats, time.process_time)
    return figure("set", (least["set"] - least["plain"]) / n * 1e3, "ms CPU", n=n)


async def _emitting(times: int) -> Figure:
    """An event built, folded, journalled and published to an observer and a waiting subscriber."""
    run, stream = _run(), Stream()
    journal: list[Event] = []
    seen = 0

    def observe(_: Any) -> None:
        nonlocal seen
        seen += 1

    async def read() -> None:
        async for _ in stream.follow(after=0):
            pass

    def emit() -> None:
        event = LayerStarted(run.seq + 1, 0.0, run.seq)
        evolve(run, event)
        journal.extend([event])
        stream.publish([event])

    stream.observe(observe)
    reader = asyncio.ensure_future(read())
    await asyncio.sleep(0)
    taken = timed(emit, times)
    stream.close()
    await reader
    if seen != run.seq:
        raise SystemExit(f"{seen} of {run.seq} events seen")
    return figure("event", taken * 1e3, "ms p95", n=run.seq)


async def _commanding(times: int, tasks: int) -> list[float]:
    """From putting a command in the queue of a busy loop until its effect is in the state."""
    flow = fan(tasks, suspend)
    async with ps.open("memory:") as app:
        app.prepare(flow)
        handle = await app.start(flow)
        taken = []
        for i in range(times):
            await asyncio.sleep(0)
            if handle.state.ended:
                break
            began = time.perf_counter()
            await asyncio.create_task(handle.send(ps.Message(text=f"{i}")))
            taken.append(time.perf_counter() - began)
            if handle.state.messages[-1]["text"] != f"{i}":
                raise SystemExit("a command was accepted and not applied")
    return taken  # closing has ended what was left of the run


# --- from a thousand tasks to a hundred thousand -----------------------------------------------


async def scale(*, small: bool) -> list[Figure]:
    """CPU per task of a run with a hundred thousand tasks ÷ of one with a thousand."""
    few, many, repeats = (20, 200, 2) if small else (1000, 100_000, 10)
    lines = []
    for kind, shape in SHAPES.items():
        runs = {"few": runner(shape(few, nothing)), "many": runner(shape(many, nothing))}
        cost = await best(runs, repeats, time.process_time, often={"few": 30})
        us = {"few": cost["few"] / few * 1e6, "many": cost["many"] / many * 1e6}
        lines.append(figure("scale", us["many"] / us["few"], "CPU ratio", kind=kind, few=few, many=many,
                             few_us=us["few"], many_us=us["many"]))  # fmt: skip
    return lines


# --- starting up ------------------------------------------------------------------------------

HELLO = """
import penstock as ps

async def step():
    return 1

flow = ps.Workflow("hello")
for i in range(3):
    flow.step(f"n{i}", step, needs=[f"n{i - 1}"] if i else [])
assert ps.run(flow).status == "succeeded"
"""

HELLO_YAML = """
name: hello
steps:
  - {id: a, uses: "py:hello_steps:step"}
  - {id: b, uses: "py:hello_steps:step", needs: a}
  - {id: c, uses: "py:hello_steps:step", needs: b}
"""


async def start(*, small: bool) -> list[Figure]:
    """CPU time of fresh interpreters: imports, a first run, the command's help."""
    return await asyncio.to_thread(_starting, 2 if small else 15)


def _starting(repeats: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "hello.yaml").write_text(HELLO_YAML, "utf-8")
        Path(folder, "hello_steps.py").write_text("async def step():\n    return 1\n", "utf-8")
        cases = {
            "bare": ["-c", "import asyncio"],
            "import": ["-c", "from penstock import Workflow, open, run"],
            "package": ["-c", "import penstock"],
            "hello": ["-c", HELLO],
            "help": ["-m", "penstock", "--help"],
            "command": ["-m", "penstock", "run", str(Path(folder, "hello.yaml"))],
        }
        least = dict.fromkeys(cases, float("inf"))
        for name, arguments in (case for _ in range(repeats) for case in cases.items()):
            least[name] = min(least[name], _cpu(arguments, folder))
    bare = least["bare"]
    lines = [
        figure(f"start {name}", least[name] / bare, "CPU ratio", ms=least[name] * 1e3, bare_ms=bare * 1e3)
        for name in ("import", "package", "hello", "command")
    ]
    lines.append(figure("start help", least["help"] * 1e3, "ms CPU", bare_ms=bare * 1e3))
    return lines


def _cpu(arguments: list[str], folder: str) -> float:
    """User and system seconds of one interpreter. Compiled files are kept, as they are for users."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    if path := environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, path.split(os.pathsep)))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# --- output -----------------------------------------------------------------------------------

FIGURES = {"parallel": parallel, "watching": watching, "state": state, "scale": scale, "start": start}


if __name__ == "__main__":
    main(__doc__, FIGURES)
