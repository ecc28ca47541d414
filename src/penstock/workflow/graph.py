"""The compiled workflow: steps as numbers, so that the core can count instead of search.

A `Graph` is made once from a definition and treated as immutable. Lists run parallel to
`Workflow.steps`; whatever most steps do not have is in a sparse dict, where a plain step
costs nothing. Nothing here knows how a run goes: which step is ready is the core's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from penstock.errors import DefinitionError, Problem
from penstock.ids import StepId
from penstock.workflow.detours import deadlocks, reopened_by
from penstock.workflow.expr import Expression, Path
from penstock.workflow.findings import Findings, Place, did_you_mean
from penstock.workflow.interpolate import Template
from penstock.workflow.loops import barriers_of
from penstock.workflow.order import circles, inverse, shown_path, topological
from penstock.workflow.routes import END, HUMAN, Router, Routes
from penstock.workflow.shape import check_rest, check_step
from penstock.workflow.sites import SHARED_GATE, CompiledCheck, Sites
from penstock.workflow.spec import Ail, Step, Workflow
from penstock.workflow.values import check_step_values, check_workflow_values

__all__ = [
    "ALL_DONE",
    "ALL_SUCCESS",
    "ANY_SUCCESS",
    "END",
    "HUMAN",
    "JOINS",
    "NONE_FAILED",
    "CompiledCheck",
    "Graph",
    "Router",
    "assemble",
    "bottom_levels",
    "compile_graph",
    "extend",
]

ALL_SUCCESS: Final = 0
NONE_FAILED: Final = 1
ANY_SUCCESS: Final = 2
ALL_DONE: Final = 3
JOINS: Final[Mapping[str, int]] = {
    "all_success": ALL_SUCCESS,
    "none_failed": NONE_FAILED,
    "any_success": ANY_SUCCESS,
    "all_done": ALL_DONE,
}


@dataclass(slots=True, eq=False)
class Graph:
    """A definition, ready to run."""

    workflow: Workflow
    ids: list[StepId]
    index: dict[StepId, int]
    needs: list[tuple[int, ...]]
    """Written ones and those that `steps.NAME` implies; ascending."""
    dependents: list[tuple[int, ...]]
    """The inverse of `needs`; ascending."""
    layers: list[int]
    """Depth over needs and forward routes; 0 for a step that waits for nothing."""
    joins: bytearray
    args: dict[int, Template] = field(default_factory=dict)
    when: dict[int, Expression] = field(default_factory=dict)
    for_each: dict[int, Expression] = field(default_factory=dict)
    sets: dict[int, tuple[tuple[str, Template], ...]] = field(default_factory=dict)
    outputs: tuple[tuple[str, Template], ...] = ()
    routers: dict[int, Router] = field(default_factory=dict)
    gates: dict[int, tuple[CompiledCheck, ...]] = field(default_factory=dict)
    dormant: frozenset[int] = frozenset()
    """Forward targets: they wait for a route, whatever their needs."""
    barriers: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """A step that depends on a loop's body from outside, and the routers that must end before it starts."""
    control: dict[int, tuple[Path, ...]] = field(default_factory=dict)
    """What decisions read of a step's output, as paths below it; `()` is the whole output."""
    rules: tuple[Expression, ...] = ()
    """Of the workflow's own policy decider."""
    routed: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """A forward target to the routers that may lead to it."""
    lifts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """A router to the steps that it is a barrier for."""
    looped: frozenset[int] = frozenset()
    """Steps of some loop's body."""
    guarded: set[int] = field(default_factory=set)
    """Steps that a person must approve. Whoever knows the tools adds those that are destructive."""
    guarded_tasks: set[StepId] = field(default_factory=set)
    """The same for steps that a rule may add."""
    points: dict[int, tuple[Ail, tuple[Expression, ...]]] = field(default_factory=dict)
    """Steps after which an agent is asked how to go on, and its rules."""
    metered: bool = False
    """Somewhere there is a budget."""
    timed: tuple[int, ...] = ()
    """Steps with a limit of their own time."""
    careful: bool = False
    """Some step is more than plain: it is routed, gated, asked about or paid for."""
    waves: bool = False
    """An agent is asked between waves of steps."""
    gate_attempts: int = 3
    """Attempts before a gate calls a person, where the definition does not say."""
    ranks: tuple[list[int], list[int]] | None = None
    """Step to place and place to step in the default order of starting; made when first needed."""
    _hash: str = ""

    def guard(self, steps: Iterable[int]) -> None:
        """A person must approve these steps as well."""
        self.guarded.update(steps)
        self.look()

    def look(self) -> None:
        """See whether there is anything but plain steps, which the core passes through faster."""
        self.careful = bool(
            self.routers or self.guarded or self.gates or self.points or self.metered or self.waves
        )

    @property
    def asks(self) -> bool:
        """Someone may be asked about a run of it, and wants to know how it stands."""
        return bool(self.guarded or self.points or self.gates) or self.workflow.config.ail is not None

    @property
    def hash(self) -> str:
        """The definition's content hash, computed once."""
        if not self._hash:
            self._hash = self.workflow.hash
        return self._hash


