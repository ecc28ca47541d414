"""What a person wants to see of a run, folded from its events.

The same fold serves a run that is going on and one that was saved. It costs the same for
each event however many steps there are, and knows nothing of terminals or clocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

from penstock.ids import DecisionId, StepId
from penstock.run.commands import Abort
from penstock.run.events import (
    BudgetWarned,
    CommandAccepted,
    DagChanged,
    DecisionMade,
    DecisionRequired,
    Event,
    MapStarted,
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

State = Literal["waiting", "running", "retrying", "asking", "succeeded", "failed", "skipped"]
OVER: Final = frozenset({"succeeded", "failed", "skipped"})
AT_WORK: Final = frozenset({"running", "retrying", "asking"})
RECENT: Final = 64

UNKNOWN_LAYER: Final = -1


class Row:
    """One step."""

    __slots__ = (
        "asks", "attempt", "done", "ended", "id", "items", "iteration", "kind", "layer", "lost", "reason",
        "retry_at", "started", "state",
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

    def __init__(self, steps: Iterable[tuple[StepId, int]] = ()) -> None:
        self.workflow = ""
        self.hash = ""
        self.said = "pending"
        """The status as far as events said it; `status` refines it."""
        self.pauses: set[str] = set()
        self.decisions: dict[DecisionId, DecisionRequired] = {}
        """Open ones."""
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
        row.reason = row.kind = ""
        row.items, row.done, row.lost, row.asks = -1, 0, 0, 0
        self.move(row, "waiting")
        self.settle(row)

    def settle(self, row: Row) -> None:
        """Nothing is asked about this step any more."""
        for id in [id for id, asked in self.decisions.items() if asked.step == row.id]:
            del self.decisions[id]


def pending(asked: DecisionRequired) -> dict[str, Any]:
    """An open decision as the line that ends `run --json` tells it."""
    return {"id": asked.decision, "kind": asked.kind, "step": asked.step, "summary": asked.summary}


def _begin(view: View, event: WorkflowStarted) -> None:
    view.workflow, view.hash, view.said = event.workflow, event.hash, "running"
    view.started = event.at


def _start(view: View, event: TaskStarted) -> None:
    row = view.row(event.step)
    if event.item is not None:
        return
    if row.state in OVER or not row.started:
        row.started, row.ended, row.items, row.done, row.lost = event.at, 0.0, -1, 0, 0
        row.asks = 0
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
    if event.step is not None:
        row = view.row(event.step)
        row.asks += event.item is not None
        view.move(row, "asking")


def _answer(view: View, event: DecisionMade) -> None:
    view.decisions.pop(event.decision, None)
    if event.step is None:
        return
    row = view.row(event.step)
    if event.item is not None:
        row.asks -= 1
        if not row.asks:
            view.move(row, "running")
    elif event.verb == "retry":
        row.retry_at, row.reason = event.at, ""
        view.move(row, "retrying")


def _grow(view: View, event: DagChanged) -> None:
    for step in event.added:
        layers = [view.rows[need].layer for need in step.needs if need in view.rows]
        if step.id not in view.rows:
            view.add(step.id, 1 + max(layers, default=-1))


def _command(view: View, event: CommandAccepted) -> None:
    if isinstance(event.command, Abort):
        view.stopping = event.command.reason or "aborted"


def _warn(view: View, event: BudgetWarned) -> None:
    if event.budget == TIMEOUT and event.used >= event.limit:
        view.stopping, view.timed_out = "time is up", True


def _pause(view: View, event: WorkflowPaused) -> None:
    view.pauses.add(event.by)
    view.reason = event.reason


def _resume(view: View, event: WorkflowResumed) -> None:
    taken_up = event.by in ("process", "fork")
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
    DagChanged: _grow,
    CommandAccepted: _command,
    BudgetWarned: _warn,
    WorkflowPaused: _pause,
    WorkflowResumed: _resume,
    WorkflowCompleted: _end,
    WorkflowAborted: _abort,
}
"""Events that are not here change nothing that is shown."""
