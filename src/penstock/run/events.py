"""What the core concluded: past tense, numbered 1, 2, 3 … within a run, never changed.

The journal of these is the truth about a run. Everything a later reader needs is *in*
the event (results of expressions, the rule that chose a route, why a step was skipped),
so that folding old events never asks a newer Penstock for its opinion.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Struct

from penstock.ids import CommandId, DecisionId, RunId, StepId
from penstock.run.commands import Command
from penstock.workflow.spec import Step

Level = Literal["error", "warn", "info", "debug"]
SkipKind = Literal["condition", "not_routed", "upstream_failed", "command", "run_ended"]


class _Event(Struct, frozen=True, omit_defaults=True, tag_field="type", gc=False):
    level: ClassVar[Level] = "info"

    seq: int
    at: float
    """Seconds since the epoch, as the engine's clock read when the fact came in."""


class WorkflowStarted(_Event, frozen=True, tag="workflow_start", gc=False):
    workflow: str
    hash: str
    inputs: Mapping[str, Any]
    engine: str = "native"
    parent: RunId | None = None
    durations: Mapping[StepId, float] = {}
    """Expected seconds of steps, where known: they order ready steps when slots are scarce."""
    allowance: Mapping[str, float] = {}
    """What the parent has left of its budgets."""


class LayerStarted(_Event, frozen=True, tag="layer_start", gc=False):
    level: ClassVar[Level] = "debug"

    layer: int
    wave: tuple[StepId, ...] = ()
    """Under `ail: per_layer`, the steps that may start before the next decision."""


class TaskStarted(_Event, frozen=True, tag="task_start", gc=False):
    """A task is owed from here on. For a map, the event without an item opens the map itself."""

    step: StepId
    iteration: int = 1
    item: int | None = None
    attempt: int = 1


class MapStarted(_Event, frozen=True, tag="map_start", gc=False):
    """The list of a `for_each` is known. Like an output, it is not part of the fold."""

    level: ClassVar[Level] = "debug"

    step: StepId
    count: int
    iteration: int = 1
    output: Any = UNSET
    """The items."""
    ref: str = ""
    """Where a store keeps a list that is too large for its event."""


class TaskCompleted(_Event, frozen=True, tag="task_complete", gc=False):
    step: StepId
    output: Any = UNSET
    """UNSET for a map as a whole: its output is its items' outputs, in input order."""
    iteration: int = 1
    item: int | None = None
    attempt: int = 1
    control: Mapping[str, Any] | None = None
    """The values below `output` that control expressions read, by dotted path."""
    ref: str = ""
    """Where a store keeps an output that is too large for its event."""
    print: str = ""
    """The output's fingerprint, for steps of a loop: three equal rounds are a stall."""
    usage: Mapping[str, float] | None = None
    """What the task cost, where known."""
    preview: str = ""
    """How the output begins, where someone may be asked about the run."""


class TaskFailed(_Event, frozen=True, tag="task_error", gc=False):
    level: ClassVar[Level] = "error"

    step: StepId
    error: str
    kind: str = "error"
    """`error timeout cancelled unavailable expression arguments output state child orphaned`."""
    name: str = ""
    iteration: int = 1
    item: int | None = None
    attempt: int = 1
    retry_in: float | None = None
    """Seconds until the next attempt; None when this was the last."""
    trace: str = ""
    usage: Mapping[str, float] | None = None
    """What the task cost all the same, where known."""


class TaskSkipped(_Event, frozen=True, tag="task_skipped", gc=False):
    step: StepId
    kind: SkipKind
    reason: str
    iteration: int = 1


class StateUpdated(_Event, frozen=True, tag="state_updated", gc=False):
    """A change of the run's state: `delta` goes through the reducers, `values` replace."""

    level: ClassVar[Level] = "debug"

    delta: Mapping[str, Any]
    values: Mapping[str, Any] = {}
    """Results of reducers that are Python functions: computed once, never again."""
    step: StepId | None = None


class Checkpointed(_Event, frozen=True, tag="checkpoint", gc=False):
    level: ClassVar[Level] = "debug"

    checkpoint: str