def compile_graph(workflow: Workflow) -> Graph:
    """Compile a definition, or raise one `DefinitionError` with everything that is wrong with it."""
    findings = Findings.of(workflow)
    graph = assemble(workflow, findings)
    findings.check()
    return graph


def extend(
    graph: Graph, steps: Sequence[Step], *, feeds: Mapping[StepId, Mapping[str, Any]] | None = None
) -> Graph:
    """The graph with `steps` added after its own, whose indices stay. The given graph is not changed.

    Added steps may need and read any step, but they route only to each other: nothing that
    is part of the run already becomes dormant or runs again because of them. Steps named in
    `feeds` wait for the new ones.
    """
    workflow = replace(graph.workflow, steps=(*graph.workflow.steps, *steps))
    findings = Findings.of(workflow)
    addition = _Addition(graph, workflow, findings)
    addition.survey()
    findings.check()
    grown = addition.graph()
    _check_detours(grown, findings)
    findings.check()
    for step in feeds or {}:
        _feed(grown, step, range(len(graph.ids), len(grown.ids)))
    grown.look()
    return grown


def _feed(graph: Graph, step: StepId, new: Sequence[int]) -> None:
    """Let a step wait for the new ones."""
    i = graph.index.get(step, -1)
    if i < 0 or i in new:
        hint = did_you_mean(step, graph.ids)
        raise DefinitionError([Problem(f"feeds: no step is called {step!r}", hint)])
    reached, todo = {i}, [i]
    while todo:
        for d in graph.dependents[todo.pop()]:
            if d not in reached:
                reached.add(d)
                todo.append(d)
    if reached.intersection(new):
        raise DefinitionError([Problem(f"feeds: {step!r} runs before the new steps", "feed a later step")])
    graph.needs[i] = tuple(sorted({*graph.needs[i], *new}))
    for n in new:
        graph.dependents[n] = tuple(sorted({*graph.dependents[n], i}))


def assemble(workflow: Workflow, findings: Findings) -> Graph:
    """Compile a definition as far as it goes. The graph is of use only if nothing was found."""
    empty = Graph(workflow, [], {}, [], [], [], bytearray())
    if not check_rest(workflow, findings):
        return empty
    check_workflow_values(workflow, findings)
    addition = _Addition(empty, workflow, findings)
    addition.survey()
    sites = addition.sites
    outputs = sites.outputs(workflow.outputs)
    ail = workflow.config.ail
    rules = sites.rules(ail, ("config", "ail")) if ail else ()
    if len(findings):
        return empty
    graph = addition.graph()
    graph.outputs = outputs
    graph.rules = rules
    graph.points |= _points(graph)
    graph.look()
    _check_detours(graph, findings)
    _check_tasks(graph, findings)
    return graph


def bottom_levels(graph: Graph, durations: Sequence[float]) -> list[float]:
    """For each step the longest way from its start to the end, over needs and forward routes."""
    levels = list(durations)
    last_first = sorted(range(len(levels)), key=graph.layers.__getitem__, reverse=True)
    for i in last_first:
        router = graph.routers.get(i)
        after = graph.dependents[i] if router is None else (*graph.dependents[i], *router.forward)
        if after:
            levels[i] += max(map(levels.__getitem__, after))
    return levels


