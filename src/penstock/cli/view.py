"""What a person wants to see of a run, folded from its events.

The same fold serves a run that is going on and one that was saved. It costs the same for
each event however many steps there are, and knows nothing of terminals or clocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

from penstock.ids import StepId
from penstock.run.commands import Abort
from penstock.run.events import (
    BudgetWarned,
    CommandAccepted,
    DagChanged,
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

State = Literal["waiting", "running", "retrying", "succeeded", "failed", "skipped"]
OVER: Final = frozenset({"succeeded", "failed", "skipped"})
RECENT: Final = 64

UNKNOWN_LAYER: Final = -1


class Row:
    """One step."""

    __slots__ = (
        "attempt", "done", "ended", "id", "items", "iteration", "layer", "lost", "reason", "retry_at",
        "started", "state",
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
        self.retry_at = 0.0
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
        self.status = "pending"
        self.reason = ""
        self.outputs: Mapping[str, Any] = {}
        self.started = 0.0
        self.at = 0.0
        """The time of the last event."""
        self.stopping = ""
        self.timed_out = False
        self.rows: dict[StepId, Row] = {}
        self.counts: dict[State, int] = dict.fromkeys(
            ("waiting", "running", "retrying", "succeeded", "failed", "skipped"), 0
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

    @property
    def over(self) -> int:
        """How many steps have ended."""
        counts = self.counts
        return counts["succeeded"] + counts["failed"] + counts["skipped"]

    @property
    def ended(self) -> bool:
        return self.status in ("succeeded", "failed", "partial", "aborted")

    def take(self, event: Event) -> None:
        """Fold one event in."""
        self.at = event.at
        fold = _FOLDS.get(type(event))
        if fold is not None:
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
            "pending": [],
            "duration_ms": round((self.at - self.started) * 1000, 3),
        }

    def row(self, id: StepId) -> Row:
        return self.rows.get(id) or self.add(id, UNKNOWN_LAYER)

    def move(self, row: Row, state: State) -> None:
        """Put a step into another state, and keep every count right."""
        was = row.state
        row.state = state
        self.counts[was] -= 1
        self.counts[state] += 1
        layer = self.layers[row.layer]
        layer.active += (state in ("running", "retrying")) - (was in ("running", "retrying"))
        layer.over += (state in OVER) - (was in OVER)
        if state in OVER:
            self.active.pop(row.id, None)
            if state == "succeeded":
                self.recent.append(row)
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


def _begin(view: View, event: WorkflowStarted) -> None:
    view.workflow, view.hash, view.status = event.workflow, event.hash, "running"
    view.started = event.at


def _start(view: View, event: TaskStarted) -> None:
    row = view.row(event.step)
    if event.item is not None:
        return
    if row.state in OVER or not row.started:
        row.started, row.ended, row.items, row.done, row.lost = event.at, 0.0, -1, 0, 0
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


def _fail(view: View, event: TaskFailed) -> None:
    row = view.row(event.step)
    if event.item is not None:
        if event.retry_in is None:
            row.done += 1
            row.lost += 1
        return
    row.reason, row.attempt = event.error, event.attempt
    if event.retry_in is not None:
        row.retry_at = event.at + event.retry_in
        view.move(row, "retrying")
        return
    row.ended = event.at
    view.move(row, "failed")


def _skip(view: View, event: TaskSkipped) -> None:
    row = view.row(event.step)
    row.reason, row.ended = event.reason, event.at
    view.move(row, "skipped")


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
    view.status, view.reason = "paused", event.reason


def _resume(view: View, _event: WorkflowResumed) -> None:
    view.status, view.reason = "running", ""


def _end(view: View, event: WorkflowCompleted) -> None:
    view.status, view.reason, view.outputs = event.status, event.reason, event.outputs


def _abort(view: View, event: WorkflowAborted) -> None:
    view.status, view.reason = "aborted", event.reason


_FOLDS: dict[type, Callable[[View, Any], None]] = {
    WorkflowStarted: _begin,
    TaskStarted: _start,
    MapStarted: _map,
    TaskCompleted: _complete,
    TaskFailed: _fail,
    TaskSkipped: _skip,
    DagChanged: _grow,
    CommandAccepted: _command,
    BudgetWarned: _warn,
    WorkflowPaused: _pause,
    WorkflowResumed: _resume,
    WorkflowCompleted: _end,
    WorkflowAborted: _abort,
}
"""Events that are not here change nothing that is shown."""
