"""What a chosen route does to the run: steps wake, loops turn, detours return.

Part of `evolve`: the choice itself is in the event, and nothing is chosen here.
"""

from __future__ import annotations

from penstock.run.events import RouteDecided
from penstock.run.release import (
    awake,
    callers,
    first_failure,
    forget_tasks,
    put_to_sleep,
    recount,
    release_failed,
    release_succeeded,
    undo,
)
from penstock.run.state import ASKING, BACKOFF, DORMANT, PHASES, RUNNING, SUCCEEDED, WAITING, Run
from penstock.workflow.detours import detours_of
from penstock.workflow.spec import END, HUMAN

KEPT_ROUNDS = 2
"""Fingerprints of earlier rounds: with the current one they make three."""

SHORT = frozenset({"cap", "none", "halt", "fuse", "stall"})
"""Rules that leave a run without a way to go on."""


def take_route(run: Run, event: RouteDecided) -> None:
    """A router has chosen."""
    i = run.graph.index[event.step]
    router = run.graph.routers[i]
    if event.target == HUMAN:
        run.unsettled[i] = "human"
        return
    if event.target is None or event.target == END:
        if event.target is None and event.rule in SHORT:
            run.shortfall = run.shortfall or f"{event.step}: {event.reason}"
        _settle(run, i, -1)
        if event.target == END and not run.ending:
            run.ending = f"ended by the route of {event.step}"
        return
    target = run.graph.index[event.target]
    if target == router.detour:
        run.unsettled[i] = "detour"
        run.frames.append((i, target))
        run.pending[target] -= _satisfied(run, i, target)  # settling must not do so again
        run.detoured[i] = {"step": event.target, "status": "running"}
        wake(run, target, event)
        run.due.append(target)  # another route may have woken it before: it waited for this call
        if run.phase[target] >= SUCCEEDED and target not in run.unsettled:
            _return(run, target)  # another router's detour too, or one that was left out: it is over already
    elif target in router.bodies:
        run.unsettled[i] = "back"
        run.returning[i] = target
        run.rounds[i] = [*run.rounds.get(i, []), event.print][-KEPT_ROUNDS:]
        turn(run)
    else:
        wake(run, target, event)
        _settle(run, i, target)


def wake(run: Run, target: int, event: RouteDecided) -> None:
    """A dormant step has been routed to. One that runs already, or has ended, stays as it is."""
    if run.phase[target] != DORMANT:
        return
    run.phase[target] = WAITING
    run.arrivals[target] = {
        "from": event.step,
        "rule": event.rule,
        "reason": event.reason,
        "needs_human": event.needs_human,
        "confidence": event.confidence,
    }
    run.due.append(target)


def _settle(run: Run, i: int, target: int) -> None:
    """The last choice of a router: who waited for it may go on."""
    run.unsettled.pop(i, None)
    if run.phase[i] == SUCCEEDED or run.graph.workflow.steps[i].on_error == "continue":
        release_succeeded(run, i)
    else:
        if target >= 0:
            _forgive(run, i)  # there is a way for this failure: it has been dealt with
        release_failed(run, i, spared=target)
    settled(run, i)


def _forgive(run: Run, i: int) -> None:
    run.failures -= 1
    run.forgiven.add(i)
    if run.first_failure == i:
        run.first_failure = first_failure(run)


def settled(run: Run, i: int) -> None:
    """A router is done with: barriers lift, and targets it did not choose are judged."""
    run.settled.add(i)
    run.left.append(i)
    run.due.extend(run.graph.lifts.get(i, ()))
    finished(run, i)


def finished(run: Run, i: int) -> None:
    """A step has ended for good, or settled: a detour may return, a loop may turn."""
    if run.stopping or run.ending:
        return  # nothing opens any more
    if run.frames:
        _return(run, i)
    turn(run)


def _return(run: Run, i: int) -> None:
    """Whoever made a detour to this step chooses again."""
    for waiting in [waiting for waiting, step in run.frames if step == i]:
        run.frames.remove((waiting, i))
        run.pending[i] += _satisfied(run, waiting, i)
        run.detoured[waiting] = {"step": run.graph.ids[i], "status": PHASES[run.phase[i]]}
        run.unsettled[waiting] = ""
        run.choosing.append(waiting)


def go_on(run: Run) -> None:
    """A stop was taken back: detours return and loops turn that could not while it lasted."""
    for _, step in list(run.frames):
        if run.phase[step] >= SUCCEEDED and step not in run.unsettled:
            _return(run, step)
    turn(run)


def _satisfied(run: Run, caller: int, detour: int) -> int:
    """How many needs of a detour a call satisfies: those on its caller, and on who called that."""
    return len({caller, *callers(run, caller)}.intersection(run.graph.needs[detour]))


def turn(run: Run) -> None:
    """Open the next iteration of loops whose body has come to rest."""
    if run.stopping or run.ending:
        return
    for router, target in sorted(run.returning.items()):
        body = run.graph.routers[router].bodies[target]
        if router not in run.returning or any(run.phase[i] in (RUNNING, BACKOFF, ASKING) for i in body):
            continue
        del run.returning[router]
        _next_iteration(run, router, target, body)


def _next_iteration(run: Run, router: int, target: int, body: tuple[int, ...]) -> None:
    routers = run.graph.routers
    inside = {*body, *detours_of(body, routers)}
    loops = [routers[r].bodies for r in inside if r != router and r in routers]
    within = {i for bodies in loops for part in bodies.values() if router not in part for i in part}
    chosen = awake(run, inside)
    for i in inside:
        _open_again(run, i)
        if i in within:
            run.iteration_base[i] = run.iterations[i] - 1  # an outer pass starts inner loops afresh
            run.rounds.pop(i, None)
    put_to_sleep(run, inside, chosen, spared=target)
    for i in inside:
        recount(run, i)
    run.first_failure = first_failure(run)
    for after in {d for i in inside for d in run.graph.dependents[i]} - inside:
        if run.phase[after] in (WAITING, DORMANT):
            run.queued[after] = 0
            recount(run, after)
        else:
            run.pending[after] += 1
    run.due.extend(sorted(inside))


def _open_again(run: Run, i: int) -> None:
    """The next iteration of a step: nothing of the last one but what `previous` shows."""
    if run.phase[i] >= SUCCEEDED:
        run.previous[i] = (PHASES[run.phase[i]], run.ended_at[i], run.control.get(i, {}))
    else:
        run.previous.pop(i, None)
    undo(run, i)
    for kept in (run.attempts, run.attempt_base, run.item_base, run.detoured, run.prints):
        kept.pop(i, None)
    forget_tasks(run, i)
    run.iterations[i] = run.iterations.get(i, 1) + 1