class _Addition:
    """Steps on their way into a graph: first looked at, then, if all is well, joined to it."""

    def __init__(self, base: Graph, workflow: Workflow, findings: Findings) -> None:
        self.base = base
        self.workflow = workflow
        self.findings = findings
        self.first = len(base.ids)
        self.steps = workflow.steps[self.first :]
        self.numbers = list(range(len(workflow.steps)))
        """The same objects wherever a step is named, which halves what a plain step costs."""
        self.ids = list(base.ids)
        self.index = dict(base.index)
        self.sites = Sites(workflow, self.index, findings)
        self.routes = Routes(self.ids, self.index, self.first, self.sites, findings)
        self.needs: list[tuple[int, ...]] = []
        """Of the new steps."""
        self.dependents: list[tuple[int, ...]] = []
        """Among the new steps, counted from 0."""
        self.order: Sequence[int] = ()
        """Of the new steps by their needs, counted from 0."""

    def survey(self) -> None:
        """Look at everything that could be wrong."""
        numbered = list(zip(self.numbers[self.first :], self.steps, strict=True))
        typed = [check_step(step, ("steps", i), self.findings) for i, step in numbered]
        if not all(typed):
            return
        self._name(numbered)
        gate = self.workflow.config.gate
        shared = self.sites.gate(gate, SHARED_GATE, ("config", "gate")) if gate else ()
        for i, step in numbered:
            check_step_values(step, i, self.findings)
            self.sites.enter(i, step, shared)
            self.routes.enter(i, step)
            self.needs.append(self._needs(i, step))
        self._arrange()

    def graph(self) -> Graph:
        """The base and the new steps as one. Only for additions in which nothing was found."""
        base, sites, routes = self.base, self.sites, self.routes
        needs = base.needs + self.needs
        dependents = self._all_dependents()
        routers = base.routers | routes.routers
        forward = {i: router.forward for i, router in routers.items()}
        barriers = barriers_of(reopened_by(routers), dependents, forward)
        new = {i: tuple(sorted(routers)) for i, routers in barriers.items() if i >= self.first}
        bodies = [body for router in routes.routers.values() for body in router.bodies.values()]
        return Graph(
            workflow=self.workflow,
            ids=self.ids,
            index=self.index,
            needs=needs,
            dependents=dependents,
            layers=base.layers + self._layers(),
            joins=base.joins + bytes(JOINS[step.join] for step in self.steps),
            args=base.args | sites.args,
            when=base.when | sites.when,
            for_each=base.for_each | sites.for_each,
            sets=base.sets | sites.sets,
            outputs=base.outputs,
            routers=routers,
            gates=base.gates | sites.gates,
            dormant=base.dormant.union(*routes.forward.values()),
            barriers=base.barriers | new,
            control=self._control(),
            rules=base.rules,
            routed=base.routed | routes.routed,
            lifts=_inverse(base.barriers | new),
            looped=base.looped.union(*bodies),
            guarded=base.guarded | self._guarded(),
            guarded_tasks=base.guarded_tasks,
            gate_attempts=base.gate_attempts,
            waves=self.workflow.config.ail is not None and self.workflow.config.ail.at == "per_layer",
            points=base.points | self._points(),
            metered=base.metered or self._metered(),
            timed=base.timed + self._timed(),
        )

    def _guarded(self) -> set[int]:
        """Steps that need approval by what the definition says."""
        config = self.workflow.config.approval
        return {
            i
            for i, step in enumerate(self.steps, start=self.first)
            if guards(step.approval or config, critical=step.critical or step.effect == "destructive")
        }

    def _points(self) -> dict[int, tuple[Ail, tuple[Expression, ...]]]:
        points: dict[int, tuple[Ail, tuple[Expression, ...]]] = {}
        for i, step in enumerate(self.steps, start=self.first):
            if isinstance(step.ail, Ail):
                points[i] = (step.ail, self.sites.step_rules.get(i, ()))
            elif step.ail:
                points[i] = (self.workflow.config.ail or Ail(decider="external"), self.base.rules)
        return points

    def _timed(self) -> tuple[int, ...]:
        numbered = enumerate(self.steps, start=self.first)
        return tuple(i for i, step in numbered if step.budget and step.budget.wall is not None)

    def _metered(self) -> bool:
        return self.workflow.config.budget is not None or any(step.budget for step in self.steps)

    def _name(self, numbered: Sequence[tuple[int, Step]]) -> None:
        for i, step in numbered:
            self.ids.append(step.id)
            if self.index.setdefault(step.id, i) != i:
                self.findings.add(
                    ("steps", i, "id"), f"two steps are called {step.id!r}", "rename one of them"
                )

    def _needs(self, i: int, step: Step) -> tuple[int, ...]:
        """What a step waits for: what it says, and what it reads."""
        found: set[int] = set()
        for n, name in enumerate(step.needs):
            place: Place = ("steps", i, "needs", n)
            need = self.index.get(name)
            if need is None:
                self.findings.add(place, f"no step is called {name!r}", self.findings.near(name, self.index))
            elif need == i:
                self.findings.add(
                    place, "a step cannot need itself", "to repeat it, use routing with loop_target"
                )
            elif need in found:
                self.findings.add(place, f"{name!r} is named twice", "remove one")
            else:
                found.add(need)
        for read in self.sites.needed:
            need = self.index.get(StepId(read))
            if need is not None:
                found.add(need)
        return tuple(sorted(found)) if len(found) > 1 else tuple(found)

    def _arrange(self) -> None:
        """Put the new steps into an order; look for circles, then at routes."""
        first = self.first
        inner: Sequence[tuple[int, ...]] = self.needs
        if first:
            inner = [tuple(need - first for need in needs if need >= first) for needs in self.needs]
        self.dependents = inverse(inner, self.numbers)
        self.order = topological(inner, self.dependents)
        if len(self.order) < len(inner):
            for circle in circles(inner, self.order):
                self._report([i + first for i in circle])
            return
        self.routes.join(inner, self.dependents)
        self.routes.check_fuse(self.base.routers, len(self.ids))
        for i, needs in enumerate(self.needs, start=first):
            self.routes.check_join(i, self.steps[i - first].join, needs)

    def _report(self, circle: Sequence[int]) -> None:
        """Say that these steps wait for each other, each for the one before."""
        way = [str(self.ids[i]) for i in (*circle, circle[0])]
        hint = "remove one of these needs; to repeat steps use routing with loop_target and max_iterations"
        for before, after in zip(circle, (*circle[1:], circle[0]), strict=True):
            if self.ids[before] not in self.workflow.steps[after].needs:
                name = self.ids[before]
                hint = f"in {self.ids[after]!r} say previous.{name} for the result of the last iteration"
                break
        self.findings.add(("steps", circle[0]), f"steps wait for each other: {shown_path(way)}", hint)

    def _layers(self) -> list[int]:
        """Depths of the new steps, given those of the base."""
        layers = self.base.layers + [0] * len(self.needs)
        routed = self.routes.routed
        for position in self.routes.order or self.order:
            i = position + self.first
            before = self.needs[position]
            if i in routed:
                before = (*before, *routed[i])
            if before:
                layers[i] = self.numbers[max(map(layers.__getitem__, before)) + 1]
        return layers[self.first :]

    def _all_dependents(self) -> list[tuple[int, ...]]:
        if not self.first:
            return self.dependents
        more: dict[int, list[int]] = {}
        for i, needs in enumerate(self.needs, start=self.first):
            for need in needs:
                more.setdefault(need, []).append(i)
        dependents = self.base.dependents + [()] * len(self.needs)
        for i, after in more.items():
            dependents[i] += tuple(after)
        return dependents

    def known_control(self) -> dict[int, tuple[Path, ...]]:
        """What decisions of the new steps read of those that are there already."""
        return {i: paths for i, paths in self._control().items() if i < self.first}

    def _control(self) -> dict[int, tuple[Path, ...]]:
        control = dict(self.base.control)
        for name, paths in self.sites.control.items():
            i = self.index[StepId(name)]
            control[i] = tuple(dict.fromkeys((*control.get(i, ()), *paths)))
        return control


