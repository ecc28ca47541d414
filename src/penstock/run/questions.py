"""What decisions and gates do to the tasks they are about. Part of `evolve`."""

from __future__ import annotations

from penstock.run.events import DecisionMade, DecisionRequired, GateChecked, GateStarted
from penstock.run.release import end_inputs
from penstock.run.state import ASKING, BACKOFF, RUNNING, Run, place
from penstock.run.usage import count_usage

AGAIN = frozenset({"retry", "approve", "edit", "superseded"})
"""Answers that let a task start."""

GIVEN = frozenset({"respond", "approve"})
"""Answers that give a task what it asked for."""


_ENDING = frozenset({"orphan", "gate", "approval"})
"""Questions about a task that is not under way any more."""


def ask(run: Run, event: DecisionRequired) -> None:
    """Someone is asked. A question about a task keeps that task from going on, and no other."""
    if event.kind in _ENDING and event.step is not None:
        end_inputs(run, event.step, event.item)
    run.decisions[event.decision] = event
    if event.step is None or event.kind not in _ENDING:
        return
    i = run.graph.index[event.step]
    run.preparing.discard(place(i, event.item))
    run.resting_until.pop(place(i, event.item), None)
    if event.kind == "approval":
        run.approved.pop(place(i, event.item), None)  # it was for another call
        if event.item is None and run.phase[i] == RUNNING:
            run.attempt_base[i] = run.attempt_base.get(i, 0) + 1  # an attempt that was not made
    if event.item is not None:
        _ask_about_item(run, i, event.item, event)
        return
    if run.phase[i] == RUNNING:
        run.running -= 1
    elif run.phase[i] == BACKOFF:
        run.timers -= 1
    run.phase[i] = ASKING


def _ask_about_item(run: Run, i: int, item: int, event: DecisionRequired) -> None:
    state = run.maps[i]
    if item in state.running:
        run.running -= 1
        del state.running[item]
    elif item in state.backoff:
        run.timers -= 1
        del state.backoff[item]
    elif item == state.next:
        state.next += 1
    state.asking[item] = event.attempt


def answer(run: Run, event: DecisionMade) -> None:
    """Someone has answered. What an answer ends (a step, the run) is in events of its own."""
    asked = run.decisions.pop(event.decision, None)
    kind = asked.kind if asked is not None else event.kind
    run.decided.append(
        {
            "id": event.decision,
            "kind": kind,
            "step": event.step,
            "verb": event.verb,
            "by": event.by,
            "message": event.message,
            "at": event.at,
        }
    )
    if event.by == "policy" and event.args is not None:
        run.fired.add(event.args["rule"])
    if kind == "ail" and event.step is None:
        run.wave = {}  # whatever is ready now is the next one
    if _stops(run, event, kind):
        run.stopping = run.stopping or "abort"
        run.stop_reason = run.stop_reason or event.message or f"aborted at {event.decision}"
    if kind == "budget":
        _spend(run, event)
    if asked is None or asked.step is None or kind not in _ENDING:
        return
    i = run.graph.index[asked.step]
    at = place(i, asked.item)
    if kind == "gate" and event.verb != "accept":
        run.checking.pop(at, None)
    if event.verb not in AGAIN:
        return
    if event.verb == "edit" and event.args is not None:
        run.edits[at] = {**run.edits.get(at, {}), **event.args}
    if kind == "gate":
        run.gate_base[at] = len(run.tried.get(at, ()))
    # A call that was only to be approved keeps its attempt; one that was made needs another.
    last = asked.attempt - 1 if kind == "approval" else asked.attempt
    if kind == "approval" and event.verb != "superseded":
        run.approved[at] = event.digest
    run.timers += 1
    if asked.item is not None:
        del run.maps[i].asking[asked.item]
        run.maps[i].backoff[asked.item] = last
    else:
        run.phase[i] = BACKOFF
        run.attempts[i] = last


def _stops(run: Run, event: DecisionMade, kind: str) -> bool:
    if event.verb != "reject":
        return event.verb == "abort"
    if kind == "approval" and event.step is not None:
        return run.graph.workflow.steps[run.graph.index[event.step]].on_reject == "abort"
    return kind in ("ail", "requested")


def _spend(run: Run, event: DecisionMade) -> None:
    if event.verb == "raise":
        run.raised.update((event.args or {}).get("limits", {}))
    elif event.verb == "finish":
        run.ending = run.shortfall = event.message or "a budget is spent: finished with what there was"
        run.swept = ""


def begin_gate(run: Run, event: GateStarted) -> None:
    if run.decisions:
        end_inputs(run, event.step, event.item)
    at = place(run.graph.index[event.step], event.item)
    run.checking[at] = (event.seq, event.attempt, 0)
    if event.usage:
        count_usage(run, event.step, event.usage)


def check_gate(run: Run, event: GateChecked) -> None:
    i = run.graph.index[event.step]
    at = place(i, event.item)
    if event.then == "recheck":
        seq, attempt, times = run.checking[at]
        run.checking[at] = (seq, attempt, times + 1)
        return
    if event.tried:
        run.tried.setdefault(at, []).append(event.tried)
    if event.then != "again":
        return
    run.checking.pop(at, None)
    run.approved.pop(at, None)  # the next attempt is another call, and asks again
    run.resting_until[at] = event.at + event.retry_in
    run.timers += 1
    run.running -= 1
    if event.item is not None:
        del run.maps[i].running[event.item]
        run.maps[i].backoff[event.item] = event.attempt
    else:
        run.phase[i] = BACKOFF
        run.attempts[i] = event.attempt
