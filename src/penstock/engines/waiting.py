"""Runs that can only go on when somebody decides: noticing it, and letting go of them.

A run together with the child runs it waits for is a family. It is stuck when none of its
members could do anything before a decision is made.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from penstock.ids import RunId

if TYPE_CHECKING:
    from penstock.engines.drive import Drive
    from penstock.engines.native import NativeEngine
    from penstock.run.events import DecisionRequired
    from penstock.run.state import Run

GLANCE: Final = 0.05
"""Seconds between looks."""

SOON: Final = 5.0
"""Seconds: a question that answers itself so soon is waited for."""

Wants = Callable[[Sequence["DecisionRequired"]], bool]
"""Whether somebody would like to be asked, now."""


async def until_stuck(
    engine: NativeEngine, run: RunId, *, paused: bool = False, wants: Wants | None = None
) -> None:
    """Return when only a decision helps; with `paused`, also when a pause has come to rest.

    With `wants`, return as soon as there is a question that somebody wants to hear.
    """
    await until(
        lambda: (
            stuck(engine, run)
            or (paused and at_rest(engine, run))
            or (wants is not None and asks(engine, run, wants))
        )
    )


def asks(engine: NativeEngine, run: RunId, wants: Wants) -> bool:
    """Whether there is a question that somebody wants to hear now."""
    live = engine.live
    return any(drive.state.decisions for drive in list(live.values())) and wants(decisions(engine, run))


async def until(so: Callable[[], bool], *, glance: float = GLANCE) -> None:
    """Return when it is so. For what nobody tells us."""
    while not so():  # noqa: ASYNC110 - there is nothing to wait for
        await asyncio.sleep(glance)


def stuck(engine: NativeEngine, run: RunId) -> bool:
    """Whether the run, with all its children, waits for decisions and for nothing else."""
    live = engine.live
    if run not in live or not any(drive.state.decisions for drive in list(live.values())):
        return False
    if any(_soon(drive.state, engine.wall()) for drive in family(engine, run)):
        return False
    return _stuck(live[run].state, live, _children(live))


def _soon(run: Run, now: float) -> bool:
    """Whether a question answers itself before anyone could come back to it."""
    return any(asked.deadline is not None and asked.deadline < now + SOON for asked in run.decisions.values())


def _stuck(run: Run, live: Mapping[RunId, Drive], children: Mapping[str, list[RunId]]) -> bool:
    if run.status == "waiting":
        return True
    full = run.running >= run.graph.workflow.config.max_parallel
    if run.status != "running" or run.timers or ((run.ready or run.due) and not full) or not run.running:
        return False
    return run.running == sum(_stuck(live[child].state, live, children) for child in children[run.id])


def at_rest(engine: NativeEngine, run: RunId) -> bool:
    """Whether everything in flight has ended, but for child runs that are at rest themselves."""
    members = family(engine, run)
    children = _children(engine.live)
    return bool(members) and all(
        drive.state.paused and drive.state.running <= len(children[drive.id]) for drive in members
    )


def _children(live: Mapping[RunId, Drive]) -> defaultdict[str, list[RunId]]:
    children: defaultdict[str, list[RunId]] = defaultdict(list)
    for id in live:
        children[id.rpartition("/")[0]].append(id)
    return children


def decisions(engine: NativeEngine, run: RunId) -> list[DecisionRequired]:
    """What is asked in a run that is driven here, and in its children."""
    return [asked for drive in family(engine, run) for asked in drive.state.decisions.values()]


def family(engine: NativeEngine, run: RunId) -> list[Drive]:
    """The run and its children, as far as they are driven here; parents first."""
    live = engine.live
    ids = sorted((id for id in live if id == run or id.startswith(f"{run}/")), key=_depth)
    return [live[id] for id in ids]


def _depth(run: RunId) -> int:
    return run.count("/")


async def settled(engine: NativeEngine, run: RunId) -> None:
    """Return when everything that happened in a family is durable and told."""
    await until(
        lambda: all(drive.stream.last >= drive.state.seq for drive in family(engine, run)), glance=0.005
    )


async def let_go(engine: NativeEngine, run: RunId | None = None) -> None:
    """Stop driving a run and its children, or all runs, without ending them: anyone may take them up."""
    live = engine.live
    for one in [run] if run is not None else sorted(live, key=_depth):
        for drive in family(engine, one):  # a parent first: it must not see its child go
            drive.let_go("it waits for a decision")
    for _ in range(3):
        await asyncio.sleep(0)  # what was cancelled ends
