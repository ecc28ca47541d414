"""The run: what its events add up to.

Parallel lists by step index, so that an event touches only the step it names and that
step's dependents. `evolve` is the only writer of what `snapshot` shows; `due` and `ready`
are the scheduler's scratch paper and can be made again from the rest at any time.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from penstock.ids import CommandId, DecisionId, RunId, StepId
from penstock.workflow.expr import MISSING, Path
from penstock.workflow.graph import Graph
from penstock.workflow.spec import Step

Status = Literal["pending", "running", "waiting", "paused", "succeeded", "failed", "partial", "aborted"]
ENDED: frozenset[str] = frozenset({"succeeded", "failed", "partial", "aborted"})

WAITING, DORMANT, RUNNING, BACKOFF, ASKING, SUCCEEDED, FAILED, SKIPPED = range(8)
"""Where a step stands. From SUCCEEDED on it has ended."""

PHASES = ("waiting", "dormant", "running", "backoff", "asking", "succeeded", "failed", "skipped")

KEPT_MESSAGES = 100
KEPT_TASKS = 200

_BY_STEP = ("reasons", "attempts", "attempt_base", "item_base", "iterations", "control", "overrides")
"""Sparse fields of a run: step index to value."""

_DIGITS = bytes.maketrans(bytes(range(8)), b"01234567")
"""Phases as text, a digit a step: a snapshot of many steps stays small."""

SCALARS = (
    "id", "seq", "at", "started_at", "parent", "engine", "inputs", "durations", "status_", "reason",
    "outputs", "open", "running", "timers", "openings", "layer", "failures", "first_failure",
    "stopping", "stop_reason", "context", "keys",
)  # fmt: skip
"""Fields of a run that a snapshot holds as they are."""

Reducer = Callable[[Any, Any], Any]


class MapState:
    """A `for_each` step that is open: which items are where."""

    __slots__ = (
        "asking", "backoff", "base", "count", "done", "errors", "failed", "fired", "highest", "next",
        "outputs", "running", "seq",
    )  # fmt: skip

    def __init__(self, base: int = 0) -> None:
        self.base = self.highest = base
        """Attempts that items had before a `retry_step`, and the highest there is now: ids stay unique."""
        self.count = -1
        """-1 until the list has been evaluated."""
        self.next = 0
        """The first item that has not been started."""
        self.running: dict[int, int] = {}
        """Item to attempt."""
        self.backoff: dict[int, int] = {}
        """Item to the attempt that failed."""
        self.asking: dict[int, int] = {}
        """Item to attempt, for items that wait for a decision."""
        self.seq = 0
        """The event that holds the list of items."""
        self.done = 0
        self.errors: dict[int, str] = {}
        """Items that failed for good."""
        self.failed: int | None = None
        """The first of them, when one failure fails the step."""
        self.outputs: list[Any] | None = None
        """Only kept when a control expression or `set` reads the step's output."""
        self.fired: list[int] = []
        """Scratch: items whose backoff has elapsed."""

    def snapshot(self) -> dict[str, Any]:
        whole = {name: getattr(self, name) for name in self.__slots__ if name != "fired"}
        for name in ("asking", "running", "backoff", "errors"):
            whole[name] = {str(item): value for item, value in sorted(whole[name].items())}
        return whole


