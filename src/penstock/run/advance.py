"""The consequences of what happened, carried as far as they go."""

from __future__ import annotations

from penstock.run import asking, choosing, points
from penstock.run.ending import finish, stop, wind_up
from penstock.run.events import Event
from penstock.run.starting import fill_slots, judge_due, start, starts_at_once
from penstock.run.state import ENDED, Run


def advance(run: Run, now: float, batch: list[Event]) -> None:
    """Carry the consequences as far as they go, by a queue: a skip cascade may be very deep."""
    if run.status_ in ENDED:
        return
    due = run.due
    if run.stopping:
        if run.swept != "stopping":
            stop(run, now, batch)
    elif len(due) == 1 and not run.ready and starts_at_once(run, due[0]):
        start(run, due.pop(), now, batch)  # a chain: nothing to order, nothing to judge
    else:
        while due or run.choosing or run.left or run.points:
            if run.points:
                points.reach_points(run, now, batch)
            if run.choosing or run.left:
                choosing.choose_routes(run, now, batch)
                choosing.skip_unchosen(run, now, batch)
            judge_due(run, now, batch)
        if run.ending and run.swept != "ending":
            wind_up(run, now, batch)
        if run.stopping:
            stop(run, now, batch)
    if run.withdrawn:
        asking.withdraw(run, now, batch)
    if (run.ready or run.graph.waves) and not run.pauses and not run.stopping:
        if run.graph.waves:
            points.begin_wave(run, now, batch)
            if run.stopping:
                stop(run, now, batch)
            elif run.due or run.choosing or run.left:
                advance(run, now, batch)  # a rule added steps
                return
        if run.ready and not (run.decisions and run.holding):
            fill_slots(run, now, batch)
    if not run.open and run.complete:
        finish(run, now, batch)
