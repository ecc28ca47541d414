"""What follows from a fact: one fact in, one batch of events out.

Pure on purpose. It never reads a clock, never awaits, never logs, never draws a random
number; engines do that. The events it returns are already folded into the run it was
given. It runs once per fact; replay never calls it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, assert_never

import msgspec
from msgspec import UNSET

from penstock.policy import retry as retry_policy
from penstock.run import accept, asking, choosing, gating, orphans, points, reducers
from penstock.run.choosing import fingerprint
from penstock.run.commands import Decide
from penstock.run.control import control_values, too_large
from penstock.run.effects import PrepareCall
from penstock.run.events import (
    BudgetWarned,
    CommandAccepted,
    Event,
    GateStarted,
    LayerStarted,
    MapStarted,
    ModelCalled,
    StateUpdated,
    TaskCompleted,
    TaskFailed,
    TaskSkipped,
    TaskStarted,
    WorkflowAborted,
    WorkflowCompleted,
    WorkflowPaused,
    WorkflowResumed,
    WorkflowStarted,
)
from penstock.run.evolve import TIMEOUT, evolve
from penstock.run.facts import (
    BackoffElapsed,
    CallPrepared,
    ChildEscalated,
    CommandReceived,
    DecisionExpired,
    Fact,
    GateFinished,
    ItemsCounted,
    OutputsCollected,
    ProcessLeaving,
    Replanned,
    RunReopened,
    RunRequested,
    StorageStalled,
    TaskOrphaned,
    TaskRaised,
    TaskReturned,
    TieBroken,
    TimeRanOut,
)
from penstock.run.state import (
    ASKING,
    BACKOFF,
    DORMANT,
    ENDED,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    WAITING,
    Run,
    dig,
    place,
)
from penstock.run.summary import preview
from penstock.workflow.expr import Failure, Path
from penstock.workflow.graph import ALL_DONE, ALL_SUCCESS, ANY_SUCCESS, bottom_levels

UNCERTAIN = (
    "it may have taken effect, so it is not repeated (`effect: idempotent` or `on_orphan: rerun` allow it)"
)


def decide(run: Run, fact: Fact, now: float) -> list[Event]:
    """Everything that follows from `fact`, in order, already folded into `run`."""
    batch: list[Event] = []
    if type(fact) is TaskReturned:
        if fact.calls:
            _note_calls(run, fact, now, batch)
        if fact.item is None and fact.step not in run.graph.gates:  # most facts are of this kind
            _complete(run, fact, fact.output, now, batch)
            _advance(run, now, batch)
            return batch
    match fact:
        case TaskReturned():
            if fact.step in run.graph.gates:
                _begin_gate(run, fact, now, batch)
            else:
                _returned(run, fact, now, batch)
        case TaskRaised():
            _raised(run, fact, now, batch)
        case ItemsCounted():
            _counted(run, fact, now, batch)
        case BackoffElapsed():
            _elapsed(run, fact)
        case CommandReceived():
            if run.ended:
                return batch  # its last event stays its last
            accept.command(run, fact, now, batch)
            if isinstance(fact.command, Decide):
                _decided(run, fact, now, batch)
        case OutputsCollected():
            if run.complete and not run.ended:
                _end(run, fact, now, batch)
            return batch
        case RunRequested():
            event = WorkflowStarted(
                run.seq + 1, now, run.graph.workflow.name, run.graph.hash, fact.inputs, fact.engine,
                fact.parent, fact.durations, fact.allowance,
            )  # fmt: skip
            emit(run, batch, event)
        case ProcessLeaving():
            if not run.ended:
                emit(run, batch, WorkflowPaused(run.seq + 1, now, fact.reason, "process"))
        case StorageStalled():
            _stalled(run, fact.reason, now, batch)
        case RunReopened():
            event_ = WorkflowResumed(
                run.seq + 1, now, fact.reason, fact.cause, fact.reopened, fact.overrides, fact.inputs
            )
            emit(run, batch, event_)
            for i, state in run.maps.items():
                if state.count >= 0:
                    _enqueue(run, i)
        case TaskOrphaned():
            orphans.ask(run, fact, now, batch)
        case TimeRanOut():
            if not run.ended and not run.stopping:
                emit(run, batch, BudgetWarned(run.seq + 1, now, TIMEOUT, fact.limit, fact.limit))
        case _:
            _adapt(run, fact, now, batch)
    _advance(run, now, batch)
    return batch


def _adapt(
    run: Run,
    fact: CallPrepared | GateFinished | TieBroken | DecisionExpired | Replanned | ChildEscalated,
    now: float,
    batch: list[Event],
) -> None:
    """What engines report of approvals, gates, ties, deadlines and planners."""
    match fact:
        case CallPrepared(harmless=True):
            _start_unasked(run, fact)
        case CallPrepared():
            asking.approve(run, fact, now, batch)
            if fact.item is not None and fact.step in run.maps:
                _enqueue(run, fact.step)
                _close_map(run, fact.step, now, batch)
        case GateFinished():
            if gating.finished(run, fact, now, batch):
                _returned(run, _passed(fact), now, batch)
            elif fact.item is not None and fact.step in run.maps:
                _close_map(run, fact.step, now, batch)
        case TieBroken():
            choosing.tie_broken(run, fact, now, batch)
        case DecisionExpired():
            asking.expired(run, fact, now, batch)
        case Replanned():
            points.replanned(run, fact, now, batch)
        case ChildEscalated():
            gating.copied(run, fact, now, batch)
        case _:
            assert_never(fact)


def _note_calls(run: Run, fact: TaskReturned, now: float, batch: list[Event]) -> None:
    for call in fact.calls:
        emit(run, batch, ModelCalled(run.seq + 1, now, run.graph.ids[fact.step], call))


def emit(run: Run, batch: list[Event], event: Event) -> None:
    """Conclude: fold the event in and add it to the batch."""
    evolve(run, event)
    batch.append(event)


# --- what came back ---------------------------------------------------------------------------


def _begin_gate(run: Run, fact: TaskReturned, now: float, batch: list[Event]) -> None:
    """A result counts only when its gate has been passed; until then it is kept safe."""
    step = run.graph.ids[fact.step]
    event = GateStarted(
        run.seq + 1, now, step, fact.iteration, fact.item, fact.attempt, fact.output, "", fact.usage
    )
    emit(run, batch, event)


def _start_unasked(run: Run, fact: CallPrepared) -> None:
    """Nobody needs to be asked: the task may start as soon as there is a slot."""
    at = place(fact.step, fact.item)
    wanted = at in run.preparing
    run.preparing.discard(at)
    if run.stopping or run.ended or not wanted or not asking.still_to_start(run, fact):
        return
    run.unasked.add(at)
    if fact.item is not None and fact.item in run.maps[fact.step].backoff:
        run.maps[fact.step].fired.append(fact.item)
    _enqueue(run, fact.step)


def _passed(fact: GateFinished) -> TaskReturned:
    return TaskReturned(fact.step, fact.output, fact.iteration, fact.item, fact.attempt)


def _decided(run: Run, fact: CommandReceived, now: float, batch: list[Event]) -> None:
    """What an accepted answer means for the task it is about."""
    if batch and isinstance(batch[0], CommandAccepted):
        output = asking.answer(run, fact, now, batch)
        if output is not None:
            _returned(run, output, now, batch)
    for i in [i for i, state in run.maps.items() if state.count >= 0]:
        _close_map(run, i, now, batch)  # its last open item may just have been decided


def _returned(run: Run, fact: TaskReturned, now: float, batch: list[Event]) -> None:
    i, graph = fact.step, run.graph
    step = graph.ids[i]
    if fact.item is not None:
        event = TaskCompleted(
            run.seq + 1, now, step, fact.output, fact.iteration, fact.item, fact.attempt, None, "",
            fingerprint(fact.output) if i in graph.looped else "", fact.usage,
        )  # fmt: skip
        emit(run, batch, event)
        _close_map(run, i, now, batch)
        return
    _complete(run, fact, fact.output, now, batch)


def _complete(run: Run, fact: TaskReturned, output: Any, now: float, batch: list[Event]) -> None:
    """The step has its output: note what control expressions read of it, and what it sets."""
    i, graph = fact.step, run.graph
    step = graph.ids[i]
    control = control_values(graph, i, output) if i in graph.control else None
    update: tuple[dict[str, Any], dict[str, Any]] | None = None
    if i in graph.sets:
        found = _update(run, i, output)
        if isinstance(found, Failure):
            _failed(run, i, fact, "state", found.message, now, batch)
            return
        update = found
    event = TaskCompleted(run.seq + 1, now, step, fact.output, fact.iteration, None, fact.attempt, control)
    if graph.careful or fact.usage:
        event = _annotated(run, i, event, output, fact)
    evolve(run, event)
    batch.append(event)
    if update:
        emit(run, batch, StateUpdated(run.seq + 1, now, update[0], update[1], step))


def _annotated(run: Run, i: int, event: TaskCompleted, output: Any, fact: TaskReturned) -> TaskCompleted:
    """With what loops, budgets and people want to know of an output."""
    graph = run.graph
    print_ = ""
    if i in graph.looped:
        state = run.maps.get(i)
        print_ = fingerprint(output if state is None else sorted(state.prints.items()))
    shown = preview(output) if graph.asks else ""
    return msgspec.structs.replace(event, print=print_, usage=fact.usage, preview=shown)


def _update(run: Run, i: int, output: Any) -> tuple[dict[str, Any], dict[str, Any]] | Failure:
    """What a step's `set` writes: undeclared keys go into `context`."""

    def look_up(path: Path) -> Any:
        if path[0] == "output":
            return dig(output, path[1:])
        return run.look_up(path, i)

    delta: dict[str, Any] = {}
    for key, template in run.graph.sets[i]:
        value = template.render(look_up)
        if isinstance(value, Failure):
            return value
        if key in run.graph.workflow.reducers:
            delta[key] = value
        else:
            delta.setdefault(reducers.CONTEXT, {})[key] = value
    try:
        return reducers.split(run, delta)
    except Exception as error:  # noqa: BLE001 - a declared reducer is a user's function
        return Failure(str(error), "set")


