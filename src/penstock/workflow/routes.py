"""Routing, compiled: the legal targets of each routed step and the loops they make.

Names become numbers here and edges become forward or back. Which target a run takes, and
what it does when a cap is reached, is decided elsewhere from what a `Router` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from penstock.ids import StepId
from penstock.workflow import spec
from penstock.workflow.expr import MISSING, Expression
from penstock.workflow.findings import Findings, Place
from penstock.workflow.loops import FUSE, Flow, Loop, crossing, loops_of, worst_openings
from penstock.workflow.order import Edges
from penstock.workflow.sites import ROUTING, Sites
from penstock.workflow.spec import Routing, Step

END: Final = -1
HUMAN: Final = -2
"""Route targets that are not steps."""

_RESERVED: Final[Mapping[str, int]] = {spec.END: END, spec.HUMAN: HUMAN}
_KINDS: Final = {"conditional": "conditions", "branch": "branches"}
"""What a kind of routing must have."""


@dataclass(frozen=True, slots=True)
class Router:
    """Where a step may go next. Targets are step indices, `END` or `HUMAN`."""

    on: Expression | None = None
    """What `branches` look at; None when there are no branches."""
    conditions: tuple[tuple[Expression, int], ...] = ()
    branches: Mapping[str, int] = field(default_factory=dict)
    tie_targets: tuple[int, ...] = ()
    """What an enabled tie-breaker may answer."""
    loop_target: int | None = None
    next: int | None = None
    detour: int | None = None
    max_iterations: int = 1
    """How often the router may run in all; 1 when it has no back edge."""
    forward: tuple[int, ...] = ()
    """Steps, ascending, that start only when routed to (the detour among them)."""
    back: tuple[int, ...] = ()
    """Steps, ascending, that run before the router, or the router itself."""
    bodies: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Back target to the steps that re-open, ascending."""


@dataclass(slots=True)
class _Draft:
    """A router before it is known which of its targets lie before it."""

    routing: Routing
    on: Expression | None = None
    conditions: list[tuple[Expression, int]] = field(default_factory=list)
    branches: dict[str, int] = field(default_factory=dict)
    tie_targets: list[int] = field(default_factory=list)
    loop_target: int | None = None
    next: int | None = None
    detour: int | None = None

    def targets(self) -> Iterable[int]:
        """The steps it names."""
        single = (self.loop_target, self.next, self.detour)
        named = (*(target for _, target in self.conditions), *self.branches.values(), *self.tie_targets)
        return (target for target in (*named, *single) if target is not None and target >= 0)


