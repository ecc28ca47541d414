"""A run as plain data: what is kept of it, and what two equal runs have in common.

`restore` is the inverse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.run.state import Run

BY_STEP = (
    "reasons", "attempts", "attempt_base", "item_base", "iterations", "iteration_base", "control",
    "overrides", "previous", "prints", "rounds", "arrivals", "detoured", "previews", "unsettled",
    "wave",
)  # fmt: skip
"""Sparse fields of a run: step index to value."""

BY_TASK = ("tried", "gate_base", "checking", "approved", "edits", "resting_until")
"""Sparse fields of a run: (step index, item or -1) to value."""

_DIGITS = bytes.maketrans(bytes(range(8)), b"01234567")
"""Phases as text, a digit a step: a snapshot of many steps stays small."""

SCALARS = (
    "id", "seq", "at", "started_at", "parent", "engine", "inputs", "durations", "status_", "reason",
    "outputs", "open", "running", "timers", "openings", "calls", "allowance", "metered", "layer",
    "failures", "first_failure",
    "stopping", "stop_reason", "ending", "shortfall", "context", "keys", "usage", "worked", "then",
)  # fmt: skip
"""Fields of a run that a snapshot holds as they are."""


def snapshot(run: Run) -> dict[str, Any]:
    """Everything the events determine, as plain data. Equal runs have equal snapshots."""
    ids = run.graph.ids
    named = {name: {ids[i]: value for i, value in sorted(getattr(run, name).items())} for name in BY_STEP}
    return {
        **{name.rstrip("_"): getattr(run, name) for name in SCALARS},
        **named,
        **{name: _by_task(run, name) for name in BY_TASK},
        "workflow": run.graph.workflow.name,
        "phases": run.phase.translate(_DIGITS).decode(),
        "pending": run.pending,
        "ended_at": run.ended_at.tolist(),
        "blamed": {ids[i]: ids[j] for i, j in sorted(run.blamed.items())},
        "passed_over": {ids[i]: ids[j] for i, j in sorted(run.passed_over.items())},
        "maps": {ids[i]: state.snapshot() for i, state in sorted(run.maps.items())},
        "returning": {ids[i]: ids[j] for i, j in sorted(run.returning.items())},
        "forgiven": [ids[i] for i in sorted(run.forgiven)],
        "settled": [ids[i] for i in sorted(run.settled)],
        "frames": [(ids[i], ids[j]) for i, j in run.frames],
        "fired": sorted(run.fired),
        "copied": sorted(run.copied),
        "warned": sorted(run.warned),
        "raised": run.raised,
        "decided": list(run.decided),
        "pauses": sorted(run.pauses),
        "injected": run.injected,
        "commands": run.commands,
        "decisions": run.decisions,
        "messages": list(run.messages),
        "tasks": list(run.tasks),
    }


def _by_task(run: Run, name: str) -> dict[str, Any]:
    ids = run.graph.ids
    return {
        ids[i] if item < 0 else f"{ids[i]}.{item}": value
        for (i, item), value in sorted(getattr(run, name).items())
    }
