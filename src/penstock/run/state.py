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
from penstock.policy.masking import mask
from penstock.run.map_state import MapState
from penstock.run.snapshot import snapshot
from penstock.workflow.graph import Graph
from penstock.workflow.spec import Step

Status = Literal["pending", "running", "waiting", "paused", "succeeded", "failed", "partial", "aborted"]
ENDED: frozenset[str] = frozenset({"succeeded", "failed", "partial", "aborted"})

WAITING, DORMANT, RUNNING, BACKOFF, ASKING, SUCCEEDED, FAILED, SKIPPED = range(8)
"""Where a step stands. From SUCCEEDED on it has ended."""

PHASES = ("waiting", "dormant", "running", "backoff", "asking", "succeeded", "failed", "skipped")

KEPT_MESSAGES = 100
KEPT_TASKS = 200

Reducer = Callable[[Any, Any], Any]

Place = tuple[int, int]
"""A step and its item; -1 where the step is no map."""


def place(i: int, item: int | None) -> Place:
    return (i, -1 if item is None else item)


class Injection(msgspec.Struct, frozen=True):
    """Steps that were added to a run."""

    steps: tuple[Step, ...]
    feeds: Mapping[StepId, Mapping[str, Any]] = {}
    guarded: tuple[StepId, ...] = ()


