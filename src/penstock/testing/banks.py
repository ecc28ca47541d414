"""Whether a run stayed inside its graph: routes, loops and caps, checked against events alone.

Reads a definition and a history and shares no code with the core or the compiler.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from penstock.run.events import (
    DagChanged,
    Event,
    RouteDecided,
    TaskCompleted,
    TaskFailed,
    TaskSkipped,
    TaskStarted,
    WorkflowAborted,
    WorkflowCompleted,
)
from penstock.testing.ways import Ways, targets
from penstock.workflow.spec import Workflow

FUSE = 10


def strays(workflow: Workflow, events: Iterable[Event]) -> list[str]:
    """Every way in which this history left its graph; empty for one that stayed inside."""
    history = _History(workflow)
    for event in events:
        history.take(event)
    return history.wrong


class _History:
    def __init__(self, workflow: Workflow) -> None:
        self.wrong: list[str] = []
        self.steps = list(workflow.steps)
        self.map = Ways(self.steps)
        self.routes: Counter[str] = Counter()
        """How often a step was routed to."""
        self.sources: dict[str, set[str]] = defaultdict(set)
        """From where a step was routed to. A choice made outside a loop holds for all its rounds."""
        self.turns: list[tuple[str, str]] = []
        """Back edges that were taken."""
        self.opened: dict[str, list[int]] = defaultdict(list)
        """The iterations in which a step was started."""
        self.ends: Counter[tuple[str, int]] = Counter()
        self.last: dict[str, tuple[str, int]] = {}
        """How a step ended last, and at which event."""
        self.started_at: dict[str, int] = {}
        self.settled: set[tuple[str, int]] = set()

    def take(self, event: Event) -> None:
        match event:
            case DagChanged():
                self.steps += event.added
                self.map = Ways(self.steps)
            case RouteDecided():
                self._route(event)
            case TaskStarted(item=None):
                self._start(event)
            case TaskCompleted(item=None):
                self._end(event, "succeeded")
            case TaskFailed(item=None, retry_in=None):
                self._end(event, "failed")
            case TaskSkipped():
                self._end(event, "skipped")
            case WorkflowCompleted() | WorkflowAborted():
                self._over()
            case _:
                pass

    def _say(self, event: Event, text: str) -> None:
        self.wrong.append(f"{event.seq} {getattr(event, 'step', '')}: {text}")

    def _route(self, event: RouteDecided) -> None:
        step, target = str(event.step), event.target
        ways = self.map.steps[step].routing
        if ways is None:
            self._say(event, "routes without a routing")
            return
        if target is not None and target not in ("end", "human") and target not in targets(ways):
            self._say(event, f"goes to {target}, which it does not name")
        if self.last.get(step, ("", 0))[0] not in ("succeeded", "failed"):
            self._say(event, "routes before it has ended")
        if (step, event.iteration) in self.settled:
            self._say(event, "routes after its last choice")
        if target not in ("human", ways.detour):
            self.settled.add((step, event.iteration))
        if target in self.map.steps:
            self.routes[str(target)] += 1
            self.sources[str(target)].add(step)
        if (step, str(target)) in self.map.bodies:
            self.turns.append((step, str(target)))
            self._check_cap(event, step, ways.max_iterations or 1)

    def _check_cap(self, event: RouteDecided, router: str, most: int) -> None:
        passes = 1
        outer = {r for (r, _), body in self.map.bodies.items() if router in body and r != router}
        for other in outer:
            passes *= self.map.steps[other].routing.max_iterations or 1  # type: ignore[union-attr]
        if sum(r == router for r, _ in self.turns) > (most - 1) * passes:
            self._say(event, f"goes back more often than max_iterations: {most} allows")

    def _start(self, event: TaskStarted) -> None:
        step = str(event.step)
        if step not in self.map.steps:
            self._say(event, "no such step")
            return
        if event.attempt > 1 and event.iteration in self.opened[step]:
            return
        around = [edge for edge in self.turns if step in self.map.bodies[edge]]
        if event.iteration - 1 > len(around):
            self._say(event, f"iteration {event.iteration} after {len(around)} turns")
        if event.iteration in self.opened[step]:
            self._say(event, f"iteration {event.iteration} is opened twice")
        self.opened[step].append(event.iteration)
        self.started_at[step] = event.seq
        if self.map.forward.get(step):
            kept = [edge for edge in around if not self.sources[step] <= self.map.bodies[edge]]
            if not self.routes[step] or len(self.opened[step]) > self.routes[step] + len(kept):
                self._say(event, "starts without having been routed to")
        opened = sum(map(len, self.opened.values()))
        if opened > FUSE * len(self.steps) + len(self.steps):
            self._say(event, "more openings than the fuse allows")
        self._check_needs(event, step)

    def _check_needs(self, event: TaskStarted, step: str) -> None:
        if self.map.steps[step].join != "all_success":
            return
        for need in self.map.needs[step]:
            how = self.last.get(need, ("nothing", 0))[0]
            passes = self.map.steps[need].on_error == "continue" or need in self.map.forward.get(step, set())
            if how != "succeeded" and not (how == "failed" and passes):
                self._say(event, f"starts although {need} has {how}")

    def _end(self, event: TaskCompleted | TaskFailed | TaskSkipped, how: str) -> None:
        step = str(event.step)
        self.ends[step, event.iteration] += 1
        if self.ends[step, event.iteration] > 1:
            self._say(event, f"iteration {event.iteration} ends twice")
        self.last[step] = (how, event.seq)

    def _over(self) -> None:
        for step in self.map.steps:
            if step not in self.last:
                self.wrong.append(f"{step} never ended")
            for iteration in self.opened[step]:
                if self.ends[step, iteration] != 1:
                    self.wrong.append(f"{step}, iteration {iteration}, was opened and never ended")
            if self.map.steps[step].join != "all_success" or step not in self.started_at:
                continue
            for need in self.map.needs[step]:
                if self.last[need][1] > self.started_at[step] and self.last[step][0] != "skipped":
                    self.wrong.append(f"{step} took what {need} gave before its last iteration")
