"""How a run comes to its end: stopped, wound up, or done; and what is said of it."""

from __future__ import annotations

from penstock.ids import FOLLOWS
from penstock.policy.routing import DEEPEST
from penstock.run.emit import emit
from penstock.run.events import Event, TaskFailed, WorkflowAborted, WorkflowCompleted
from penstock.run.facts import OutputsCollected
from penstock.run.maps import close_map
from penstock.run.starting import skip
from penstock.run.state import ASKING, BACKOFF, DORMANT, RUNNING, SUCCEEDED, WAITING, Run


def stop(run: Run, now: float, batch: list[Event]) -> None:
    """The run is being stopped: end everything that is not running right now."""
    run.swept = "stopping"
    run.due.clear()
    run.ready.clear()
    kind = "command" if run.stopping == "abort" else "run_ended"
    for i, phase in enumerate(run.phase):
        if phase in (WAITING, DORMANT, ASKING):
            skip(run, i, (kind, run.stop_reason), now, batch)
        else:
            _give_up(run, i, now, batch)
    run.due.clear()


def _give_up(run: Run, i: int, now: float, batch: list[Event]) -> None:
    """What waits to be tried again is not, and a map starts no more items."""
    if run.phase[i] == BACKOFF:
        attempt, iteration = run.attempts.get(i, 1), run.iterations.get(i, 1)
        error = f"not tried again: {run.halted}"
        failed = (run.graph.ids[i], error, "cancelled", "", iteration, None, attempt)
        emit(run, batch, TaskFailed(run.seq + 1, now, *failed))
    elif run.phase[i] == RUNNING and i in run.maps and run.maps[i].count >= 0:
        close_map(run, i, now, batch)


def wind_up(run: Run, now: float, batch: list[Event]) -> None:
    """The run is to end by itself: open nothing more, and let what is under way finish."""
    run.swept = "ending"
    run.due.clear()
    for i, phase in enumerate(run.phase):
        if phase in (WAITING, DORMANT, ASKING):
            run.queued[i] = 0
            skip(run, i, ("run_ended", run.ending), now, batch)
        elif run.halted:
            run.queued[i] = 0
            _give_up(run, i, now, batch)
    run.due.clear()
    run.left.clear()


def finish(run: Run, now: float, batch: list[Event]) -> None:
    """Every step has an outcome. Outputs, if any are declared, must be collected first."""
    if run.stopping == "abort":
        emit(run, batch, WorkflowAborted(run.seq + 1, now, run.stop_reason))
    elif not run.graph.outputs:
        end(run, OutputsCollected({}), now, batch)


def end(run: Run, fact: OutputsCollected, now: float, batch: list[Event]) -> None:
    """Say honestly how it went."""
    reason = ""
    if run.stopping:
        reason = run.stop_reason
    elif run.failures:
        i = run.first_failure
        reason = f"step {run.graph.ids[i]} failed: {run.reasons[i][1]}"
    elif run.shortfall:
        reason = run.shortfall
    elif fact.errors:
        name, error = next(iter(fact.errors.items()))
        reason = f"output {name} could not be produced: {error}"
    produced = any(value is not None for value in fact.outputs.values())
    if run.shortfall and not run.graph.outputs:
        produced = SUCCEEDED in run.phase  # nothing was promised, and something was done
    status = "succeeded" if not reason else "partial" if produced else "failed"
    emit(run, batch, WorkflowCompleted(run.seq + 1, now, status, fact.outputs, reason, _then(run, status)))  # type: ignore[arg-type]  # literals


def _then(run: Run, status: str) -> str:
    """The key of what comes after it. No more than a few runs follow each other: nothing goes on for ever."""
    workflow = run.graph.workflow
    key, given = (
        ("on_complete", workflow.on_complete)
        if status == "succeeded"
        else ("on_failure", workflow.on_failure)
    )
    return key if given and run.id.count(FOLLOWS) < DEEPEST else ""