class Run:
    """One execution of a workflow, folded. Owned and mutated by whoever drives it."""

    __slots__ = (
        "allowance",
        "approved",
        "arrivals",
        "at",
        "attempt_base",
        "attempts",
        "blamed",
        "calls",
        "checking",
        "choosing",
        "commands",
        "context",
        "control",
        "copied",
        "decided",
        "decisions",
        "detoured",
        "due",
        "durations",
        "edits",
        "ended_at",
        "ending",
        "engine",
        "failures",
        "fired",
        "first_failure",
        "forgiven",
        "frames",
        "gate_base",
        "graph",
        "id",
        "injected",
        "inputs",
        "item_base",
        "iteration_base",
        "iterations",
        "keys",
        "layer",
        "left",
        "maps",
        "mask",
        "messages",
        "metered",
        "open",
        "openings",
        "outputs",
        "overrides",
        "parent",
        "passed_over",
        "pauses",
        "pending",
        "phase",
        "points",
        "preparing",
        "previews",
        "previous",
        "prints",
        "queued",
        "raised",
        "rank",
        "ready",
        "reason",
        "reasons",
        "reducers",
        "resting",
        "resting_until",
        "returning",
        "rounds",
        "running",
        "seq",
        "settled",
        "shortfall",
        "started_at",
        "status_",
        "stop_reason",
        "stopping",
        "stopwatch",
        "summariser",
        "swept",
        "tasks",
        "then",
        "timers",
        "tried",
        "unasked",
        "unsettled",
        "usage",
        "wanted",
        "warned",
        "wave",
        "withdrawn",
        "worked",
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
        self.then = ""
        """What is owed a run after this one: `on_complete`, `on_failure` or nothing."""

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
        self.injected: list[Injection] = []
        """Steps that were not in the definition."""
        self.unsettled: dict[int, str] = {}
        """Routers that have ended but not yet taken a forward route, and what they wait for: nothing,
        a `human`, a `detour`, or to go `back` when the rest of the loop's body has ended."""
        self.forgiven: set[int] = set()
        """Routers whose failure was dealt with by a route."""
        self.settled: set[int] = set()
        """Routers that have made their last choice."""
        self.returning: dict[int, int] = {}
        """Routers that go back, and where to."""
        self.iteration_base: dict[int, int] = {}
        """Iterations that were before the current pass of an outer loop."""
        self.previous: dict[int, tuple[str, int, Mapping[str, Any]]] = {}
        """How the last iteration of a step ended: status, event, what decisions read of it."""
        self.prints: dict[int, str] = {}
        """Fingerprints of the last outputs, in loops."""
        self.rounds: dict[int, list[str]] = {}
        """Fingerprints of a loop's last rounds, by router."""
        self.arrivals: dict[int, Mapping[str, Any]] = {}
        """The route by which a step was reached."""
        self.frames: list[tuple[int, int]] = []
        """Detours under way: who waits, and for which step."""
        self.detoured: dict[int, Mapping[str, Any]] = {}
        """A router to the detour it has taken in this iteration."""

        self.tried: dict[Place, list[Mapping[str, Any]]] = {}
        """What a gate said of earlier attempts."""
        self.gate_base: dict[Place, int] = {}
        """Failed attempts before a person allowed more."""
        self.checking: dict[Place, tuple[int, int, int]] = {}
        """Results whose gate is being checked: their event, their attempt, and how often it was tried."""
        self.approved: dict[Place, str] = {}
        """Digests of calls that a person has approved and that have not ended."""
        self.edits: dict[Place, Mapping[str, Any]] = {}
        """Arguments as a person wants them, taken literally."""
        self.resting_until: dict[Place, float] = {}
        """When a task that failed may be tried again."""
        self.previews: dict[int, str] = {}
        """How the latest outputs begin, where someone may be asked."""
        self.fired: set[str] = set()
        """Rules of policy deciders that have had their effect."""
        self.wave: dict[int, int] = {}
        """Under `ail: per_layer`, the steps that may start before the next decision, and in which iteration:
        the next one belongs to another wave."""
        self.copied: set[str] = set()
        """Escalations of child runs that are on record here."""
        self.usage: dict[str, float] = {}
        """What the run, and `STEP/…` each step with a budget, has used."""
        self.worked = 0.0
        """Seconds that were not spent waiting for anyone."""
        self.warned: set[str] = set()
        """Budgets that are nearly spent."""
        self.raised: dict[str, float] = {}
        """Budgets that someone has raised, and to what."""

        self.open = n
        """Steps without an outcome."""
        self.running = 0
        """Tasks in flight: slots taken."""
        self.timers = 0
        """Tasks waiting for their backoff."""
        self.openings = 0
        self.calls = 0
        """Tasks that were started: items and attempts count."""
        self.allowance: Mapping[str, float] = {}
        """What a parent had left of its budgets when it began this run."""
        self.metered = graph.metered
        self.layer = -1
        """The deepest layer that has started."""
        self.failures = 0
        self.first_failure = -1
        self.pauses: set[str] = set()
        """What keeps new tasks from starting: `command`, `storage`."""
        self.stopping = ""
        """`abort` or `timeout`: nothing new starts, what runs is being cancelled."""
        self.stop_reason = ""
        self.ending = ""
        """Why no step is opened any more; what is open may finish."""
        self.shortfall = ""
        """Why the run is `partial` even if nothing failed: a cap, a fuse, a budget."""

        self.swept = ""
        """Scratch: `stopping` or `ending`, once everything that was not running then has been ended."""

        self.commands: dict[CommandId, str] = {}
        """Every command seen, and why it was rejected; empty when it was accepted."""
        self.decisions: dict[DecisionId, Any] = {}
        """Open ones."""
        self.decided: deque[dict[str, Any]] = deque(maxlen=KEPT_TASKS)
        """The most recent answers: who, what, why, when."""
        self.context: dict[str, Any] = {}
        self.keys: dict[str, Any] = {}
        """Declared state keys and their values."""
        retention = graph.workflow.config.retention
        self.messages: deque[dict[str, Any]] = deque(maxlen=retention.get("messages", KEPT_MESSAGES))
        self.tasks: deque[int] = deque(maxlen=retention.get("tasks", KEPT_TASKS))
        """The events that ended the most recent tasks."""

        self.choosing: list[int] = []
        """Scratch: routers that may have to choose."""
        self.left: list[int] = []
        """Scratch: routers that settled, whose other targets may have to be skipped."""
        self.points: list[int] = []
        """Scratch: steps that ended at a decision point."""
        self.withdrawn: list[Any] = []
        """Scratch: questions about what is over or begins again, until that is on record."""
        self.wanted: list[Any] = []
        """Scratch: effects that ask an engine something and follow from no event."""
        self.resting: set[Place] = set()
        """Scratch: tasks whose child runs wait for a person."""
        self.unasked: set[Place] = set()
        """Scratch: calls that turned out to need no approval."""
        self.preparing: set[Place] = set()
        """Scratch: calls that are being made ready to be shown."""
        self.summariser: Callable[..., str] | None = None
        """Words a question for whoever is asked; None for our own words."""
        self.mask: Callable[[str], str] = mask
        """Takes out of summaries what nobody should read there."""
        self.stopwatch: Callable[[], int] | None = None
        """Nanoseconds, for the record only: what an expression cost."""
        self.due: list[int] = [i for i in range(n) if not self.pending[i]]
        self.ready: list[int] = []
        """A heap of ranks."""
        self.queued = bytearray(n)
        self.rank: tuple[list[int], list[int]] | None = None
        for i in graph.dormant:
            self.phase[i] = DORMANT

    @property
    def status(self) -> Status:
        """`waiting` only if a decision is open, and nothing runs or could start, by a timer either."""
        if self.status_ != "running":
            return self.status_
        if self.pauses:
            return "paused"
        if not (self.decisions or self.resting):
            return "running"
        if self.running > len(self.resting) or self.preparing:
            return "running"
        if self.holding or not (self.timers or self.due or self._could_start()):
            return "waiting"
        return "running"

    def _could_start(self) -> bool:
        if not self.wave:
            return bool(self.ready)
        return bool(self.ready) and any(self.queued[i] for i in self.wave)  # the others wait for its end

    @property
    def paused(self) -> bool:
        return bool(self.pauses)

    @property
    def holding(self) -> bool:
        """A decision is open that nothing new may start before."""
        return bool(self.decisions) and any(asked.holds for asked in self.decisions.values())

    @property
    def halted(self) -> str:
        """Why nothing starts any more, not even what is under way: a stop, or a budget that is not raised."""
        if self.stopping:
            return self.stop_reason
        return self.ending if self.ending == self.shortfall else ""

    def iteration(self, i: int) -> int:
        """Of the innermost loop around a step, counted from 1."""
        return self.iterations.get(i, 1) - self.iteration_base.get(i, 0)

    @property
    def complete(self) -> bool:
        """Every step has an outcome, and nobody has a say in it any more."""
        if self.open:
            return False
        return bool(self.stopping or self.ending) or not (self.unsettled or self.decisions)

    @property
    def ended(self) -> bool:
        return self.status_ in ENDED

    def step_status(self, i: int) -> str:
        phase = self.phase[i]
        if phase == WAITING and self.queued[i]:
            return "ready"
        return PHASES[phase]

    def step_stands(self, i: int) -> str:
        """The status of a step as part of a sentence."""
        if self.phase[i] == SKIPPED:
            return "was skipped"
        return f"{'has' if self.phase[i] in (SUCCEEDED, FAILED) else 'is'} {self.step_status(i)}"

    def snapshot(self) -> dict[str, Any]:
        """Everything the events determine, as plain data. Equal runs have equal snapshots."""
        return snapshot(self)

    def encoded(self) -> bytes:
        """The snapshot as bytes: two folds of the same events are equal to the last bit."""
        return msgspec.json.encode(self.snapshot(), order="sorted")