class DecisionRequired(_Event, frozen=True, tag="decision_required", gc=False):
    level: ClassVar[Level] = "warn"

    decision: DecisionId
    kind: str
    summary: str
    step: StepId | None = None
    iteration: int = 1
    item: int | None = None
    options: tuple[str, ...] = ()
    """The verbs that answer it."""
    call: Mapping[str, Any] = {}
    """What exactly would be called: `uses` and `args`."""
    digest: str = ""
    """Of (run, step, iteration, item, tool, arguments): what an approval is bound to."""
    deadline: float | None = None
    """When it answers itself, in seconds since the epoch; None when it waits for ever."""
    schema: Mapping[str, Any] = {}
    """JSON Schema of the `args` of an answer, by verb."""
    attempt: int = 1
    holds: bool = False
    """Nothing new starts while it is open."""


class DecisionMade(_Event, frozen=True, tag="decision_made", gc=False):
    decision: DecisionId
    verb: str
    step: StepId | None = None
    iteration: int = 1
    item: int | None = None
    by: str = ""
    message: str = ""
    args: Mapping[str, Any] | None = None
    kind: str = ""
    digest: str = ""
    """Of the call that was approved, as edited."""


class CommandAccepted(_Event, frozen=True, tag="command_accepted", gc=False):
    command: Command


class CommandRefused(_Event, frozen=True, tag="command_rejected", gc=False):
    level: ClassVar[Level] = "warn"

    id: CommandId
    name: str
    reason: str


class RouteDecided(_Event, frozen=True, tag="route_decision", gc=False):
    step: StepId
    target: StepId | None
    rule: str
    iteration: int = 1
    candidates: tuple[StepId, ...] = ()
    evaluated_conditions: tuple[Mapping[str, Any], ...] = ()
    """Each with `expr`, `value` or `error`, `target`, why it was `closed`, and `us`: what it cost."""
    confidence: float | None = None
    needs_human: bool = False
    tie_breaker_used: bool = False
    reason: str = ""
    print: str = ""
    """Of a loop's round, when the route leads back."""


class GateStarted(_Event, frozen=True, tag="gate_start", gc=False):
    """A result is in, and its gate is being checked. Like a list of items, it is not part of the fold."""

    level: ClassVar[Level] = "debug"

    step: StepId
    iteration: int = 1
    item: int | None = None
    attempt: int = 1
    output: Any = UNSET
    ref: str = ""
    """Where a store keeps an output that is too large for its event."""
    usage: Mapping[str, float] | None = None
    """What the task cost, where known."""


class GateChecked(_Event, frozen=True, tag="gate_result", gc=False):
    step: StepId
    passed: bool
    iteration: int = 1
    item: int | None = None
    attempt: int = 1
    checks: tuple[Mapping[str, Any], ...] = ()
    """Each with `name`, `status` (passed, failed or unavailable), `detail` and `ms`."""
    tried: Mapping[str, Any] = {}
    """What the next attempt is told of this one."""
    then: Literal["complete", "again", "recheck", "escalate"] = "complete"
    """What follows: the step is done, its task is tried again, checks that could not be made are made
    again, or a person is called."""
    retry_in: float = 0.0
    """Seconds until that."""


class GateEscalated(_Event, frozen=True, tag="gate_escalated", gc=False):
    level: ClassVar[Level] = "error"

    step: StepId
    reason: str
    iteration: int = 1
    item: int | None = None
    unrecoverable: bool = False
    """The same result or the same failing signals three times: more of the same will not help."""
    child: str = ""
    """The child run and event that this is a copy of; the parent goes on."""
    example: Mapping[str, Any] = {}
    """What is remembered of the failure."""


class DagChanged(_Event, frozen=True, tag="dag_changed", gc=False):
    """The graph of this run grew."""

    added: tuple[Step, ...]
    by: str = ""
    feeds: Mapping[StepId, Mapping[str, Any]] = {}
    """Arguments of unstarted steps that take in what the new ones give; they wait for them."""
    guarded: tuple[StepId, ...] = ()
    """New steps that a person must approve because of what they call."""
    control: Mapping[StepId, Mapping[str, Any]] = {}
    """Values below the outputs of steps that had ended, now read by control expressions of the new ones."""