def _raised(run: Run, fact: TaskRaised, now: float, batch: list[Event]) -> None:
    i = fact.step
    step = run.graph.workflow.steps[i]
    policy = step.retry or run.graph.workflow.config.retry or retry_policy.ONCE
    again: float | None = None
    error, kind = fact.error, fact.kind
    spent = fact.attempt - _base(run, i, fact.item)
    if retry_policy.ambiguous(kind=fact.kind, effect=fact.effect, on_orphan=step.on_orphan):
        error += f"; {UNCERTAIN}"
    elif retry_policy.retries(policy, attempt=spent, kind=fact.kind, name=fact.name):
        if run.halted:
            kind, error = "cancelled", f"{error}; not tried again: {run.halted}"
        elif fact.item is None or run.maps[i].failed is None:
            seed = f"{run.id}/{step.id}.{fact.iteration}.{fact.item}"
            again = retry_policy.delay(policy, attempt=spent, seed=seed)
    event = TaskFailed(
        run.seq + 1, now, step.id, error, kind, fact.name, fact.iteration, fact.item, fact.attempt,
        again, fact.trace,
    )  # fmt: skip
    emit(run, batch, event)
    if fact.item is not None:
        _close_map(run, i, now, batch)


def _base(run: Run, i: int, item: int | None) -> int:
    """Attempts that do not count against `retry`: those before a `retry_step`, or that a gate refused."""
    base = run.attempt_base.get(i, 0) if item is None else run.maps[i].base
    tried = run.tried.get(place(i, item))
    return max(base, tried[-1]["attempt"]) if tried else base


