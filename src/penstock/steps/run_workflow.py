"""A step that runs another workflow: a child run, whose failure is this step's and no more."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import InputError
from penstock.steps.base import Billed, Prepared, Scene, TaskFailure, Work, child_failure
from penstock.workflow.inputs import check_inputs, inputs_schema
from penstock.workflow.spec import Step, Workflow


def work(step: Step, find: Callable[[], Prepared]) -> Work:
    """The work of running a child. `find` is asked late, so that workflows may call themselves."""

    def inputs_of(args: dict[str, Any]) -> dict[str, Any]:
        try:
            return check_inputs(find().graph.workflow, args)
        except InputError as error:
            raise TaskFailure("arguments", str(error)) from None

    async def perform(scene: Scene) -> Any:
        inputs = inputs_of(scene.args)
        child = await scene.host.child(scene.task, find(), inputs)
        if child.status != "succeeded":
            raise child_failure("child", child)
        return Billed(child.outputs, usage=child.usage)

    # A child is made of tasks with effects of their own; repeating the step repeats nothing that ended.
    return Work(
        perform=perform,
        effect=step.effect or "idempotent",
        timeout=step.timeout,
        check=inputs_of,
        takes=lambda _: inputs_schema(find().graph.workflow),
    )


def key(within: str, name: str) -> str:
    """What a child is called in a family whose files may be in several folders; `within` is its parent's."""
    return posixpath.normpath(posixpath.join(within, name))


def reached(name: str, family: Mapping[str, Workflow]) -> dict[str, str]:
    """The versions of a child and of all that it calls."""
    found: dict[str, str] = {}
    todo = [("", name)]
    while todo:
        within, child = todo.pop()
        place = next((one for one in (key(within, child), child) if one in family), None)
        if place is None or place in found:
            continue
        found[place] = family[place].hash
        todo += (
            (posixpath.dirname(place), step.uses.removeprefix("workflow:"))
            for step in family[place].steps
            if step.uses.startswith("workflow:")
        )
    return found
