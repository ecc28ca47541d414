"""Runs and questions as programs are told of them: plain data, the same on every surface."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.engines.base import Result
from penstock.run.events import DecisionRequired
from penstock.store.base import RunRecord


def summary_of(result: Result, asked: Sequence[DecisionRequired] = ()) -> dict[str, Any]:
    """How a run stands: the line that ends `--json`."""
    return {
        "run_id": result.run_id,
        "status": result.status,
        "outputs": result.outputs,
        "steps": {
            id: {"status": s.status, "attempts": s.attempts, "iterations": s.iterations, "reason": s.reason}
            for id, s in result.steps.items()
        },
        "pending": [pending(one) for one in asked],
        "duration_ms": round(result.duration * 1000, 3),
    }


def pending(asked: DecisionRequired) -> dict[str, Any]:
    """An open decision as the line that ends `run --json` tells it."""
    return {"id": asked.decision, "kind": asked.kind, "step": asked.step, "summary": asked.summary}


def run_line(one: RunRecord) -> dict[str, Any]:
    """A run as programs see it in a list."""
    return {
        "run_id": one.run,
        "status": one.status,
        "workflow": one.workflow,
        "started": moment(one.started),
        "ended": None if one.ended is None else moment(one.ended),
        "events": one.events,
        "reason": one.reason,
        "owner": one.owner or None,
        "parent": one.parent,
        "fork_of": one.fork_of,
        "fork_at": one.fork_at,
        "source": one.source,
        "hash": one.hash,
    }


def question(record: RunRecord, asked: DecisionRequired) -> dict[str, Any]:
    """An open decision with all that there is to know of it."""
    return {
        **pending(asked),
        "run_id": record.run,
        "workflow": record.workflow,
        "iteration": asked.iteration,
        "item": asked.item,
        "attempt": asked.attempt,
        "options": asked.options,
        "call": asked.call,
        "digest": asked.digest,
        "schema": asked.schema,
        "asked": moment(asked.at),
        "deadline": None if asked.deadline is None else moment(asked.deadline),
    }


def moment(at: float) -> str:
    """A time as programs read it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