def _failed(
    run: Run, i: int, fact: TaskReturned, kind: str, error: str, now: float, batch: list[Event]
) -> None:
    """A task that came back, but whose result cannot be used."""
    step = run.graph.ids[i]
    emit(
        run, batch,
        TaskFailed(run.seq + 1, now, step, error, kind, "", fact.iteration, fact.item, fact.attempt),
    )  # fmt: skip


def _elapsed(run: Run, fact: BackoffElapsed) -> None:
    i = fact.step
    if fact.item is None:
        if run.phase[i] == BACKOFF and run.attempts.get(i, 1) == fact.attempt:
            _enqueue(run, i)
    elif i in run.maps and run.maps[i].backoff.get(fact.item) == fact.attempt:
        run.maps[i].fired.append(fact.item)
        _enqueue(run, i)


def _stalled(run: Run, reason: str, now: float, batch: list[Event]) -> None:
    """Trouble with the journal pauses the run; its end lifts that pause and no other."""
    if run.ended:
        return  # its end is decided; it only has to be written
    if reason and "storage" not in run.pauses:
        emit(run, batch, WorkflowPaused(run.seq + 1, now, f"storage: {reason}", "storage"))
    elif not reason and "storage" in run.pauses:
        emit(run, batch, WorkflowResumed(run.seq + 1, now, "storage is back", "storage"))


# --- maps -------------------------------------------------------------------------------------


def _counted(run: Run, fact: ItemsCounted, now: float, batch: list[Event]) -> None:
    i = fact.step
    step, count = run.graph.ids[i], len(fact.items)
    emit(run, batch, MapStarted(run.seq + 1, now, step, count, fact.iteration, fact.items))
    _close_map(run, i, now, batch)


