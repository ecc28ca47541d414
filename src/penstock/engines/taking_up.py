"""Going on with a run that has a history: its own, which another process left, or another's.

What was owed is owed again. A task that had been started when its process died may have taken
effect: only one that may be had twice is simply done again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.engines.outputs import as_json
from penstock.engines.record import HARMLESS
from penstock.run.effects import Effect, StartTask, owed
from penstock.run.events import Event
from penstock.run.facts import Fact, RunReopened, TaskOrphaned, TaskRaised, TimeRanOut
from penstock.steps.base import TaskFailure

if TYPE_CHECKING:
    from penstock.engines.drive import Drive


def begin(drive: Drive, batch: list[Event]) -> None:
    """Go on from the first batch, which the store has already."""
    _limit_time(drive)
    drive.door.follow_up(batch)


def begin_ahead(drive: Drive, batch: list[Event]) -> None:
    """The same when the store is only about to have it."""
    _limit_time(drive)
    drive.record.begin(batch)


async def take_up(drive: Drive, events: Sequence[Event], fact: RunReopened) -> None:
    """Go on with a run that another process left: its unfinished tasks are owed again."""
    drive.door.shut = True  # commands may come already; they wait until the run is really taken up
    drive.outputs.recall(events)
    await _reopen_maps(drive)
    await drive.errands.remember(events)
    due = _without_reopened(drive, owed(drive.run), fact)
    orphans = {
        effect: await _call(drive, effect)
        for effect in due
        if isinstance(effect, StartTask) and not _may_repeat(drive, effect)
    }
    _limit_time(drive)
    drive.door.shut = False
    drive.tell(fact)
    # Only when this is durable is it certain that the run is ours.
    await drive.journal.sync()
    if drive.finished.done():
        drive.finished.result()
    for effect in due:
        if isinstance(effect, StartTask) and effect in orphans:
            drive.tell(_orphan(drive, effect, orphans[effect]))
        else:
            drive.door.carry_out(effect)


async def branch_off(drive: Drive, batch: list[Event], due: Sequence[Effect], fact: RunReopened) -> None:
    """Go on from the first batch of a fork. What was under way there was never begun here."""
    drive.door.shut = True
    await _reopen_maps(drive)
    due = _without_reopened(drive, due, fact)
    _limit_time(drive)
    drive.door.follow_up(batch)
    for effect in due:
        drive.door.carry_out(effect)


def _without_reopened(drive: Drive, due: Sequence[Effect], fact: RunReopened) -> list[Effect]:
    """What is owed to steps that do not begin again anyway."""
    again = {drive.run.graph.index[step] for step in fact.reopened}
    return [effect for effect in due if getattr(effect, "step", -1) not in again]


async def _reopen_maps(drive: Drive) -> None:
    for i, state in drive.run.maps.items():
        if state.count >= 0:
            drive.outputs.items.reopen(i, await drive.engine.store.output(drive.id, state.seq))


def _may_repeat(drive: Drive, effect: StartTask) -> bool:
    step = drive.run.graph.workflow.steps[effect.step]
    return drive.tasks.effect_of(effect) in HARMLESS or step.on_orphan == "rerun"


async def _call(drive: Drive, effect: StartTask) -> Mapping[str, Any]:
    """What a task had called: its arguments are made again as they were, of what it read then."""
    work = drive.tasks.work(effect.step)
    try:
        args, _ = as_json(await drive.tasks.arguments(effect))
        return drive.approvals.call(work, effect.step, args)
    except TaskFailure:  # nothing can be said of its arguments any more
        return {"uses": drive.run.graph.workflow.steps[effect.step].uses}


def _orphan(drive: Drive, effect: StartTask, call: Mapping[str, Any]) -> Fact:
    stopping = bool(drive.run.stopping)
    step = drive.run.graph.workflow.steps[effect.step]
    at = (effect.iteration, effect.item, effect.attempt)
    if step.on_orphan == "fail" or stopping:
        error = "its process died while it ran; it may have taken effect"
        return TaskRaised(effect.step, error, "cancelled" if stopping else "orphaned", "", *at)
    return TaskOrphaned(effect.step, *at, call)


def _limit_time(drive: Drive) -> None:
    limit = drive.run.graph.workflow.config.timeout
    if limit is not None:
        drive.timers.later(limit, TimeRanOut(limit))
