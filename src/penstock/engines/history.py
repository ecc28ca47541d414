"""Going back: where a run may be forked, and what a changed definition keeps of it.

Pure; the store and the engine do the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.errors import PenstockError
from penstock.ids import StepId
from penstock.run.events import Event, TaskStarted
from penstock.run.state import FAILED, RUNNING, SKIPPED, SUCCEEDED, Run
from penstock.steps.run_workflow import reached
from penstock.workflow.findings import did_you_mean
from penstock.workflow.graph import Graph
from penstock.workflow.spec import Step, Workflow


def cut(events: Sequence[Event], at: int) -> int:
    """The last event of the batch that event `at` is in: a fork keeps whole batches.

    Events of one batch share their time. Two batches of the very same time are kept together,
    which is still the end of a batch.
    """
    if not 1 <= at <= len(events):
        msg = f"there is no event {at}; the run has events 1 to {len(events)}"
        raise PenstockError(msg)
    while at < len(events) and events[at].at == events[at - 1].at:
        at += 1
    return at


def before(events: Sequence[Event], step: StepId, graph: Graph) -> int:
    """Where to fork so that `step` and what followed it run again."""
    for event in reversed(events):
        if (
            isinstance(event, TaskStarted)
            and event.step == step
            and event.item is None
            and event.attempt == 1
        ):
            return cut(events, event.seq)
    if step in graph.index or any(isinstance(event, TaskStarted) and event.step == step for event in events):
        raise PenstockError(f"step {step!r} never started in this run")
    hint = did_you_mean(step, graph.ids)
    raise PenstockError(f"no step {step!r} in this run" + (f" ({hint})" if hint else ""))


class Difference(Struct, frozen=True):
    """What becomes of a run's steps under a changed definition."""

    kept: tuple[StepId, ...]
    """Finished, unchanged: their outputs are taken over."""
    again: tuple[StepId, ...]
    """Changed, or after something that changed, or failed: they run (again)."""
    added: tuple[StepId, ...]
    removed: tuple[StepId, ...]
    changed: tuple[StepId, ...]
    other: tuple[str, ...] = ()
    """What else is different, and makes no step that ended run again: `outputs`, `config`, `steps.mail`."""

    @property
    def same(self) -> bool:
        return not (self.added or self.removed or self.changed or self.other)


Family = Mapping[str, Workflow]
"""The workflows that one calls, directly or not."""


def compare(old: Run, new: Graph, pinned: Family, current: Family) -> Difference:
    """Which finished steps of a run a new definition can take over."""
    before_, after = old.graph.workflow, new.workflow
    known: dict[StepId, Step] = {step.id: step for step in before_.steps}
    changed = {
        step.id
        for step in after.steps
        if step.id in known and _meaning(step, after, current) != _meaning(known[step.id], before_, pinned)
    }
    added = {step.id for step in after.steps if step.id not in known}
    again = _closure(new, {new.index[id] for id in changed | added})
    kept: list[StepId] = []
    rerun: list[StepId] = []
    for i, id in enumerate(new.ids):
        place = old.graph.index.get(id)
        finished = place is not None and (
            old.phase[place] == SUCCEEDED
            or (old.phase[place] == SKIPPED and old.reasons[place][0] in ("condition", "command"))
        )
        (kept if finished and i not in again else rerun).append(id)
    return Difference(
        tuple(kept),
        tuple(rerun),
        tuple(sorted(added)),
        tuple(id for id in known if id not in new.index),
        tuple(sorted(changed)),
        _other(before_, after, changed),
    )


def reopened(old: Run, difference: Difference) -> tuple[StepId, ...]:
    """The steps of the new definition that must be opened again after the old history was folded."""
    ended = (SUCCEEDED, FAILED, SKIPPED, RUNNING)
    return tuple(
        id
        for id in difference.again
        if (place := old.graph.index.get(id)) is not None and old.phase[place] in ended
    )


def failed_steps(run: Run) -> tuple[StepId, ...]:
    """The failed steps of a run, and those that were skipped because of them."""
    return tuple(
        run.graph.ids[i]
        for i, (kind, _) in run.reasons.items()
        if (run.phase[i] == FAILED and kind != "cancelled")
        or (run.phase[i] == SKIPPED and kind == "upstream_failed")
    )


def _closure(graph: Graph, first: set[int]) -> set[int]:
    found, stack = set(first), list(first)
    while stack:
        for d in graph.dependents[stack.pop()]:
            if d not in found:
                found.add(d)
                stack.append(d)
    return found


def _meaning(step: Step, workflow: Workflow, family: Family) -> tuple[object, ...]:
    """What decides a step's outcome; how patiently it is tried does not."""
    kind, _, name = step.uses.partition(":")
    called: object = None
    if kind == "workflow":
        called = reached(name, family)
    elif kind == "agent":
        called = workflow.config.agents.get(name)
    return (
        step.uses, called, step.with_, step.needs, step.when, step.join, step.for_each, step.on_item_error,
        step.gate, step.routing, step.set, step.model, step.on_error,
    )  # fmt: skip


def _other(old: Workflow, new: Workflow, changed: set[StepId]) -> tuple[str, ...]:
    """The parts of a definition that are different and leave finished steps as they are."""
    if old.hash == new.hash:
        return ()
    parts = [
        name for name in new.__struct_fields__ if name != "steps" and getattr(old, name) != getattr(new, name)
    ]
    known = {step.id: step for step in old.steps}
    steps = [
        f"steps.{step.id}"
        for step in new.steps
        if step.id in known and step.id not in changed and step != known[step.id]
    ]
    if [step.id for step in old.steps] != [step.id for step in new.steps if step.id in known]:
        steps.append("steps")  # in another order
    return (*parts, *steps)