class SpeculationStarted(_Event, frozen=True, tag="speculation_started", gc=False):
    level: ClassVar[Level] = "debug"

    key: str


class SpeculationUsed(_Event, frozen=True, tag="speculation_used", gc=False):
    key: str


class SpeculationDiscarded(_Event, frozen=True, tag="speculation_discarded", gc=False):
    level: ClassVar[Level] = "debug"

    key: str
    reason: str = ""


class ModelCalled(_Event, frozen=True, tag="model_call", gc=False):
    step: StepId | None
    call: Mapping[str, Any]
    """`served_by`, `requested`, `degraded`, `attempts`, `cost` and tokens; `error` when nobody answered."""


class BudgetWarned(_Event, frozen=True, tag="budget_warning", gc=False):
    level: ClassVar[Level] = "warn"

    budget: str
    used: float
    limit: float
    step: StepId | None = None


class WorkflowPaused(_Event, frozen=True, tag="workflow_paused", gc=False):
    level: ClassVar[Level] = "warn"

    reason: str = ""
    by: str = "command"
    """`command`, `storage` or `process`: each cause is lifted by itself."""


class WorkflowResumed(_Event, frozen=True, tag="workflow_resumed", gc=False):
    reason: str = ""
    by: str = "command"
    """Which cause of a pause is lifted; `process` when another process took the run up, `fork` in a fork."""
    reopened: tuple[StepId, ...] = ()
    """Steps that run again although they had ended, or had been started."""
    overrides: Mapping[StepId, Mapping[str, Any]] = {}
    """Arguments changed from here on."""
    inputs: Mapping[str, Any] | None = None
    """The run's inputs from here on, where a changed definition asks for others."""
    allowance: Mapping[str, float] | None = None
    """In a further attempt of a child, which goes on from the one before: what the parent has left of its
    budgets. What is used is counted from here, for what came before has been counted."""


class WorkflowCompleted(_Event, frozen=True, tag="workflow_complete", gc=False):
    """The run ended by itself: every step has an outcome."""

    status: Literal["succeeded", "failed", "partial"]
    outputs: Mapping[str, Any] = {}
    reason: str = ""
    then: Literal["", "on_complete", "on_failure"] = ""
    """The key that names the workflow which is owed a run after this one."""


class WorkflowAborted(_Event, frozen=True, tag="workflow_abort", gc=False):
    level: ClassVar[Level] = "warn"

    reason: str = ""


Event = (
    WorkflowStarted
    | LayerStarted
    | TaskStarted
    | MapStarted
    | TaskCompleted
    | TaskFailed
    | TaskSkipped
    | StateUpdated
    | Checkpointed
    | DecisionRequired
    | DecisionMade
    | CommandAccepted
    | CommandRefused
    | RouteDecided
    | GateStarted
    | GateChecked
    | GateEscalated
    | DagChanged
    | SpeculationStarted
    | SpeculationUsed
    | SpeculationDiscarded
    | ModelCalled
    | BudgetWarned
    | WorkflowPaused
    | WorkflowResumed
    | WorkflowCompleted
    | WorkflowAborted
)


def wire_name(event: Event) -> str:
    """`task_start` and the like: what people and other programs call this event."""
    name: str = type(event).__struct_config__.tag  # type: ignore[assignment]  # every event sets a string tag
    return name


def to_wire(run: RunId, event: Event) -> dict[str, Any]:
    """The event as other programs see it: plain data, with the run's id, level and a readable time."""
    body = msgspec.to_builtins(event)
    at = datetime.fromtimestamp(event.at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {"type": body.pop("type"), "run_id": run, **body, "at": at, "level": event.level}


encode = msgspec.json.Encoder().encode
"""One event as compact JSON: the journal's form. The run's id is in the row, not in the event."""


def decode(data: bytes) -> Event:
    """The inverse of `encode`."""
    event: Event = _decoder().decode(data)
    return event


@cache
def _decoder() -> msgspec.json.Decoder[Any]:
    """Made when first needed: it has to look at every event there is."""
    return msgspec.json.Decoder(Event)