def _close_map(run: Run, i: int, now: float, batch: list[Event]) -> None:
    """End the step when its last item has ended, or when a failed item leaves nothing running."""
    state = run.maps[i]
    step, iteration = run.graph.ids[i], run.iterations.get(i, 1)
    attempt = run.attempts.get(i, 1)
    halted = run.halted
    if state.running or (state.asking and not halted and not _moot(run, i)):
        if not halted and state.failed is None and (state.fired or state.next < state.count):
            _enqueue(run, i)
        return
    if state.failed is not None or (halted and state.done < state.count):
        if state.failed is not None:
            error = f"item {state.failed} failed: {state.errors[state.failed]}"
        else:
            error = f"{state.count - state.done} of {state.count} items did not run: {halted}"
        kind = "error" if state.failed is not None else "cancelled"
        emit(run, batch, TaskFailed(run.seq + 1, now, step, error, kind, "", iteration, None, attempt))
    elif state.done == state.count:
        whole = state.outputs if state.outputs is not None else [None] * state.count
        _complete(run, TaskReturned(i, UNSET, iteration, None, attempt), whole, now, batch)
    elif not halted:
        _enqueue(run, i)


def _moot(run: Run, i: int) -> bool:
    """Whether a map fails whatever is answered: all that is open is whether more items may start."""
    if run.maps[i].failed is None:
        return False
    step = run.graph.ids[i]
    return all(asked.kind == "approval" for asked in run.decisions.values() if asked.step == step)


def _start_item(run: Run, i: int, now: float, batch: list[Event]) -> None:
    """Start the next item of an open map, and queue the map again while it may start more."""
    state = run.maps.get(i)
    if state is None or state.failed is not None or run.halted:
        return
    cap = run.graph.workflow.steps[i].max_parallel
    if cap is not None and len(state.running) >= cap:
        return  # the next item to end queues the map again
    if state.fired:
        item = state.fired[-1]
        attempt = state.backoff[item] + 1
    elif state.next < state.count:
        item, attempt = state.next, state.base + 1
    else:
        return
    if run.metered and asking.over_budget(run, i, now, batch):
        return
    if _needs_approval(run, i, item):
        if state.fired:
            state.fired.pop()
        return
    if state.fired:
        state.fired.pop()
    step, iteration = run.graph.ids[i], run.iterations.get(i, 1)
    emit(run, batch, TaskStarted(run.seq + 1, now, step, iteration, item, attempt))
    if state.fired or state.next < state.count:
        _enqueue(run, i)


# --- what starts, what is skipped, what ends --------------------------------------------------


def _advance(run: Run, now: float, batch: list[Event]) -> None:
    """Carry the consequences as far as they go, by a queue: a skip cascade may be very deep."""
    if run.status_ in ENDED:
        return
    due = run.due
    if run.stopping:
        if run.swept != "stopping":
            _stop(run, now, batch)
    elif len(due) == 1 and not run.ready and _starts_at_once(run, due[0]):
        _start(run, due.pop(), now, batch)  # a chain: nothing to order, nothing to judge
    else:
        while due or run.choosing or run.left or run.points:
            if run.points:
                points.reach_points(run, now, batch)
            if run.choosing or run.left:
                choosing.choose_routes(run, now, batch)
                choosing.skip_unchosen(run, now, batch)
            _judge_due(run, now, batch)
        if run.ending and run.swept != "ending":
            _wind_up(run, now, batch)
        if run.stopping:
            _stop(run, now, batch)
    if (run.ready or run.graph.waves) and not run.pauses and not run.stopping:
        if run.graph.waves:
            points.begin_wave(run, now, batch)
            if run.stopping:
                _stop(run, now, batch)
            elif run.due or run.choosing or run.left:
                _advance(run, now, batch)  # a rule added steps
                return
        if run.ready and not (run.decisions and run.holding):
            _fill_slots(run, now, batch)
    if not run.open and run.complete:
        _finish(run, now, batch)


def _starts_at_once(run: Run, i: int) -> bool:
    """Whether nothing at all stands between this step and its start."""
    graph = run.graph
    return not (
        graph.careful
        or run.metered
        or run.pending[i]
        or run.phase[i]
        or run.pauses
        or i in graph.when
        or run.running >= graph.workflow.config.max_parallel
        or i in run.blamed
        or i in run.passed_over
        or run.decisions
        or run.ending
        or run.points
    )


