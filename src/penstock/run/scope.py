"""What control expressions find in a run.

Only what the fold keeps: whole outputs are read by engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.ids import StepId
from penstock.run.state import FAILED, SUCCEEDED, Run
from penstock.workflow.expr import MISSING, Path


def look_up(run: Run, path: Path, i: int = -1) -> Any:
    """What a control expression of step `i` finds at a path; `MISSING` when there is nothing."""
    root = path[0]
    if root == "inputs":
        return dig(run.inputs, path[1:])
    if root == "steps":
        return _look_up_step(run, path)
    if root == "context":
        return dig(run.context | run.keys, path[1:])
    if root == "run":
        return dig({"id": run.id, "workflow": run.graph.workflow.name}, path[1:])
    if root == "iteration":
        return run.iteration(i)
    if root == "route":
        return dig(run.arrivals.get(i), path[1:])
    if root == "previous":
        return _look_up_previous(run, path)
    if root == "output":
        return _look_up_own(run, i, path)
    if root == "status":
        return "failed" if run.phase[i] == FAILED else "succeeded"
    if root == "max_iterations":
        return run.graph.routers[i].max_iterations if i in run.graph.routers else MISSING
    if root == "detour":
        return _look_up_detour(run, i, path)
    if root == "attempts":
        return []
    return MISSING


def _look_up_own(run: Run, i: int, path: Path) -> Any:
    if run.phase[i] != SUCCEEDED:
        return None
    return run.control.get(i, {}).get(control_key(path[1:]), MISSING)


def _look_up_previous(run: Run, path: Path) -> Any:
    found = run.previous.get(run.graph.index.get(StepId(path[1]), -1)) if len(path) > 1 else None
    if found is None:
        return None
    if len(path) < 3:
        return MISSING
    if path[2] == "status":
        return found[0]
    return found[2].get(control_key(path[3:]), MISSING) if found[0] == "succeeded" else None


def _look_up_detour(run: Run, i: int, path: Path) -> Any:
    found = run.detoured.get(i)
    if found is None or len(path) == 1 or path[1] != "output":
        return dig(found, path[1:])
    return _look_up_step(run, ("steps", found["step"], *path[1:]))


def _look_up_step(run: Run, path: Path) -> Any:
    i = run.graph.index.get(StepId(path[1]), -1)
    if i < 0 or len(path) < 3:
        return MISSING
    if path[2] == "status":
        return run.step_status(i)
    if path[2] == "error":
        return run.reasons[i][1] if run.phase[i] == FAILED else None
    if run.phase[i] != SUCCEEDED:
        return None  # skipped, failed with `on_error: continue`, or not needed to have ended
    return run.control.get(i, {}).get(control_key(path[3:]), MISSING)


def control_key(path: Path) -> str:
    """A path below an output as the key it is kept under: dotted, and unambiguous all the same."""
    return ".".join(part.replace("\\", "\\\\").replace(".", "\\.") for part in path)


def dig(value: Any, path: Path) -> Any:
    """Follow a path into JSON. Below null everything is null; a missing key is `MISSING`."""
    for key in path:
        if value is None:
            return None
        if not isinstance(value, Mapping) or key not in value:
            return MISSING
        value = value[key]
    return value
