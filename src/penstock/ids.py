"""Ids are types: a run id can never be passed where a step id is meant."""

from __future__ import annotations

from typing import NewType

RunId = NewType("RunId", str)
"""Sortable by time of start. A child's is its parent's and the task that started it: `child_id`."""

StepId = NewType("StepId", str)
"""The name of a step within its workflow: a plain identifier, so that expressions can say `steps.NAME`."""

ToolId = NewType("ToolId", str)
"""`server:tool`."""

DecisionId = NewType("DecisionId", str)

CommandId = NewType("CommandId", str)
"""Chosen by the sender. The same id sent twice is one command."""

FOLLOWS = "+"
"""Stands in the id of a run between the run before it and its workflow's name: nobody starts it twice."""


def child_id(parent: RunId, step: StepId, *, iteration: int, item: int | None, attempt: int) -> RunId:
    """The id of the run that a task starts, so that a resumed parent finds its child again."""
    place = f"{iteration}" if item is None else f"{iteration}.{item}"
    return RunId(f"{parent}/{step}.{place}.{attempt}")
