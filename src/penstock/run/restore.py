"""A run from its snapshot: the inverse of `Run.snapshot`."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.ids import RunId, StepId
from penstock.run.events import DecisionRequired
from penstock.run.map_state import NUMBERED, MapState
from penstock.run.snapshot import BY_STEP, BY_TASK, SCALARS
from penstock.run.state import Injection, Place, Reducer, Run
from penstock.workflow.graph import Graph, extend


def restore(
    id: RunId, graph: Graph, snapshot: Mapping[str, Any], *, reducers: Mapping[str, Reducer] | None = None
) -> Run:
    """The run that a snapshot was taken of. Raises `ValueError` when it is not one of this definition."""
    injected = msgspec.convert(snapshot["injected"], list[Injection])
    for one in injected:
        graph = extend(graph, one.steps, feeds=one.feeds)
        graph.guard(graph.index[step] for step in one.guarded)
    phases = snapshot["phases"].encode()
    if snapshot["id"] != id or len(phases) != len(graph.ids) or snapshot["workflow"] != graph.workflow.name:
        raise ValueError("a snapshot of another run or another definition")
    run = Run(id, graph, reducers=reducers)
    for name in SCALARS:
        setattr(run, name, snapshot[name.rstrip("_")])
    index = graph.index
    for name in BY_STEP:
        setattr(run, name, {index[step]: value for step, value in snapshot[name].items()})
    for name in BY_TASK:
        setattr(run, name, {_task(index, key): value for key, value in snapshot[name].items()})
    run.previous = {i: (kept[0], kept[1], kept[2]) for i, kept in run.previous.items()}
    run.checking = {at: (kept[0], kept[1], kept[2]) for at, kept in run.checking.items()}
    run.reasons = {i: (kind, text) for i, (kind, text) in run.reasons.items()}
    run.phase[:] = bytes(digit - ord("0") for digit in phases)
    run.pending = list(snapshot["pending"])
    run.ended_at = array("q", snapshot["ended_at"])
    run.blamed = {index[step]: index[need] for step, need in snapshot["blamed"].items()}
    run.passed_over = {index[step]: index[need] for step, need in snapshot["passed_over"].items()}
    run.maps = {index[step]: _map(state) for step, state in snapshot["maps"].items()}
    run.returning = {index[step]: index[to] for step, to in snapshot["returning"].items()}
    run.forgiven = {index[step] for step in snapshot["forgiven"]}
    run.settled = {index[step] for step in snapshot["settled"]}
    run.frames = [(index[step], index[to]) for step, to in snapshot["frames"]]
    for name in ("fired", "copied", "warned"):
        setattr(run, name, set(snapshot[name]))
    run.raised = dict(snapshot["raised"])
    run.decided.extend(snapshot["decided"])
    run.pauses = set(snapshot["pauses"])
    run.commands = dict(snapshot["commands"])
    run.decisions = msgspec.convert(snapshot["decisions"], dict[str, DecisionRequired])
    run.messages.extend(snapshot["messages"])
    run.tasks.extend(snapshot["tasks"])
    run.injected = injected
    run.choosing, run.left = list(run.unsettled), list(run.settled)
    run.due = [i for i, left in enumerate(run.pending) if not left or i in run.blamed]
    return run


def _task(index: Mapping[StepId, int], key: str) -> Place:
    """The inverse of how a snapshot names a task: no id of a step has a dot in it."""
    step, _, item = key.partition(".")
    return index[StepId(step)], int(item) if item else -1


def _map(kept: Mapping[str, Any]) -> MapState:
    state = MapState()
    for name, value in kept.items():
        numbered = name in NUMBERED
        setattr(state, name, {int(item): one for item, one in value.items()} if numbered else value)
    return state