class Run:
    """One execution of a workflow, folded. Owned and mutated by whoever drives it."""

    __slots__ = (
        "at",
        "attempt_base",
        "attempts",
        "blamed",
        "commands",
        "context",
        "control",
        "decisions",
        "due",
        "durations",
        "ended_at",
        "engine",
        "failures",
        "first_failure",
        "graph",
        "id",
        "injected",
        "inputs",
        "item_base",
        "iterations",
        "keys",
        "layer",
        "maps",
        "messages",
        "open",
        "openings",
        "outputs",
        "overrides",
        "parent",
        "passed_over",
        "pauses",
        "pending",
        "phase",
        "queued",
        "rank",
        "ready",
        "reason",
        "reasons",
        "reducers",
        "running",
        "seq",
        "started_at",
        "status_",
        "stop_reason",
        "stopping",
        "swept",
        "tasks",
        "timers",
        "unsettled",
    )  # fmt: skip

    def __init__(  # noqa: PLR0915 - a field a line, each with its meaning
        self, id: RunId, graph: Graph, *, reducers: Mapping[str, Reducer] | None = None
    ) -> None:
        n = len(graph.ids)
        self.id = id
        self.graph = graph
        self.reducers = dict(reducers or {})
        """Python functions for declared keys; the built-in ones are named in the definition."""
        self.seq = 0
        self.at = 0.0
        self.started_at = 0.0
        self.parent: RunId | None = None
        self.engine = ""
        self.inputs: Mapping[str, Any] = {}
        self.durations: Mapping[StepId, float] = {}
        self.status_: Status = "pending"
        """The status as far as events said it; `status` refines it."""
        self.reason = ""
        self.outputs: Mapping[str, Any] = {}

        self.phase = bytearray(n)
        self.pending = [len(needs) for needs in graph.needs]
        """Needs that have not ended yet."""
        self.ended_at = array("q", bytes(8 * n))
        """The number of the event that ended the step: where its output is found."""
        self.blamed: dict[int, int] = {}
        """A step to the first of its needs that failed."""
        self.passed_over: dict[int, int] = {}
        """A step to the first of its needs that was skipped."""
        self.reasons: dict[int, tuple[str, str]] = {}
        """Kind and text, for steps that were skipped or failed."""
        self.attempts: dict[int, int] = {}
        """The current attempt, where it is not the first."""
        self.attempt_base: dict[int, int] = {}
        """Attempts spent before a `retry_step`: they do not count against the cap again."""
        self.item_base: dict[int, int] = {}
        """The same for the items of a map."""
        self.iterations: dict[int, int] = {}
        """Absent means the first."""
        self.control: dict[int, Mapping[str, Any]] = {}
        self.overrides: dict[int, dict[str, Any]] = {}
        self.maps: dict[int, MapState] = {}
        self.injected: list[Step] = []
        """Steps that were not in the definition."""
        self.unsettled: set[int] = set()
        """Routers that have ended but not yet taken a forward route."""

        self.open = n
        """Steps without an outcome."""
        self.running = 0
        """Tasks in flight: slots taken."""
        self.timers = 0
        """Tasks waiting for their backoff."""
        self.openings = 0
        self.layer = -1
        """The deepest layer that has started."""
        self.failures = 0
        self.first_failure = -1
        self.pauses: set[str] = set()
        """What keeps new tasks from starting: `command`, `storage`."""
        self.stopping = ""
        """`abort` or `timeout`: nothing new starts, what runs is being cancelled."""
        self.stop_reason = ""

        self.swept = False
        """Scratch: everything that was not running when the stop began has been ended."""

        self.commands: dict[CommandId, str] = {}
        """Every command seen, and why it was rejected; empty when it was accepted."""
        self.decisions: dict[DecisionId, Any] = {}
        """Open ones."""
        self.context: dict[str, Any] = {}
        self.keys: dict[str, Any] = {}
        """Declared state keys and their values."""
        retention = graph.workflow.config.retention
        self.messages: deque[dict[str, Any]] = deque(maxlen=retention.get("messages", KEPT_MESSAGES))
        self.tasks: deque[int] = deque(maxlen=retention.get("tasks", KEPT_TASKS))
        """The events that ended the most recent tasks."""

        self.due: list[int] = [i for i in range(n) if not self.pending[i]]
        self.ready: list[int] = []
        """A heap of ranks."""
        self.queued = bytearray(n)
        self.rank: tuple[list[int], list[int]] | None = None
        for i in graph.dormant:
            self.phase[i] = DORMANT

    @property
    def status(self) -> Status:
        """`waiting` only if nothing runs, could start or is on a timer, and a decision is open."""
        if self.status_ != "running":
            return self.status_
        if self.paused:
            return "paused"
        if self.decisions and not (self.running or self.timers or self.ready or self.due):
            return "waiting"
        return "running"

    @property
    def paused(self) -> bool:
        return bool(self.pauses)

    @property
    def ended(self) -> bool:
        return self.status_ in ENDED

    def step_status(self, i: int) -> str:
        phase = self.phase[i]
        if phase == WAITING and self.queued[i]:
            return "ready"
        return PHASES[phase]

    def look_up(self, path: Path, i: int = -1) -> Any:
        """What a control expression of step `i` finds at a path; `MISSING` when there is nothing."""
        root = path[0]
        if root == "inputs":
            return dig(self.inputs, path[1:])
        if root == "steps":
            return self._look_up_step(path)
        if root == "context":
            return dig(self.context | self.keys, path[1:])
        if root == "run":
            return dig({"id": self.id, "workflow": self.graph.workflow.name}, path[1:])
        if root == "iteration":
            return self.iterations.get(i, 1)
        if root == "attempts":
            return []
        if root in ("previous", "route", "detour"):
            return None  # there is no earlier iteration, no route and no detour yet
        return MISSING

    def _look_up_step(self, path: Path) -> Any:
        i = self.graph.index.get(StepId(path[1]), -1)
        if i < 0 or len(path) < 3:
            return MISSING
        if path[2] == "status":
            return self.step_status(i)
        if path[2] == "error":
            return self.reasons[i][1] if self.phase[i] == FAILED else None
        if self.phase[i] != SUCCEEDED:
            return None  # skipped, failed with `on_error: continue`, or not needed to have ended
        return self.control.get(i, {}).get(control_key(path[3:]), MISSING)

    def snapshot(self) -> dict[str, Any]:
        """Everything the events determine, as plain data. Equal runs have equal snapshots."""
        ids = self.graph.ids
        named = {
            name: {ids[i]: value for i, value in sorted(getattr(self, name).items())} for name in _BY_STEP
        }
        return {
            **{name.rstrip("_"): getattr(self, name) for name in SCALARS},
            **named,
            "workflow": self.graph.workflow.name,
            "phases": self.phase.translate(_DIGITS).decode(),
            "pending": self.pending,
            "ended_at": self.ended_at.tolist(),
            "blamed": {ids[i]: ids[j] for i, j in sorted(self.blamed.items())},
            "passed_over": {ids[i]: ids[j] for i, j in sorted(self.passed_over.items())},
            "maps": {ids[i]: state.snapshot() for i, state in sorted(self.maps.items())},
            "unsettled": sorted(self.unsettled),
            "pauses": sorted(self.pauses),
            "injected": self.injected,
            "commands": self.commands,
            "decisions": self.decisions,
            "messages": list(self.messages),
            "tasks": list(self.tasks),
        }

    def encoded(self) -> bytes:
        """The snapshot as bytes: two folds of the same events are equal to the last bit."""
        return msgspec.json.encode(self.snapshot(), order="sorted")


def control_key(path: Path) -> str:
    """A path below an output as the key it is kept under: dotted, and unambiguous all the same."""
    return ".".join(part.replace("\\", "\\\\").replace(".", "\\.") for part in path)


def dig(value: Any, path: Path) -> Any:
    """Follow a path into JSON. Below null everything is null; a missing key is `MISSING`."""
    for key in path:
        if value is None:
            return None
        if not isinstance(value, Mapping) or key not in value:
            return MISSING
        value = value[key]
    return value
