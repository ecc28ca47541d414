"""Gates: what follows when the checks of a result have been made."""

from __future__ import annotations

from typing import Literal

from penstock.ids import DecisionId
from penstock.policy import gates
from penstock.policy import retry as retry_policy
from penstock.run.choosing import fingerprint
from penstock.run.emit import emit
from penstock.run.events import DecisionRequired, Event, GateChecked, GateEscalated, TaskFailed
from penstock.run.facts import ChildEscalated, GateFinished
from penstock.run.state import RUNNING, Run, place
from penstock.run.summary import summarise

OPTIONS = ("retry", "accept", "edit", "skip", "abort")

_ARGS = {"type": "object"}
_NONE = {"type": "object", "maxProperties": 0}


def finished(run: Run, fact: GateFinished, now: float, batch: list[Event]) -> bool:
    """Put the checks on record. Whether the task is complete; otherwise the events say what follows."""
    i = fact.step
    at = place(i, fact.item)
    found = run.checking.get(at)
    if found is None or found[1] != fact.attempt or run.phase[i] != RUNNING:
        return False  # answered or stopped meanwhile
    verdict = gates.judge(fact.checks)
    if run.stopping and verdict != "passed":
        error = f"its gate was not passed: {run.stop_reason}"
        failed = TaskFailed(
            run.seq + 1,
            now,
            run.graph.ids[i],
            error,
            "cancelled",
            "",
            fact.iteration,
            fact.item,
            fact.attempt,
        )
        emit(run, batch, failed)
        return False
    if verdict == "unavailable" and _recheck(run, fact, found[2], now, batch):
        return False
    tried = {}
    then: Literal["complete", "again", "escalate"] = "complete"
    if verdict != "passed":
        tried = gates.tried(fact.attempt, fact.checks, fingerprint(fact.output))
        then = "again" if verdict == "failed" and _may_try_again(run, fact) else "escalate"
    event = GateChecked(
        run.seq + 1, now, run.graph.ids[i], verdict == "passed", fact.iteration, fact.item, fact.attempt,
        fact.checks, tried, then,
    )  # fmt: skip
    emit(run, batch, event)
    if then == "escalate":
        _escalate(run, fact, verdict, now, batch)
    return verdict == "passed"


def _may_try_again(run: Run, fact: GateFinished) -> bool:
    at = place(fact.step, fact.item)
    spent = len(run.tried.get(at, ())) + 1 - run.gate_base.get(at, 0)
    step = run.graph.workflow.steps[fact.step]
    return spent < gates.most_attempts(step, run.graph.workflow, run.graph.gate_attempts) and not run.halted


def _recheck(run: Run, fact: GateFinished, times: int, now: float, batch: list[Event]) -> bool:
    """Checks that could not be made are trouble of ours, not of the result: they follow `retry`."""
    step = run.graph.workflow.steps[fact.step]
    policy = step.retry or run.graph.workflow.config.retry or retry_policy.ONCE
    if run.stopping or not retry_policy.retries(policy, attempt=times + 1, kind="error", name=""):
        return False
    seed = f"{run.id}/{step.id}.{fact.iteration}.{fact.item}.gate"
    delay = retry_policy.delay(policy, attempt=times + 1, seed=seed)
    event = GateChecked(
        run.seq + 1, now, step.id, False, fact.iteration, fact.item, fact.attempt, fact.checks, {},
        "recheck", delay,
    )  # fmt: skip
    emit(run, batch, event)
    return True


def _escalate(run: Run, fact: GateFinished, verdict: str, now: float, batch: list[Event]) -> None:
    """Call a person; siblings go on."""
    i = fact.step
    step = run.graph.workflow.steps[i]
    entries = run.tried[place(i, fact.item)]
    hopeless = gates.unrecoverable(entries)
    bad = [check for check in fact.checks if check["status"] != "passed"]
    names = ", ".join(f"{check['name']} ({check['status']})" for check in bad)
    times = f"{len(entries)} attempt{'' if len(entries) == 1 else 's'}"
    reason = (
        f"{times}, and the gate still says no: {names}"
        if verdict == "failed"
        else f"the gate could not be checked: {names}"
    )
    example = {}
    if verdict == "failed":  # trouble with the checks themselves teaches nothing about the step
        example = gates.example(
            workflow=run.graph.workflow.name, step=step.id, tool=step.uses, args=fact.args, entries=entries,
            at=now, expires=now + gates.KEPT,
        )  # fmt: skip
    event = GateEscalated(
        run.seq + 1, now, step.id, reason, fact.iteration, fact.item, bool(hopeless), "", example
    )
    emit(run, batch, event)
    why = "; ".join(f"{check['name']}: {check['detail']}" for check in bad)[:600]
    item = "" if fact.item is None else f", item {fact.item},"
    summary = (
        f"{step.id}{item} did not pass its gate: {reason}."
        + (f" Unrecoverable: {hopeless}." if hopeless else "")
        + f"\nLast: {why}.\n"
        "retry allows more attempts, edit does so with other arguments, accept takes the result as it is, "
        "skip leaves the step out, abort stops the run."
    )
    call = {"uses": step.uses, "args": dict(fact.args)}
    summary = summarise(run, summary, call=call, step=i, effect=fact.effect)
    asked = DecisionRequired(
        run.seq + 1, now, DecisionId(f"{run.id}:{run.seq + 1}"), "gate", summary, step.id, fact.iteration,
        fact.item, OPTIONS, call, schema={"edit": fact.takes or _ARGS, "retry": _NONE}, attempt=fact.attempt,
    )  # fmt: skip
    emit(run, batch, asked)


def copied(run: Run, fact: ChildEscalated, now: float, batch: list[Event]) -> None:
    """A child's escalation, for whoever watches the parent. It goes on."""
    if run.ended or fact.child in run.copied:
        return
    event = GateEscalated(
        run.seq + 1, now, run.graph.ids[fact.step], fact.reason, fact.iteration, fact.item,
        fact.unrecoverable, fact.child,
    )  # fmt: skip
    emit(run, batch, event)
