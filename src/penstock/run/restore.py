"""A run from its snapshot: the inverse of `Run.snapshot`."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.ids import RunId
from penstock.run.events import DecisionRequired
from penstock.run.state import SCALARS, MapState, Reducer, Run
from penstock.workflow.graph import Graph, extend
from penstock.workflow.spec import Step


def restore(
    id: RunId, graph: Graph, snapshot: Mapping[str, Any], *, reducers: Mapping[str, Reducer] | None = None
) -> Run:
    """The run that a snapshot was taken of. Raises `ValueError` when it is not one of this definition."""
    injected = msgspec.convert(snapshot["injected"], tuple[Step, ...])
    if injected:
        graph = extend(graph, injected)
    phases = snapshot["phases"].encode()
    if snapshot["id"] != id or len(phases) != len(graph.ids) or snapshot["workflow"] != graph.workflow.name:
        raise ValueError("a snapshot of another run or another definition")
    run = Run(id, graph, reducers=reducers)
    for name in SCALARS:
        setattr(run, name, snapshot[name.rstrip("_")])
    index = graph.index
    for name in ("attempts", "attempt_base", "item_base", "iterations", "control", "overrides"):
        setattr(run, name, {index[step]: value for step, value in snapshot[name].items()})
    run.reasons = {index[step]: (kind, text) for step, (kind, text) in snapshot["reasons"].items()}
    run.phase[:] = bytes(digit - ord("0") for digit in phases)
    run.pending = list(snapshot["pending"])
    run.ended_at = array("q", snapshot["ended_at"])
    run.blamed = {index[step]: index[need] for step, need in snapshot["blamed"].items()}
    run.passed_over = {index[step]: index[need] for step, need in snapshot["passed_over"].items()}
    run.maps = {index[step]: _map(state) for step, state in snapshot["maps"].items()}
    run.unsettled = set(snapshot["unsettled"])
    run.pauses = set(snapshot["pauses"])
    run.commands = dict(snapshot["commands"])
    run.decisions = msgspec.convert(snapshot["decisions"], dict[str, DecisionRequired])
    run.messages.extend(snapshot["messages"])
    run.tasks.extend(snapshot["tasks"])
    run.injected = list(injected)
    run.due = [i for i, left in enumerate(run.pending) if not left or i in run.blamed]
    return run


def _map(kept: Mapping[str, Any]) -> MapState:
    state = MapState()
    for name, value in kept.items():
        numbered = name in ("asking", "running", "backoff", "errors")
        setattr(state, name, {int(item): one for item, one in value.items()} if numbered else value)
    return state
