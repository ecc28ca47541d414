"""What a person wants to see of a run, folded from its events.

The same fold serves a run that is going on and one that was saved. It costs the same for
each event however many steps there are, and knows nothing of terminals or clocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, Self

from penstock.cli.text import one_line
from penstock.engines.plain import pending
from penstock.ids import DecisionId, StepId
from penstock.run.commands import Abort
from penstock.run.events import (
    BudgetWarned,
    CommandAccepted,
    DagChanged,
    DecisionMade,
    DecisionRequired,
    Event,
    GateChecked,
    GateEscalated,
    MapStarted,
    RouteDecided,
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
from penstock.run.evolve import TIMEOUT
from penstock.run.questions import AGAIN
from penstock.workflow.graph import Graph

State = Literal["waiting", "running", "retrying", "asking", "succeeded", "failed", "skipped"]
OVER: Final = frozenset({"succeeded", "failed", "skipped"})
AT_WORK: Final = frozenset({"running", "retrying", "asking"})
RECENT: Final = 64

ANSWERS: Final = 8
"""Answers that are remembered, the last ones."""

ABOUT_TASKS: Final = frozenset({"orphan", "gate", "approval"})
"""Kinds of decisions that keep the task they are about from going on."""

UNKNOWN_LAYER: Final = -1

Bodies = Mapping[tuple[StepId, StepId], tuple[StepId, ...]]
"""What a way back opens again: by router and target, the steps of the loop."""


class Spent(NamedTuple):
    """How much of a budget is used."""

    used: float
    limit: float


class Row:
    """One step."""

    __slots__ = (
        "asks", "attempt", "by", "done", "ended", "gate", "id", "items", "iteration", "kind", "layer", "lost",
        "reason", "retry_at", "route", "started", "state",
    )  # fmt: skip

    def __init__(self, id: StepId, layer: int = UNKNOWN_LAYER) -> None:
        self.id = id
        self.layer = layer
        self.state: State = "waiting"
        self.started = 0.0
        """When the first attempt started; 0 when none has."""
        self.ended = 0.0
        self.attempt = 0
        self.iteration = 1
        self.items = -1
        """How many there are; -1 for a step that is no map, or not counted yet."""
        self.done = 0
        self.lost = 0
        """Items that failed for good."""
        self.asks = 0
        """Items that wait for a decision."""
        self.retry_at = 0.0
        self.kind = ""
        """Of a failure."""
        self.reason = ""
        self.route = ""
        """Where it led, and by which rule."""
        self.gate = ""
        """What its gate said last."""
        self.by = ""
        """Who added it while the run was going on."""

    def seconds(self, now: float) -> float:
        """How long it took, or has taken so far."""
        return (self.ended or now) - self.started if self.started else 0.0


class Layer:
    __slots__ = ("active", "over", "total")

    def __init__(self) -> None:
        self.total = 0
        self.active = 0
        self.over = 0


class View:
    """The run as it stands after the events taken so far."""

    def __init__(self, steps: Iterable[tuple[StepId, int]] = (), bodies: Bodies | None = None) -> None:
        self.bodies: Bodies = bodies or {}
        self.workflow = ""
        self.hash = ""
        self.said = "pending"
        """The status as far as events said it; `status` refines it."""
        self.pauses: set[str] = set()
        self.decisions: dict[DecisionId, DecisionRequired] = {}
        """Open ones."""
        self.answers: deque[DecisionMade] = deque(maxlen=ANSWERS)
        self.budgets: dict[str, Spent] = {}
        """Those that are nearly spent, or spent."""
        self.note = ""
        """What is not in the events: that nobody drives the run, say."""
        self.reason = ""
        self.outputs: Mapping[str, Any] = {}
        self.started = 0.0
        self.at = 0.0
        """The time of the last event."""
        self.stopping = ""
        self.timed_out = False
        self.rows: dict[StepId, Row] = {}
        self.counts: dict[State, int] = dict.fromkeys(
            ("waiting", "running", "retrying", "asking", "succeeded", "failed", "skipped"), 0
        )
        self.layers: dict[int, Layer] = {}
        self.active: dict[StepId, Row] = {}
        """Running or about to be tried again, in the order they started."""
        self.failed: dict[StepId, Row] = {}
        self.recent: deque[Row] = deque(maxlen=RECENT)
        """The last to be done. Those that never ran are no news."""
        self.widest = 1
        """Characters of the longest name."""
        for id, layer in steps:
            self.add(id, layer)
        self._known = bool(self.rows)
        """Whether the definition is known. Then a step that is not in it is one of an earlier version."""

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """An empty view of a run whose definition is known."""
        ids = graph.ids
        bodies = {
            (ids[router], ids[target]): tuple(ids[i] for i in body)
            for router, found in graph.routers.items()
            for target, body in found.bodies.items()
        }
        view = cls(zip(ids, graph.layers, strict=True), bodies)
        view.workflow = one_line(graph.workflow.name)
        return view

    @property
    def status(self) -> str:
        if self.said == "running" and self.pauses:
            return "paused"
        if self.said == "running" and self.decisions and not self.counts["running"] + self.counts["retrying"]:
            return "waiting"
        return self.said

    @property
    def over(self) -> int:
        """How many steps have ended."""
        counts = self.counts
        return counts["succeeded"] + counts["failed"] + counts["skipped"]

    @property
    def ended(self) -> bool:
        return self.said in ("succeeded", "failed", "partial", "aborted")

    def take(self, event: Event) -> None:
        """Fold one event in."""
        self.at = event.at
        fold = _FOLDS.get(type(event))
        if fold is not None and not (self._known and self._strange(event)):
            fold(self, event)

    def summary(self, run_id: str) -> dict[str, Any]:
        """How the run stands, in the shape of the line that ends `run --json`."""
        return {
            "run_id": run_id,
            "status": self.status,
            "outputs": self.outputs,
            "steps": {
                row.id: {
                    "status": "backoff" if row.state == "retrying" else row.state,
                    "attempts": row.attempt,
                    "iterations": row.iteration,
                    "reason": row.reason,
                }
                for row in self.rows.values()
            },
            "pending": [] if self.ended else [pending(asked) for asked in self.decisions.values()],
            "duration_ms": round((self.at - self.started) * 1000, 3),
        }

    def _strange(self, event: Event) -> bool:
        step = getattr(event, "step", None)
        return step is not None and step not in self.rows

    def row(self, id: StepId) -> Row:
        return self.rows.get(id) or self.add(id, UNKNOWN_LAYER)

    def move(self, row: Row, state: State) -> None:
        """Put a step into another state, and keep every count right."""
        was = row.state
        row.state = state
        self.counts[was] -= 1
        self.counts[state] += 1
        layer = self.layers[row.layer]
        layer.active += (state in AT_WORK) - (was in AT_WORK)
        layer.over += (state in OVER) - (was in OVER)
        if state in OVER:
            self.active.pop(row.id, None)
            if state == "succeeded":
                self.recent.append(row)
        elif state == "waiting":
            self.active.pop(row.id, None)
        else:
            self.active[row.id] = row
        if state == "failed":
            self.failed[row.id] = row
        elif was == "failed":
            self.failed.pop(row.id, None)

    def add(self, id: StepId, layer: int) -> Row:
        row = self.rows[id] = Row(id, layer)
        self.counts["waiting"] += 1
        self.widest = max(self.widest, len(id))
        self.layers.setdefault(layer, Layer()).total += 1
        return row

    def reopen(self, row: Row) -> None:
        """As if the step had never begun."""
        row.started = row.ended = 0.0
        row.reason = row.kind = row.route = row.gate = ""
        row.items, row.done, row.lost, row.asks = -1, 0, 0, 0
        self.move(row, "waiting")
        self.settle(row)

    def settle(self, row: Row) -> None:
        """Nothing is asked about this step any more."""
        for id in [id for id, asked in self.decisions.items() if asked.step == row.id]:
            del self.decisions[id]


def routed(event: RouteDecided) -> str:
    """Where a route leads, and why: `⇢ publish (condition: output.ok)`."""
    to = event.target or "nowhere"
    because = event.reason
    if event.rule in ("condition", "branch") and event.evaluated_conditions:
        last = event.evaluated_conditions[-1]
        because = f"{last['expr']}" + (f" is {last['value']!r}" if event.rule == "branch" else "")
    rule = f"{event.rule}: {because}" if because else event.rule
    sure = f", {event.confidence:.0%} sure" if event.confidence is not None else ""
    person = ", a person should look" if event.needs_human and event.target != "human" else ""
    return f"⇢ {to} ({rule}{sure}{person})"


def checked(event: GateChecked) -> str:
    """What a gate said: `gate: 2 of 3 checks failed: …`."""
    if event.passed:
        return "gate passed"
    bad = [check for check in event.checks if check["status"] != "passed"]
    why = "; ".join(f"{check['name']}: {check.get('detail') or check['status']}" for check in bad)
    unable = all(check["status"] == "unavailable" for check in bad)
    verdict = "could not be checked" if unable else "said no"
    return f"gate {verdict}, {len(bad)} of {len(event.checks)}: {why}"


def _begin(view: View, event: WorkflowStarted) -> None:
    view.workflow, view.hash, view.said = one_line(event.workflow), event.hash, "running"
    view.started = event.at


def _start(view: View, event: TaskStarted) -> None:
    row = view.row(event.step)
    if event.item is not None:
        return
    if row.state in OVER or not row.started:
        row.started, row.ended, row.items, row.done, row.lost = event.at, 0.0, -1, 0, 0
        row.asks = 0
    if row.iteration != event.iteration:
        row.route = row.gate = ""
    row.attempt, row.iteration, row.reason = event.attempt, event.iteration, ""
    view.move(row, "running")


def _map(view: View, event: MapStarted) -> None:
    view.row(event.step).items = event.count


def _complete(view: View, event: TaskCompleted) -> None:
    row = view.row(event.step)
    if event.item is not None:
        row.done += 1
        return
    row.ended = event.at
    view.move(row, "succeeded")
    view.settle(row)


def _fail(view: View, event: TaskFailed) -> None:
    row = view.row(event.step)
    if event.item is not None:
        if event.retry_in is None:
            row.done += 1
            row.lost += 1
        return
    row.reason, row.kind, row.attempt = event.error, event.kind, event.attempt
    if event.retry_in is not None:
        row.retry_at = event.at + event.retry_in
        view.move(row, "retrying")
        return
    row.ended = event.at
    view.move(row, "failed")
    view.settle(row)


def _skip(view: View, event: TaskSkipped) -> None:
    row = view.row(event.step)
    row.reason, row.ended = event.reason, event.at
    view.move(row, "skipped")
    view.settle(row)


def _ask(view: View, event: DecisionRequired) -> None:
    view.decisions[event.decision] = event
    if event.step is not None and event.kind in ABOUT_TASKS:
        row = view.row(event.step)
        row.asks += event.item is not None
        if event.item is None:
            row.attempt, row.iteration = event.attempt, event.iteration
        view.move(row, "asking")


def _answer(view: View, event: DecisionMade) -> None:
    asked = view.decisions.pop(event.decision, None)
    view.answers.append(event)
    if asked is None or asked.step is None or asked.kind not in ABOUT_TASKS:
        return
    row = view.row(asked.step)
    if asked.item is not None:
        row.asks -= 1
        if not row.asks:
            view.move(row, "running")
    elif event.verb in AGAIN:
        row.retry_at, row.reason = event.at, ""
        view.move(row, "retrying")


def _route(view: View, event: RouteDecided) -> None:
    row = view.row(event.step)
    row.route = routed(event)
    if event.target is None:
        return
    for step in view.bodies.get((event.step, event.target), ()):
        body = view.row(step)
        if body.state in OVER:
            route, iteration = body.route, body.iteration
            view.reopen(body)
            body.route, body.iteration = route, iteration + 1


def _check(view: View, event: GateChecked) -> None:
    row = view.row(event.step)
    row.gate = checked(event)
    if event.item is None and event.then == "again":
        row.retry_at, row.reason = event.at + event.retry_in, row.gate
        view.move(row, "retrying")


def _escalate(view: View, event: GateEscalated) -> None:
    if not event.child:
        view.row(event.step).gate = "its gate called a person"


def _grow(view: View, event: DagChanged) -> None:
    for step in event.added:
        layers = [view.rows[need].layer for need in step.needs if need in view.rows]
        row = view.rows.get(step.id) or view.add(step.id, 1 + max(layers, default=-1))
        row.by = event.by or "a command"


def _command(view: View, event: CommandAccepted) -> None:
    if isinstance(event.command, Abort):
        view.stopping = event.command.reason or "aborted"


def _warn(view: View, event: BudgetWarned) -> None:
    if event.budget != TIMEOUT:
        name = f"{event.budget} of {event.step}" if event.step is not None else event.budget
        view.budgets[name] = Spent(event.used, event.limit)
    elif event.used >= event.limit:
        view.stopping, view.timed_out = "time is up", True


def _pause(view: View, event: WorkflowPaused) -> None:
    view.pauses.add(event.by)
    view.reason = event.reason


def _resume(view: View, event: WorkflowResumed) -> None:
    taken_up = event.by in ("process", "fork")
    if event.by == "fork":
        view.started = event.at  # what came before took another run's time
    view.pauses -= {event.by, "storage"} if taken_up else {event.by}
    if view.stopping and view.ended:
        _unstop(view)
    view.said, view.reason, view.outputs = "running", "", {}
    for step in event.reopened:
        view.reopen(view.row(step))


def _unstop(view: View) -> None:
    """Take back a stop: what it cancelled or kept from starting is open again."""
    for row in view.rows.values():
        cancelled = row.state == "failed" and row.kind == "cancelled"
        if cancelled or (row.state == "skipped" and row.reason == view.reason):
            view.reopen(row)
    view.stopping, view.timed_out = "", False


def _end(view: View, event: WorkflowCompleted) -> None:
    view.said, view.reason, view.outputs = event.status, event.reason, event.outputs


def _abort(view: View, event: WorkflowAborted) -> None:
    view.said, view.reason = "aborted", event.reason


_FOLDS: dict[type, Callable[[View, Any], None]] = {
    WorkflowStarted: _begin,
    TaskStarted: _start,
    MapStarted: _map,
    TaskCompleted: _complete,
    TaskFailed: _fail,
    TaskSkipped: _skip,
    DecisionRequired: _ask,
    DecisionMade: _answer,
    RouteDecided: _route,
    GateChecked: _check,
    GateEscalated: _escalate,
    DagChanged: _grow,
    CommandAccepted: _command,
    BudgetWarned: _warn,
    WorkflowPaused: _pause,
    WorkflowResumed: _resume,
    WorkflowCompleted: _end,
    WorkflowAborted: _abort,
}
"""Events that are not here change nothing that is shown."""
