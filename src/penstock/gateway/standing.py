"""How a run stands, as a caller is told: the status, what is pending, what comes next and the options."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from penstock.ids import RunId, StepId
from penstock.run.state import RUNNING, SUCCEEDED, Run

SETTLED: Final = ("waiting", "paused", "succeeded", "failed", "partial", "aborted")
"""Statuses in which nothing more comes of waiting."""


class Progress(NamedTuple):
    done: int
    known: int
    doing: str


def handle(run: Run, id: RunId, handle: str, stands: str = "") -> dict[str, Any]:
    """The answer to whatever was asked about a run; its results are the caller's to add."""
    answer: dict[str, Any] = {
        "status": status(run, stands),
        "run_id": handle,
        "checkpoint_id": f"{id}@{run.seq}",
        "results": {},
        "next": _next(run),
        "options": _options(run),
        "pending": _pending(run),
    }
    if run.ended and run.outputs:
        answer["outputs"] = run.outputs
    if run.reason:
        answer["reason"] = run.reason
    return answer


def settled(run: Run) -> bool:
    """Whether nothing more comes of waiting: not even for a task that itself waits for a person."""
    return run.status in SETTLED or _asks(run)


def _asks(run: Run) -> bool:
    return any(asked.kind == "input" for asked in run.decisions.values())


def status(run: Run, stands: str = "") -> str:
    """In the words of a caller. `stands` is what the store says of a run that nobody drives.

    What could start next is found by whoever drives a run: read from its events, one that only
    waits looks as if it went on.
    """
    if run.ended:
        return "complete" if run.status == "succeeded" else run.status
    kinds = {asked.kind for asked in run.decisions.values()}
    stands = stands or run.status
    if stands == "waiting" or run.holding or _asks(run):
        if kinds == {"ail"}:
            return "layer_complete"
        return "approval_required" if "approval" in kinds else "decision_required"
    return stands


def progress(run: Run) -> Progress:
    """Steps that have ended, of those there are by now, and what goes on."""
    ids = run.graph.ids
    done = sum(1 for phase in run.phase if phase >= SUCCEEDED)
    running = [ids[i] for i, phase in enumerate(run.phase) if phase == RUNNING]
    doing = f"{done} of {len(ids)} steps done"
    if running:
        doing += f"; {', '.join(running[:3])}{' …' if len(running) > 3 else ''}"
    elif run.decisions:
        doing += "; waiting for a decision"
    return Progress(done, len(ids), doing)


def _pending(run: Run) -> list[dict[str, Any]]:
    return [
        {
            "decision": asked.decision,
            "kind": asked.kind,
            "step": asked.step,
            "summary": asked.summary,
            "options": list(asked.options),
            **({"call": asked.call} if asked.kind == "approval" else {}),
            **({"schema": asked.schema} if "properties" in asked.schema.get("respond", ()) else {}),
        }
        for asked in run.decisions.values()
    ]


def _next(run: Run) -> list[StepId]:
    """The steps that come next."""
    if run.ended:
        return []
    ids = run.graph.ids
    ready = [ids[i] for i, queued in enumerate(run.queued) if queued]
    return ready or [ids[i] for i, phase in enumerate(run.phase) if phase == 0 and not run.pending[i]]


def _options(run: Run) -> list[str]:
    if run.ended:
        return []
    verbs = ["continue", "replan", "abort"]
    return ["respond", *verbs] if any(one.kind != "ail" for one in run.decisions.values()) else verbs
