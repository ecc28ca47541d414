"""Questions that a running task asks in the middle of its work: of a server during a call, say.

The task waits where it is and holds what it holds, so a question lives no longer than the task.
What is asked are a stranger's words: shown as such, and never obeyed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.ids import DecisionId
from penstock.policy.schemas import BadSchema, compiled
from penstock.run.emit import emit
from penstock.run.events import DecisionRequired, Event
from penstock.run.facts import InputAsked, InputDropped
from penstock.run.release import withdraw_inputs
from penstock.run.state import RUNNING, Run, place
from penstock.run.summary import summarise

FORM: Final = ("respond", "reject", "abort")
VISIT: Final = ("approve", "reject", "abort")
"""Answers where a person has to go somewhere: whether they did is all there is to say."""

HEADLINE: Final = 160
"""Characters of its first line."""

QUOTED: Final = 1_500
"""Characters of what is asked that are shown."""


def asked(run: Run, fact: InputAsked, now: float, batch: list[Event]) -> None:
    """Put the question of a task to a person. A task that is over asks nothing."""
    if run.stopping or run.ended or not _runs(run, fact):
        return
    step = run.graph.ids[fact.step]
    call = {"by": fact.by, **({"url": fact.url} if fact.url else {})}
    wait = run.graph.workflow.config.approval_timeout
    event = DecisionRequired(
        run.seq + 1, now, DecisionId(f"{run.id}:{run.seq + 1}"), "input", _summary(run, fact), step,
        fact.iteration, fact.item, VISIT if fact.url else FORM, call, fact.digest,
        None if wait is None else now + wait, {} if fact.url else {"respond": fact.schema}, fact.attempt,
    )  # fmt: skip
    emit(run, batch, event)


def dropped(run: Run, fact: InputDropped) -> None:
    """The task goes on without an answer."""
    withdraw_inputs(run, lambda asked: asked.digest == fact.digest)


def refusal(question: DecisionRequired, args: Mapping[str, Any] | None) -> str:
    """Why this does not answer what was asked; empty when it does."""
    try:
        complaint = compiled(question.schema["respond"])(args or {})
    except BadSchema as error:
        complaint = str(error)
    return f"that is not what {question.call['by']} asks for: {complaint}" if complaint else ""


def _summary(run: Run, fact: InputAsked) -> str:
    step = run.graph.ids[fact.step]
    about = step if fact.item is None else f"{step}, item {fact.item}"
    lines = fact.message[:QUOTED].splitlines() or [""]
    first = lines[0][:HEADLINE]
    parts = [f"{about} waits: {fact.by} asks: {first}"]
    if lines != [first]:
        parts += [f"> {line}" for line in lines]
    if fact.url:
        parts.append(f"> {fact.url}")
    trust = "Go there only if you trust it." if fact.url else "What you answer is handed to it."
    parts.append(f"Those are its own words, which nobody has checked. {trust}")
    return summarise(run, "\n".join(parts), step=fact.step)


def _runs(run: Run, fact: InputAsked) -> bool:
    """Whether it is this very task that is under way."""
    i = fact.step
    if run.iterations.get(i, 1) != fact.iteration or place(i, fact.item) in run.checking:
        return False
    if fact.item is None:
        return run.phase[i] == RUNNING and run.attempts.get(i, 1) == fact.attempt
    return i in run.maps and run.maps[i].running.get(fact.item) == fact.attempt
