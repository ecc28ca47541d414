"""What adapting costs: conditions, decision points, and the way from a result to the step it calls for.

    python benchmarks/adaptive.py [condition off feedback] [--small]

One JSON line per figure, with its limit.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from report import Figure, figure, main, p95

import penstock as ps
from penstock.run.events import DagChanged, TaskCompleted, TaskStarted
from penstock.workflow import expr
from penstock.workflow.expr import Scope


async def condition(*, small: bool = False) -> list[Figure]:
    """A routing condition over a state of 200 keys, as the core evaluates it."""
    state = {f"key{i}": {"value": i, "name": f"name {i}"} for i in range(200)}
    scope = Scope(names=frozenset({"context", "output", "iteration"}))
    source = "context.key7.value > 3 && context.key191.name == 'name 191' && output.score >= 0.5"
    expression = expr.compile(source, scope, "bool")

    def look_up(path: tuple[str, ...]) -> Any:
        value: Any = {"context": state, "output": {"score": 0.75}, "iteration": 2}
        for key in path:
            value = value[key]
        return value

    rounds, each = (5, 200) if small else (30, 2000)
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(each):
            expression.evaluate(look_up)
        took.append((time.perf_counter() - began) / each)
    return [figure("condition", median(took) * 1e6, "us", limit=30.0)]


async def off(*, small: bool = False) -> list[Figure]:
    """A chain whose decision points are configured and never reached, ÷ the same chain without any."""
    steps, rounds = (100, 5) if small else (1000, 40)
    plain, asking = _chain(steps), _chain(steps, ail={"at": "manual", "decider": "external"})
    took: dict[str, list[float]] = {"plain": [], "asking": []}
    async with ps.open("memory:") as penstock:
        for flow in (plain, asking):
            penstock.prepare(flow)
        for _ in range(rounds):
            for name, flow in (("plain", plain), ("asking", asking)):
                began = time.process_time()
                await (await penstock.start(flow)).result()
                took[name].append(time.process_time() - began)
    ratio = min(took["asking"]) / min(took["plain"])
    return [figure("decision points that are off", ratio, "x", limit=1.02)]


async def feedback(*, small: bool = False) -> list[Figure]:
    """From the end of a layer, over a rule that applies, to the start of the step that it adds."""
    took = []
    async with ps.open("memory:", tools=[_found]) as penstock:
        for _ in range(20 if small else 300):
            moments: dict[str, float] = {}
            flow = ps.Workflow(
                "discovery",
                ail={
                    "at": "per_layer",
                    "rules": [
                        {
                            "if": "steps.list.output.exists(f, f.endsWith('.xml'))",
                            "do": "inject",
                            "tasks": [{"id": "xml", "uses": "local:_found"}],
                        }
                    ],
                },
            )
            flow.step("list", _found)
            flow.step("report", _found, needs=["list"])
            run = await penstock.start(flow)

            def heard(event: Any, moments: dict[str, float] = moments) -> None:
                if isinstance(event, TaskCompleted) and event.step == "list":
                    moments["ended"] = event.at
                elif isinstance(event, DagChanged):
                    moments["added"] = event.at
                elif isinstance(event, TaskStarted) and event.step == "xml":
                    moments["began"] = time.time()

            run.observe(heard)
            await run.result()
            took.append(moments["began"] - moments["ended"])
    return [figure("layer done, rule, added step started (p95)", p95(took) * 1e3, "ms", limit=10.0)]


async def _found() -> list[str]:
    return ["a.json", "b.xml"]


def _chain(steps: int, **config: Any) -> ps.Workflow:
    flow = ps.Workflow("chain", **config)
    for i in range(steps):
        flow.step(f"n{i}", _nothing, needs=[f"n{i - 1}"] if i else [])
    return flow


async def _nothing() -> None:
    return None


FIGURES = {"condition": condition, "off": off, "feedback": feedback}


if __name__ == "__main__":
    main(__doc__, FIGURES, lambda found: {**found, "ok": found["value"] <= found["limit"]})
