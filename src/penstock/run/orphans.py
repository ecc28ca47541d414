"""Tasks that were running when their process died, and may or may not have taken effect.

Reading again does no harm; writing again might. So a person is asked, and this is what each
answer means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.ids import DecisionId
from penstock.run.commands import Decide
from penstock.run.events import (
    DecisionMade,
    DecisionRequired,
    Event,
    TaskCompleted,
    TaskFailed,
    TaskSkipped,
)
from penstock.run.evolve import evolve
from penstock.run.facts import TaskOrphaned, TaskReturned
from penstock.run.state import Run

OPTIONS = ("retry", "accept", "skip", "reject")

Make = Callable[[int, float], Event]


def ask(run: Run, fact: TaskOrphaned, now: float, batch: list[Event]) -> None:
    """Ask what to do about one of them."""
    step = run.graph.ids[fact.step]
    item = "" if fact.item is None else f", item {fact.item}"
    summary = (
        f"{step}{item} called {fact.tool or 'its tool'} when the process died; it may have taken effect. "
        "retry calls it again, accept takes the output you give, skip leaves it out, reject fails the step."
    )
    id = DecisionId(f"{run.id}?{run.seq + 1}")
    event = DecisionRequired(
        run.seq + 1, now, id, "orphan", summary, step, fact.iteration, fact.item, OPTIONS, {"uses": fact.tool}
    )
    evolve(run, event)
    batch.append(event)


def refusal(run: Run, asked: Decide) -> str:
    """Why this is not an answer; empty when it is."""
    question = run.decisions.get(asked.decision)
    if question is None:
        return f"no open decision {asked.decision!r}"
    if asked.verb not in question.options:
        return f"{asked.verb!r} is not an answer; choose one of {', '.join(question.options)}"
    if asked.verb == "accept" and (asked.args is None or "output" not in asked.args):
        return 'accept needs the output: args {"output": …}'
    return ""


def answers(run: Run, asked: Decide) -> list[Make]:
    """What an answer makes of the task."""
    question: Any = run.decisions[asked.decision]
    i = run.graph.index[question.step]
    attempt = run.maps[i].asking[question.item] if question.item is not None else run.attempts.get(i, 1)
    place = (question.iteration, question.item, attempt)
    made: Make = lambda seq, now: DecisionMade(  # noqa: E731 - one of a list of makers
        seq, now, asked.decision, asked.verb, question.step, question.iteration, question.item, asked.by,
        asked.message, asked.args,
    )  # fmt: skip
    why = asked.message or f"{asked.verb} after the process died"
    match asked.verb:
        case "accept":
            return [made]  # `given` is the rest: an output has consequences of its own
        case "skip" if question.item is None:
            return [made, lambda seq, now: TaskSkipped(seq, now, question.step, "command", why, place[0])]
        case "skip":
            return [made, lambda seq, now: TaskCompleted(seq, now, question.step, None, *place)]
        case "reject":
            return [made, lambda seq, now: TaskFailed(seq, now, question.step, why, "orphaned", "", *place)]
        case _:
            return [made]


def given(run: Run, asked: Decide) -> TaskReturned | None:
    """The output that a person gave for a task, as if the task had returned it. Ask before it is accepted."""
    question: Any = run.decisions.get(asked.decision)
    if question is None or asked.verb != "accept" or asked.args is None or "output" not in asked.args:
        return None
    i, item = run.graph.index[question.step], question.item
    attempt = run.maps[i].asking[item] if item is not None else run.attempts.get(i, 1)
    return TaskReturned(i, asked.args["output"], question.iteration, item, attempt)
