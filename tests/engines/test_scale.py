"""Size: deep chains, deep cascades, wide fans. Nothing recurses, nothing is looked at twice."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

import pytest

import penstock as ps
from penstock.ids import CommandId, RunId, StepId
from penstock.run.commands import Abort
from penstock.run.decide import decide
from penstock.run.events import Event, TaskStarted
from penstock.run.facts import CommandReceived, RunRequested, TaskRaised, TaskReturned
from penstock.run.replay import replay
from penstock.run.state import Run
from penstock.workflow.graph import Graph, compile_graph
from penstock.workflow.spec import Config, Step, Workflow

pytestmark = pytest.mark.slow

MANY = 100_000


def chain(n: int) -> Graph:
    """Each step needs the one before."""
    return compile_graph(
        Workflow(
            name="chain",
            steps=tuple(
                Step(id=StepId(f"s{i}"), uses="t:x", needs=(StepId(f"s{i - 1}"),) if i else ())
                for i in range(n)
            ),
        )
    )


def fan(n: int, *, max_parallel: int = 32) -> Graph:
    """One step, then `n` that need it, then one that needs them all."""
    middle = [Step(id=StepId(f"s{i}"), uses="t:x", needs=(StepId("first"),)) for i in range(n)]
    steps = (
        Step(id=StepId("first"), uses="t:x"),
        *middle,
        Step(id=StepId("last"), uses="t:x", needs=tuple(step.id for step in middle)),
    )
    return compile_graph(Workflow(name="fan", steps=steps, config=Config(max_parallel=max_parallel)))


def begun(graph: Graph) -> Run:
    run = Run(RunId("r"), graph)
    decide(run, RunRequested({}), 0.0)
    return run


def test_a_chain_of_100_000_steps_runs_on_the_engine() -> None:
    async def step() -> None:
        pass

    flow = ps.Workflow("chain")
    flow.step("s0", step)
    for i in range(1, MANY):
        flow.step(f"s{i}", step, needs=f"s{i - 1}")

    result = ps.run(flow)

    assert result.counts == {"succeeded": MANY}


def test_a_skip_cascade_100_000_deep_is_one_batch() -> None:
    run = begun(chain(MANY))

    batch = decide(run, TaskRaised(0, "no"), 1.0)

    assert run.status == "failed"
    assert run.reasons[MANY - 1][0] == "upstream_failed"
    assert len(batch) == MANY + 1


def test_a_fan_of_100_000_keeps_its_limit_and_joins_once() -> None:
    run = Run(RunId("r"), fan(MANY, max_parallel=100))
    running = deque(_started(run, decide(run, RunRequested({}), 0.0)))
    while running:
        assert run.running <= 100
        running += _started(run, decide(run, TaskReturned(running.popleft(), None), 1.0))

    assert run.status == "succeeded"
    assert run.openings == MANY + 2


def _started(run: Run, batch: list[Event]) -> list[int]:
    return [run.graph.index[event.step] for event in batch if isinstance(event, TaskStarted)]


def test_aborting_a_wide_run_costs_as_much_per_task_as_a_narrow_one() -> None:
    seconds = {}
    for n in (2_000, 20_000):
        run = begun(fan(n, max_parallel=n))
        decide(run, TaskReturned(0, None), 1.0)
        began = time.process_time()
        decide(run, CommandReceived(Abort(id=CommandId("a"))), 2.0)
        for i in range(1, n + 1):
            decide(run, TaskRaised(i, "cancelled", "cancelled"), 3.0)
        seconds[n] = (time.process_time() - began) / n
        assert run.status == "aborted"

    assert seconds[20_000] < 4 * seconds[2_000]


def test_a_step_costs_the_same_in_a_long_chain_as_in_a_short_one() -> None:
    seconds = {}
    for n in (2_000, 40_000):
        run = begun(chain(n))
        began = time.process_time()
        for i in range(n):
            decide(run, TaskReturned(i, None), 1.0)
        seconds[n] = (time.process_time() - began) / n
        assert run.status == "succeeded"

    assert seconds[40_000] < 3 * seconds[2_000]


def test_a_long_history_folds_quickly_and_to_the_same_state() -> None:
    graph = chain(MANY)
    run = Run(RunId("r"), graph)
    events = decide(run, RunRequested({}), 0.0)
    for i in range(MANY):
        events += decide(run, TaskReturned(i, i), 1.0)

    again = replay(RunId("r"), graph, events)

    assert again.encoded() == run.encoded()


def test_a_map_of_100_000_items() -> None:
    async def double(n: int) -> int:
        return 2 * n

    async def numbers() -> list[int]:
        return list(range(MANY))

    flow = ps.Workflow("map")
    flow.output("all", flow.step("double", double, for_each=flow.step("numbers", numbers), n="${ item }"))

    result = ps.run(flow)

    assert result.outputs["all"] == [2 * n for n in range(MANY)]


def test_a_hundred_runs_at_once() -> None:
    async def step(n: int) -> int:
        await asyncio.sleep(0)
        return n

    async def main() -> list[Any]:
        flow = ps.Workflow("w")
        last = flow.step("s0", step, n=flow.input("n", int))
        for i in range(1, 50):
            last = flow.step(f"s{i}", step, n=last)
        flow.output("n", last)
        async with ps.open() as penstock:
            handles = [await penstock.start(flow, n=n) for n in range(100)]
            return [(await handle.result()).outputs["n"] for handle in handles]

    assert asyncio.run(main()) == list(range(100))