def _start(run: Run, i: int, now: float, batch: list[Event]) -> None:
    graph = run.graph
    layer = graph.layers[i]
    if layer > run.layer:
        event: Event = LayerStarted(run.seq + 1, now, layer)
        evolve(run, event)
        batch.append(event)
    attempt = run.attempts[i] + 1 if i in run.attempts else 1
    event = TaskStarted(run.seq + 1, now, graph.ids[i], run.iterations.get(i, 1), None, attempt)
    evolve(run, event)
    batch.append(event)


def _judge_due(run: Run, now: float, batch: list[Event]) -> None:
    """Let each step whose needs have spoken start or be skipped. Skips make more steps due."""
    due, phase, when, barriers = run.due, run.phase, run.graph.when, run.graph.barriers
    at = 0
    while at < len(due):
        i = due[at]
        at += 1
        if phase[i] != WAITING or run.queued[i] or ((barriers or run.preparing) and _barred(run, i)):
            continue
        plain = not (i in run.blamed or i in run.passed_over or run.pending[i])
        skipped = None if plain else _join(run, i)
        if skipped is not None:
            _skip(run, i, skipped, now, batch)
        elif i not in when or _condition(run, i, now, batch):
            _enqueue(run, i)
    due.clear()


def _barred(run: Run, i: int) -> bool:
    """Whether the step depends on a loop that may turn again, or is being asked about."""
    if run.preparing and (i, -1) in run.preparing:
        return True
    return not all(router in run.settled for router in run.graph.barriers.get(i, ()))


def _join(run: Run, i: int) -> tuple[str, str] | None:
    """None when the step may start; otherwise why not. ("", "") means: not yet."""
    rule, ids = run.graph.joins[i], run.graph.ids
    blamed, passed_over = run.blamed.get(i), run.passed_over.get(i)
    if rule == ANY_SUCCESS:
        if any(_counts_as_success(run, need) for need in run.graph.needs[i]):
            return None
        if run.pending[i]:
            return ("", "")
    elif rule == ALL_DONE:
        return ("", "") if run.pending[i] else None
    if blamed is not None:
        return ("upstream_failed", f"needs {ids[blamed]}, which {_how(run, blamed)}")
    if run.pending[i]:
        return ("", "")
    if passed_over is not None and rule in (ALL_SUCCESS, ANY_SUCCESS):
        kind = run.reasons[passed_over][0]
        return (kind, f"needs {ids[passed_over]}, which was skipped")
    return None


def _counts_as_success(run: Run, need: int) -> bool:
    if need in run.unsettled:
        return False
    if run.phase[need] == SUCCEEDED:
        return True
    return run.phase[need] > SUCCEEDED and (
        run.phase[need] != SKIPPED and run.graph.workflow.steps[need].on_error == "continue"
    )


def _how(run: Run, i: int) -> str:
    return "did not run" if run.phase[i] == SKIPPED else "failed"


def _skip(run: Run, i: int, why: tuple[str, str], now: float, batch: list[Event]) -> None:
    kind, reason = why
    if kind:
        event = TaskSkipped(run.seq + 1, now, run.graph.ids[i], kind, reason, run.iterations.get(i, 1))  # type: ignore[arg-type]  # kinds come from SkipKind
        emit(run, batch, event)


def _condition(run: Run, i: int, now: float, batch: list[Event]) -> bool:
    """Evaluate `when`. False: the step has been skipped or failed, and the event says why."""
    expression = run.graph.when[i]
    value = expression.evaluate(lambda path: run.look_up(path, i))
    step = run.graph.workflow.steps[i]
    if value is True:
        return True
    if isinstance(value, Failure):
        policy = step.on_expr_error or run.graph.workflow.config.on_expr_error or "halt"
        why = too_large(run, expression.reads) or value.message
        if policy == "halt":
            emit(run, batch, TaskFailed(run.seq + 1, now, step.id, f"when: {why}", "expression"))
            return False
        _skip(run, i, ("condition", f"when could not be evaluated: {why}"), now, batch)
        return False
    shown = "false" if value is False else f"{msgspec.json.encode(value).decode()}, not true"
    _skip(run, i, ("condition", f"when is {shown}: {expression.source}"), now, batch)
    return False


def _enqueue(run: Run, i: int) -> None:
    if run.queued[i]:
        return
    ranks = run.rank or _rank(run)
    run.queued[i] = 1
    heappush(run.ready, ranks[0][i])


