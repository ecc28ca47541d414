"""The compiled workflow: steps as numbers, so that the core can count instead of search.

A `Graph` is made once from a definition and treated as immutable. Lists run parallel to
`Workflow.steps`; whatever most steps do not have is in a sparse dict, where a plain step
costs nothing. Nothing here knows how a run goes: which step is ready is the core's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.ids import StepId
from penstock.workflow.expr import Expression, Path
from penstock.workflow.interpolate import Template
from penstock.workflow.spec import Step, Workflow

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

END: Final = -1
HUMAN: Final = -2
"""Route targets that are not steps."""


@dataclass(frozen=True, slots=True)
class CompiledCheck:
    """One check of a gate. Exactly one of `expr`, `tool`, `run` is set."""

    name: str
    expr: Expression | None = None
    tool: str = ""
    args: Template | None = None
    run: Template | None = None
    """Renders to the argument vector."""
    timeout: float | None = None


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


def compile_graph(workflow: Workflow) -> Graph:
    """Compile a definition, or raise one `DefinitionError` with everything that is wrong with it."""
    raise NotImplementedError


def extend(graph: Graph, steps: Sequence[Step]) -> Graph:
    """The graph with `steps` added after its own, whose indices stay. The given graph is not changed."""
    raise NotImplementedError


def bottom_levels(graph: Graph, durations: Sequence[float]) -> list[float]:
    """For each step the longest way from its start to the end, over needs and forward routes."""
    raise NotImplementedError
