"""Tasks that were running when their process died, and may or may not have taken effect.

Reading again does no harm; writing again might. So a person is asked; `asking` says what each
answer means.
"""

from __future__ import annotations

from penstock.ids import DecisionId
from penstock.run.events import DecisionRequired, Event
from penstock.run.evolve import evolve
from penstock.run.facts import TaskOrphaned
from penstock.run.state import Run
from penstock.run.summary import shown

OPTIONS = ("retry", "accept", "skip", "reject")


def ask(run: Run, fact: TaskOrphaned, now: float, batch: list[Event]) -> None:
    """Ask what to do about one of them."""
    step = run.graph.ids[fact.step]
    item = "" if fact.item is None else f", item {fact.item}"
    called = run.mask(shown(fact.call)) if fact.call else "its tool"
    summary = (
        f"{step}{item} called {called} when the process died; it may have taken effect. "
        "retry calls it again, accept takes the output you give, skip leaves it out, reject fails the step."
    )
    id = DecisionId(f"{run.id}:{run.seq + 1}")
    event = DecisionRequired(
        run.seq + 1, now, id, "orphan", summary, step, fact.iteration, fact.item, OPTIONS,
        fact.call, schema={"accept": {"type": "object", "required": ["output"]}},
        attempt=fact.attempt,
    )  # fmt: skip
    evolve(run, event)
    batch.append(event)
