"""What someone who decides has to know, as a text: what is done, what comes next, what is at stake.

Short enough to be read (or paid for): about a thousand tokens at most. What steps gave is shown
by its beginning; whoever needs all of it looks it up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.run.state import ASKING, DORMANT, FAILED, RUNNING, SKIPPED, SUCCEEDED, WAITING, Run, place
from penstock.workflow.spec import Effect, Step

MOST = 4_000
"""Characters of a summary: a thousand tokens, roughly."""

PREVIEW = 160
"""Characters of what a step gave."""

LISTED = 12
"""Steps that are listed by name."""

_CALL = 1_500
"""Characters of a call."""


def preview(output: Any) -> str:
    """The beginning of an output."""
    text = output if isinstance(output, str) else msgspec.json.encode(output).decode(errors="replace")
    text = " ".join(text[: 4 * PREVIEW].split())
    return text if len(text) <= PREVIEW else f"{text[: PREVIEW - 1]}…"


def summarise(
    run: Run,
    headline: str,
    *,
    call: Mapping[str, Any] | None = None,
    step: int = -1,
    effect: Effect | None = None,
) -> str:
    """The headline, and the state of affairs around it. Masked: it may be sent anywhere."""
    if run.summariser is not None:
        return run.mask(str(run.summariser(run, headline, call, step)))[:MOST]
    parts = [headline, *_affairs(run, step)]
    if call is not None:
        parts += [f"Exact call: {shown(call)}", f"Risk: {_risk(run, step, call, effect)}"]
        if call.get("changed"):
            parts += ["This tool is not what was approved:", str(call["changed"])[:_CALL]]
    return run.mask("\n".join(parts))[:MOST]


def _affairs(run: Run, step: int) -> list[str]:
    ids, phase = run.graph.ids, run.phase
    by_phase: dict[int, list[int]] = {}
    for i, where in enumerate(phase):
        by_phase.setdefault(where, []).append(i)
    done = by_phase.get(SUCCEEDED, [])
    latest = sorted(done, key=lambda i: run.ended_at[i])[-LISTED:]
    lines = [f"Run {run.id} of {run.graph.workflow.name}: {len(done)} of {len(ids)} steps done."]
    lines += [f"- {ids[i]}: {run.previews.get(i, 'succeeded')}" for i in latest]
    lines += [f"- {ids[i]} failed: {preview(run.reasons[i][1])}" for i in by_phase.get(FAILED, [])[:LISTED]]
    if skipped := by_phase.get(SKIPPED):
        lines.append(f"Skipped: {_names(run, skipped)}.")
    open_ = by_phase.get(RUNNING, [])
    if running := [i for i in open_ if _busy(run, i, step)]:
        lines.append(f"Running: {_names(run, running)}.")
    asking = sorted({*by_phase.get(ASKING, []), *open_} - {*running, step})
    if asking:
        lines.append(f"Waiting for an answer: {_names(run, asking)}.")
    coming = [i for i in by_phase.get(WAITING, []) + by_phase.get(DORMANT, []) if i != step]
    ready = [i for i in coming if run.queued[i] or i in run.due]
    lines.append(f"Next: {_names(run, ready or coming)}." if coming else "Next: nothing.")
    critical = [i for i in coming if i in run.graph.guarded]
    if critical:
        lines.append(f"To be approved later: {_names(run, critical)}.")
    return lines


def _busy(run: Run, i: int, asked: int) -> bool:
    """Whether a step that has begun does anything, besides what is being asked about."""
    state = run.maps.get(i)
    if state is None:
        return i != asked
    checked = i == asked and any(place(i, item) in run.checking for item in state.running)
    return len(state.running) > checked or bool(state.backoff) or not (state.asking or i == asked)


def _names(run: Run, steps: Sequence[int]) -> str:
    more = f" and {len(steps) - LISTED} more" if len(steps) > LISTED else ""
    return ", ".join(run.graph.ids[i] for i in steps[:LISTED]) + more


def shown(call: Mapping[str, Any]) -> str:
    """A call as a person reads it."""
    if "args" not in call:
        return str(call.get("uses", ""))
    args = msgspec.json.encode(call["args"]).decode(errors="replace")
    return f"{call.get('uses', '')} {args if len(args) <= _CALL else args[: _CALL - 1] + '…'}"


def _risk(run: Run, i: int, call: Mapping[str, Any], effect: Effect | None) -> str:
    if i < 0:
        return "unknown"
    step: Step = run.graph.workflow.steps[i]
    marks = ["marked critical"] if step.critical else []
    if call.get("rule"):
        marks.append(str(call["rule"]))
    if step.effect:
        marks.append(f"effect: {step.effect}")
    elif effect == "destructive":
        marks.append("what it calls is destructive")
    after = len(run.graph.dependents[i])
    marks.append(f"steps that depend on it: {after}" if after else "nothing depends on it")
    return "; ".join(marks)
