"""Whether a run stayed inside its graph: routes, loops and caps, checked against events alone.

Reads a definition and a history and shares no code with the core or the compiler: which way
leads back and what a loop re-opens is worked out here once more, by the words of the design.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

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
from penstock.workflow.spec import Routing, Step, Workflow

FUSE = 10


class _Map:
    """A definition as a graph of names."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = {str(step.id): step for step in steps}
        self.before: dict[str, set[str]] = {
            id: {str(need) for need in step.needs} for id, step in self.steps.items()
        }
        for id, step in self.steps.items():
            text = repr((step.with_, step.when, step.for_each))
            self.before[id] |= {other for other in self.steps if f"steps.{other}." in text}
        self.needs = {id: set(needs) for id, needs in self.before.items()}
        self.forward: dict[str, set[str]] = defaultdict(set)
        """A target to its routers."""
        self.bodies: dict[tuple[str, str], set[str]] = {}
        back: list[tuple[str, str]] = []
        for id, step in self.steps.items():
            for target in targets(step.routing) if step.routing else ():
                if target == id or target in self.ancestors(id):
                    back.append((id, target))
                else:
                    self.before[target].add(id)
                    self.forward[target].add(id)
        for router, target in back:
            inside = {n for n in self.ancestors(router) if target in self.ancestors(n)} | {router, target}
            self.bodies[router, target] = self._with_detours(inside)

    def ancestors(self, id: str) -> set[str]:
        found: set[str] = set()
        todo = [id]
        while todo:
            new = self.before[todo.pop()] - found
            found |= new
            todo += new
        return found

    def _with_detours(self, inside: set[str]) -> set[str]:
        found, todo = set(inside), list(inside)
        while todo:
            ways = self.steps[todo.pop()].routing
            if ways and ways.detour and ways.detour not in found:
                found.add(ways.detour)
                todo.append(ways.detour)
        return found


def targets(ways: Routing) -> list[str]:
    """The steps that a routing names, in the order in which it names them."""
    tie = ways.tie_breaker
    named = [
        *(condition.target for condition in ways.conditions),
        *ways.branches.values(),
        *(tie.valid_targets if tie and tie.enabled else ()),
        *(one for one in (ways.loop_target, ways.next, ways.detour) if one),
    ]
    return [str(name) for name in dict.fromkeys(named) if name not in ("end", "human")]


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
        self.map = _Map(self.steps)
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
                self.map = _Map(self.steps)
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