class Routes:
    """The routing of some steps: taken in one by one, then joined with their needs."""

    def __init__(
        self, ids: Sequence[StepId], index: Mapping[StepId, int], first: int, sites: Sites, findings: Findings
    ) -> None:
        self._ids = ids
        self._index = index
        self._first = first
        self._sites = sites
        self._findings = findings
        self._drafts: dict[int, _Draft] = {}
        self._broken: set[str | int] = set()
        self.forward: dict[int, tuple[int, ...]] = {}
        """Router to the steps it may lead on to. This and what follows is known after `join`."""
        self.routed: dict[int, tuple[int, ...]] = {}
        """A step to the routers that may lead to it."""
        self.order: Sequence[int] = ()
        """The steps by needs and forward routes, counted from 0; empty when there are no routes."""
        self.loops: list[Loop] = []
        self.routers: dict[int, Router] = {}

    def enter(self, i: int, step: Step) -> None:
        """Compile the routing of a step, right after its other expressions."""
        routing = step.routing
        if routing is None:
            return
        place: Place = ("steps", i, "routing")
        draft = self._drafts[i] = _Draft(routing)
        self._conditions(draft, place)
        if routing.branches:
            source = routing.on or "output.status"
            draft.on = self._sites.decision(source, ROUTING, (*place, "on"), "any", own=True)
        for key, name in routing.branches.items():
            target = self._target(name, (*place, "branches", key))
            if target is not None:
                draft.branches[key] = target
        tie = routing.tie_breaker
        for n, name in enumerate(tie.valid_targets if tie else ()):
            target = self._target(name, (*place, "tie_breaker", "valid_targets", n))
            if target is not None and tie is not None and tie.enabled:
                draft.tie_targets.append(target)
        draft.loop_target = self._step_target(routing.loop_target, (*place, "loop_target"))
        draft.next = self._target(routing.next, (*place, "next"))
        if tie and tie.enabled and not tie.valid_targets:
            draft.tie_targets = list(dict.fromkeys(draft.targets()))
        draft.detour = self._step_target(routing.detour, (*place, "detour"))
        if draft.detour is not None and routing.detour is not None:
            read = [expression for expression, _ in draft.conditions]
            for expression in (*read, *([draft.on] if draft.on else [])):
                self._sites.keep_detour(expression.reads, routing.detour)
        self._check_parts(routing, place)

    def join(self, needs: Edges, dependents: Edges) -> None:
        """Tell forward from back and find the loops. Edges number the steps from 0."""
        if not self._drafts:
            return
        first = self._first
        flow = Flow(needs, dependents)
        flow.add_routes((i - first, t - first) for i, draft in self._drafts.items() for t in draft.targets())
        loops = loops_of(flow)
        if flow.tangled:
            self._findings.add(
                ("steps",), "the routes are too tangled to follow", "name steps in running order"
            )
            return
        self.forward = {
            i + first: tuple(sorted(t + first for t in targets)) for i, targets in flow.forward.items()
        }
        self.routed = {
            t + first: tuple(sorted(i + first for i in routers)) for t, routers in flow.routed.items()
        }
        self.order = sorted(range(len(needs)), key=flow.position.__getitem__)
        self.loops = [
            Loop(
                loop.router + first,
                loop.target + first,
                tuple(i + first for i in loop.body) if first else loop.body,
            )
            for loop in loops
        ]
        bodies: dict[int, dict[int, tuple[int, ...]]] = {}
        for loop in self.loops:
            bodies.setdefault(loop.router, {})[loop.target] = loop.body
        for i, draft in self._drafts.items():
            self.routers[i] = self._router(i, draft, bodies.get(i, {}))
        self._check_crossings()

    def _router(self, i: int, draft: _Draft, bodies: dict[int, tuple[int, ...]]) -> Router:
        place: Place = ("steps", i, "routing")
        self._check_loop(draft, bodies, place)
        return Router(
            on=draft.on,
            conditions=tuple(draft.conditions),
            branches=draft.branches,
            tie_targets=tuple(draft.tie_targets),
            loop_target=draft.loop_target,
            next=draft.next,
            detour=draft.detour,
            max_iterations=draft.routing.max_iterations or 1,
            forward=self.forward.get(i, ()),
            back=tuple(bodies),
            bodies=bodies,
        )

    def _conditions(self, draft: _Draft, place: Place) -> None:
        """Compile the conditions and refuse those that can never be reached."""
        seen: dict[str, int] = {}
        always = -1
        for n, condition in enumerate(draft.routing.conditions):
            spot = (*place, "conditions", n)
            found = self._sites.decision(condition.expr, ROUTING, (*spot, "expr"), "bool", own=True)
            target = self._target(condition.target, (*spot, "target"))
            earlier = always if always >= 0 else seen.setdefault(condition.expr.strip(), n)
            if earlier < n:
                why = "is always true" if always >= 0 else "asks the same"
                self._findings.add(
                    spot, f"can never be reached: condition {earlier + 1} {why}", "remove one of them"
                )
            if found is None or target is None:
                continue
            draft.conditions.append((found, target))
            if not found.reads and always < 0:
                if found.evaluate(lambda _path: MISSING) is True:
                    always = n
                else:
                    self._findings.add(spot, "can never be true", "remove it")
        if always >= 0 and (draft.routing.branches or draft.routing.next or draft.routing.loop_target):
            hint = "remove it, or what comes after it"
            spot = (*place, "conditions", always)
            self._findings.add(
                spot, "is always true, so that branches, loop_target and next are never used", hint
            )

    def _target(self, name: str | None, place: Place) -> int | None:
        if name is None:
            return None
        if name in _RESERVED:
            return _RESERVED[name]
        target = self._index.get(StepId(name))
        if target is None:
            hint = self._findings.near(name, chain(self._index, _RESERVED))
            self._refuse(place, f"no step is called {name!r}", hint)
        elif target < self._first:
            self._refuse(place, f"{name!r} is part of the run already", "route to steps added with this one")
            return None
        return target

    def _step_target(self, name: str | None, place: Place) -> int | None:
        if name in _RESERVED:
            self._refuse(place, f"must be a step, not {name!r}")
            return None
        return self._target(name, place)

    def _refuse(self, place: Place, message: str, hint: str = "") -> None:
        """Refuse a target, and say no more of its router: what is missing there may be this target."""
        self._broken.add(place[1])
        self._findings.add(place, message, hint)

    def _check_parts(self, routing: Routing, place: Place) -> None:
        """What can be said of a routing without looking at the rest of the graph."""
        tie = routing.tie_breaker
        add = self._findings.add
        parts = (routing.conditions, routing.branches, routing.loop_target, routing.next)
        if not any(parts) and not (tie and tie.enabled and tie.valid_targets):
            add(place, "names no target", "add `next: STEP`, or remove `routing`")
        if routing.on and not routing.branches:
            add(
                (*place, "on"),
                "is read by branches only, and there are none",
                "add branches, or use conditions",
            )
        part = _KINDS.get(routing.kind)
        if part and not getattr(routing, part):
            add((*place, "kind"), f"kind: {routing.kind} has no {part}")
        if tie and tie.enabled and routing.next is None:
            add((*place, "tie_breaker"), "has no way out without an answer", "add `next: STEP` beside it")

    def _check_loop(self, draft: _Draft, bodies: Mapping[int, tuple[int, ...]], place: Place) -> None:
        if place[1] in self._broken:
            return
        routing = draft.routing
        add = self._findings.add
        if draft.loop_target is not None and draft.loop_target not in bodies:
            message = f"{routing.loop_target!r} does not run before this step"
            add(
                (*place, "loop_target"),
                message,
                "a loop goes back to a step that this one depends on, or to itself",
            )
        if draft.detour is not None and draft.detour in bodies:
            add(
                (*place, "detour"), f"{routing.detour!r} runs before this step", "detour to a step of its own"
            )
        if bodies and routing.max_iterations is None:
            where = "to itself" if len(bodies) == 1 and place[1] in bodies else "back"
            add(place, f"leads {where} without a limit", "add max_iterations: 3 (how often it runs in all)")
        elif not bodies and routing.max_iterations is not None and draft.loop_target is None:
            add((*place, "max_iterations"), "limits nothing: no target runs before this step", "remove it")
        elif not bodies and routing.kind == "loop" and draft.loop_target is None:
            add((*place, "kind"), "kind: loop leads back to no step", "add loop_target")

    def _check_crossings(self) -> None:
        for outer, inner in crossing(self.loops):
            shared = self._ids[min(set(outer.body) & set(inner.body))]
            ways = [f"{self._ids[loop.router]} -> {self._ids[loop.target]}" for loop in (outer, inner)]
            self._findings.add(
                ("steps", inner.router, "routing"),
                f"the loops {ways[0]} and {ways[1]} overlap in {shared!r}, and neither holds the other",
                "loops must lie within each other or apart",
            )

    def check_join(self, i: int, join: str, needs: Sequence[int]) -> None:
        """Refuse a step that waits for two alternatives of one router: it could never run."""
        if not self.forward or join != "all_success":
            return
        chosen: dict[int, int] = {}
        for step in (*needs, i):
            routers = self.routed.get(step, ())
            if len(routers) != 1 or self.routers[routers[0]].detour == step:
                continue
            other = chosen.setdefault(routers[0], step)
            if other != step:
                names = (
                    f"{self._ids[other]!r} and {self._ids[step]!r}" if step != i else repr(self._ids[other])
                )
                rest = "only one of which runs" if step != i else "which does not run when this step does"
                message = f"never runs: it needs {names}, {rest} ({self._ids[routers[0]]!r} routes to one)"
                self._findings.add(
                    ("steps", i, "join"), message, "add `join: none_failed` or `join: any_success`"
                )
                return

    def check_fuse(self, earlier: Mapping[int, Router], count: int) -> None:
        """Caps multiply where loops are nested; a run would stop at the fuse before reaching them."""
        if not self.loops:
            return
        caps = {i: router.max_iterations for i, router in (*earlier.items(), *self.routers.items())}
        worst = worst_openings(count, (*loops_in(earlier), *self.loops), caps)
        if worst > FUSE * count:
            loop = max(self.loops, key=lambda loop: len(loop.body) * caps[loop.router])
            message = f"the loops could open steps {worst:,} times; {count:,} steps allow {FUSE * count:,}"
            self._findings.add(
                ("steps", loop.router, "routing", "max_iterations"), message, "lower max_iterations"
            )


def loops_in(routers: Mapping[int, Router]) -> list[Loop]:
    return [Loop(i, target, body) for i, router in routers.items() for target, body in router.bodies.items()]