def _rank(run: Run) -> tuple[list[int], list[int]]:
    """Order the steps by the longest chain of work that hangs on them: first come the critical ones."""
    graph = run.graph
    steps = graph.workflow.steps
    known = run.durations or any(step.estimate is not None for step in steps)
    if not known and graph.ranks is not None:
        return _requeue(run, graph.ranks)
    seconds = [run.durations.get(step.id, 1.0 if step.estimate is None else step.estimate) for step in steps]
    levels = bottom_levels(graph, seconds)
    order = sorted(range(len(levels)), key=lambda i: (-levels[i], i))
    rank = [0] * len(order)
    for position, i in enumerate(order):
        rank[i] = position
    if not known:
        graph.ranks = (rank, order)
    return _requeue(run, (rank, order))


def _requeue(run: Run, ranks: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
    """Take up an order of starting, and put what is queued into it."""
    run.rank = ranks
    run.ready = [ranks[0][i] for i, queued in enumerate(run.queued) if queued]
    heapify(run.ready)
    return ranks


def _fill_slots(run: Run, now: float, batch: list[Event]) -> None:
    """Start ready tasks while there are slots, the most critical first."""
    graph, queued, phase = run.graph, run.queued, run.phase
    order = (run.rank or _rank(run))[1]
    ready = run.ready
    slots = graph.workflow.config.max_parallel
    aside: list[int] = []
    while ready and run.running < slots:
        at = heappop(ready)
        i = order[at]
        if not queued[i]:
            continue  # held back since
        if graph.careful or run.metered:
            if run.wave and run.wave.get(i) != run.iterations.get(i, 1):
                aside.append(at)  # it belongs to the next wave
                continue
            if run.metered and phase[i] != RUNNING and asking.over_budget(run, i, now, batch):
                aside.append(at)
                break
            if phase[i] in (WAITING, BACKOFF) and _needs_approval(run, i, None):
                queued[i] = 0
                continue
        queued[i] = 0
        if phase[i] == RUNNING:
            _start_item(run, i, now, batch)
        elif phase[i] in (WAITING, BACKOFF):
            _start(run, i, now, batch)
    for at in aside:
        heappush(ready, at)


def _needs_approval(run: Run, i: int, item: int | None) -> bool:
    """Whether a person has to be asked first; if so, the call is made ready to be shown."""
    if i not in run.graph.guarded or (item is None and i in run.graph.for_each):
        return False
    at = place(i, item)
    if at in run.approved:
        return False
    if at in run.unasked:
        run.unasked.discard(at)
        return False
    if at not in run.preparing:
        run.preparing.add(at)
        iteration = run.iterations.get(i, 1)
        if item is None:
            attempt = run.attempts[i] + 1 if i in run.attempts else 1
        else:
            state = run.maps[i]
            attempt = state.backoff.get(item, state.base) + 1
        run.wanted.append(PrepareCall(i, iteration, item, attempt))
    return True


def _stop(run: Run, now: float, batch: list[Event]) -> None:
    """The run is being stopped: end everything that is not running right now."""
    run.swept = "stopping"
    run.due.clear()
    run.ready.clear()
    kind = "command" if run.stopping == "abort" else "run_ended"
    for i, phase in enumerate(run.phase):
        if phase in (WAITING, DORMANT, ASKING):
            _skip(run, i, (kind, run.stop_reason), now, batch)
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
        _close_map(run, i, now, batch)


def _wind_up(run: Run, now: float, batch: list[Event]) -> None:
    """The run is to end by itself: open nothing more, and let what is under way finish."""
    run.swept = "ending"
    run.due.clear()
    for i, phase in enumerate(run.phase):
        if phase in (WAITING, DORMANT, ASKING):
            run.queued[i] = 0
            _skip(run, i, ("run_ended", run.ending), now, batch)
        elif run.halted:
            run.queued[i] = 0
            _give_up(run, i, now, batch)
    run.due.clear()
    run.left.clear()


def _finish(run: Run, now: float, batch: list[Event]) -> None:
    """Every step has an outcome. Outputs, if any are declared, must be collected first."""
    if run.stopping == "abort":
        emit(run, batch, WorkflowAborted(run.seq + 1, now, run.stop_reason))
    elif not run.graph.outputs:
        _end(run, OutputsCollected({}), now, batch)


def _end(run: Run, fact: OutputsCollected, now: float, batch: list[Event]) -> None:
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
    emit(run, batch, WorkflowCompleted(run.seq + 1, now, status, fact.outputs, reason))  # type: ignore[arg-type]  # one of three literals
