"""What a run has used of its budgets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from penstock.ids import StepId
from penstock.run.events import Event, ModelCalled, TaskStarted, WorkflowResumed
from penstock.run.state import RUNNING, Run
from penstock.workflow.spec import Budget

NEARLY = 0.8
"""The share of a budget at which someone is told."""

NAMES = ("usd", "tokens", "wall", "tool_calls")


def figure(amount: float) -> str:
    """An amount as people read it: `1,250,000`, `0.5`, `0.0042`."""
    text = f"{amount:,.2f}" if amount >= 0.1 else f"{amount:.2g}"
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def meter(run: Run, event: Event) -> None:
    """Part of `evolve`. Time counts only while something could go on without a person."""
    if run.status_ == "running" and not _idle(run, event):
        passed = max(0.0, event.at - run.at)
        run.worked += passed
        for i in run.graph.timed:
            if run.phase[i] == RUNNING and (i not in run.maps or run.maps[i].running) and not _asks(run, i):
                key = f"{run.graph.ids[i]}/wall"
                run.usage[key] = run.usage.get(key, 0.0) + passed
    if isinstance(event, TaskStarted):
        i = run.graph.index[event.step]
        if run.graph.workflow.steps[i].budget is not None and (
            event.item is not None or i not in run.graph.for_each
        ):
            key = f"{event.step}/tool_calls"
            run.usage[key] = run.usage.get(key, 0.0) + 1


def _idle(run: Run, event: Event) -> bool:
    """Whether nobody worked up to now: everything waited for a person, or no process drove the run."""
    if isinstance(event, WorkflowResumed) and event.by != "command":
        return True
    if run.pauses or not run.decisions:
        return bool(run.pauses)
    return (run.holding or not run.timers) and run.running <= _inputs(run)


def _inputs(run: Run, step: StepId | None = None) -> int:
    """Tasks in flight that wait for a person."""
    asked = (one for one in run.decisions.values() if one.kind == "input" and step in (None, one.step))
    return len({(one.step, one.item) for one in asked})


def _asks(run: Run, i: int) -> bool:
    """Whether all that is in flight of a step waits for a person."""
    running = len(run.maps[i].running) if i in run.maps else 1
    return bool(run.decisions) and _inputs(run, run.graph.ids[i]) >= running


def count_call(run: Run, event: ModelCalled) -> None:
    """Part of `evolve`: what a model cost."""
    used = {"usd": event.call.get("cost"), "tokens": event.call.get("tokens")}
    count_usage(run, event.step, {name: amount for name, amount in used.items() if amount})


def count_usage(run: Run, step: StepId | None, used: Mapping[str, float]) -> None:
    for name, amount in used.items():
        if name == "wall":
            continue  # it passes for everyone at once
        if step is None:
            run.usage[name] = run.usage.get(name, 0.0) + float(amount)
        else:
            _use(run, step, name, float(amount))


def count_afresh(run: Run, allowance: Mapping[str, float]) -> None:
    """Part of `evolve`: another attempt goes on here. What came before is on the bill of the last one."""
    run.usage = {name: amount for name, amount in run.usage.items() if "/" in name}
    run.calls, run.worked = 0, 0.0
    run.raised = {name: limit for name, limit in run.raised.items() if "/" in name}
    run.warned = {name for name in run.warned if "/" in name}
    run.allowance, run.metered = allowance, run.metered or bool(allowance)


def _use(run: Run, step: StepId, name: str, amount: float) -> None:
    run.usage[name] = run.usage.get(name, 0.0) + amount
    i = run.graph.index[step]
    if run.graph.workflow.steps[i].budget is not None:
        key = f"{step}/{name}"
        run.usage[key] = run.usage.get(key, 0.0) + amount


def used(run: Run) -> dict[str, float]:
    """What a run has used so far, its children included."""
    found = {name: amount for name, amount in run.usage.items() if "/" not in name}
    return {**found, "tool_calls": found.get("tool_calls", 0) + run.calls, "wall": run.worked}


def left(run: Run, i: int) -> dict[str, float]:
    """What a step may hand on to a child run: the least of what its budgets leave."""
    found: dict[str, float] = {}
    for key, spent, limit in budgets(run, i):
        name = key.rpartition("/")[2]
        found[name] = min(found.get(name, math.inf), max(0.0, limit - spent))
    return found


def budgets(run: Run, i: int) -> Iterator[tuple[str, float, float]]:
    """Budgets that the start of a step draws on: name, used and limit."""
    total = used(run)
    for name, limit in run.allowance.items():
        yield name, total.get(name, 0.0), run.raised.get(name, limit)
    config = run.graph.workflow.config.budget
    if config is not None:
        yield from _limits(run, "", config, total)
    own = run.graph.workflow.steps[i].budget
    if own is not None:
        yield from _limits(run, f"{run.graph.ids[i]}/", own, total)


def _limits(
    run: Run, prefix: str, budget: Budget, total: Mapping[str, float]
) -> Iterator[tuple[str, float, float]]:
    for name in NAMES:
        limit = getattr(budget, name)
        if limit is None:
            continue
        key = f"{prefix}{name}"
        spent = run.usage.get(key, 0.0) if prefix else total.get(name, 0.0)
        yield key, spent, run.raised.get(key, limit)