def guards(approval: str, *, critical: bool) -> bool:
    """Whether a person is asked before a step with this `approval`."""
    return approval == "always" or (approval == "critical_only" and critical)


def _points(graph: Graph) -> dict[int, tuple[Ail, tuple[Expression, ...]]]:
    """Where the workflow itself wants an agent to be asked."""
    ail = graph.workflow.config.ail
    if ail is None:
        return {}
    points = {graph.index[name]: (ail, graph.rules) for name in ail.after if name in graph.index}
    for i, step in enumerate(graph.workflow.steps):
        if step.ail is True:
            points[i] = (ail, graph.rules)
    return points


def _inverse(barriers: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    found: dict[int, list[int]] = {}
    for i, routers in barriers.items():
        for router in routers:
            found.setdefault(router, []).append(i)
    return {router: tuple(steps) for router, steps in found.items()}


def _check_detours(graph: Graph, findings: Findings) -> None:
    """A detour runs while its caller waits; it cannot wait for what comes after the caller."""
    for found in deadlocks(graph.routers, graph.needs, graph.routed, graph.barriers):
        caller, detour, through = (graph.ids[i] for i in found)
        message = f"never returns: it needs {through!r}, which waits for {caller!r}, which waits for it"
        hint = f"let {detour!r} need only what has run before {caller!r}, and {caller!r} itself"
        findings.add(("steps", found.detour, "needs"), message, hint)


def _check_tasks(graph: Graph, findings: Findings) -> None:
    """Steps that a rule would add must fit the graph they would be added to."""
    for place, ail in ails(graph.workflow):
        for n, rule in enumerate(ail.rules):
            if rule.tasks:
                workflow = replace(graph.workflow, steps=(*graph.workflow.steps, *rule.tasks))
                found = Findings.of(workflow)
                addition = _Addition(graph, workflow, found)
                addition.survey()
                graph.control |= addition.known_control()
                findings.take(found, len(graph.ids), (*place, "rules", n, "tasks"))


def ails(workflow: Workflow) -> Iterator[tuple[Place, Ail]]:
    """Every decision point that is spelt out, and where: the workflow's own, and those of steps."""
    if workflow.config.ail is not None:
        yield ("config", "ail"), workflow.config.ail
    for i, step in enumerate(workflow.steps):
        if isinstance(step.ail, Ail):
            yield ("steps", i, "ail"), step.ail
