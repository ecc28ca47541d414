"""Arguments changed while the run goes: checked like a definition's, bounded by the graph as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import DefinitionError, ExpressionError, Problem
from penstock.workflow.expr import Scope
from penstock.workflow.graph import Graph
from penstock.workflow.interpolate import Template, compile_value
from penstock.workflow.sites import ARGS


def amended(graph: Graph, i: int, changed: Mapping[str, Any]) -> Template:
    """The arguments of a step with some of them replaced.

    New values may read only what the step needs already: a change of arguments is not a
    change of the graph. Raises `DefinitionError` when it cannot be compiled.
    """
    step = graph.workflow.steps[i]
    scope = Scope(
        names=ARGS | {"item"} if step.for_each else ARGS,
        inputs={name: one.type for name, one in graph.workflow.inputs.items()},
        steps=[graph.ids[need] for need in graph.needs[i]],
    )
    try:
        return compile_value({**step.with_, **changed}, scope)
    except ExpressionError as error:
        where = f"{step.id}.with" + (f".{error.where}" if error.where else "")
        raise DefinitionError([Problem(error.message, error.hint, where=where)]) from None
