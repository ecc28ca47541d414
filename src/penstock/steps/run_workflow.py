"""A step that runs another workflow: a child run, whose failure is this step's and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import InputError
from penstock.steps.base import Billed, Prepared, Scene, TaskFailure, Work, child_failure
from penstock.workflow.inputs import check_inputs, inputs_schema
from penstock.workflow.spec import Step


def work(step: Step, find: Callable[[], Prepared]) -> Work:
    """The work of running a child. `find` is asked late, so that workflows may call themselves."""

    async def perform(scene: Scene) -> Any:
        flow = find()
        try:
            inputs = check_inputs(flow.graph.workflow, scene.args)
        except InputError as error:
            raise TaskFailure("arguments", str(error)) from None
        child = await scene.host.child(scene.task, flow, inputs)
        if child.status != "succeeded":
            raise child_failure("child", child)
        return Billed(child.outputs, usage=child.usage)

    # A child is made of tasks with effects of their own; repeating the step repeats nothing that ended.
    return Work(
        perform=perform,
        effect=step.effect or "idempotent",
        timeout=step.timeout,
        takes=lambda _: inputs_schema(find().graph.workflow),
    )
