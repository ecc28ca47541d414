"""A step that calls a tool."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.errors import LostCall
from penstock.steps.base import DEFAULT_TIMEOUT, Scene, TaskFailure, Work
from penstock.tools.base import Tool
from penstock.workflow.spec import Step


@dataclass(frozen=True, slots=True)
class CallTool:
    """Calls a tool. Equal for the same tool, so that a thousand steps share one."""

    tool: Tool

    async def __call__(self, scene: Scene) -> Any:
        tool = self.tool
        args = _arguments(tool, scene)
        if tool.blocking:
            return await scene.host.in_thread(partial(tool.call, **args))
        try:
            return await tool.call(**args)
        except LostCall as error:  # as after a timeout, nobody knows whether it happened
            raise TaskFailure("timeout", str(error)) from None


def work(step: Step, tool: Tool) -> Work:
    """The work of calling `tool` for `step`."""
    simple = not (tool.blocking or tool.wants_task or tool.convert)
    return Work(
        perform=CallTool(tool),
        effect=step.effect or tool.effect,
        timeout=DEFAULT_TIMEOUT if step.timeout is None else step.timeout,
        direct=tool.call if simple else None,
        duration=tool.duration,
    )


def _arguments(tool: Tool, scene: Scene) -> dict[str, Any]:
    args = scene.args
    if tool.convert is not None:
        try:
            args = tool.convert(args)
        except ValueError as error:
            raise TaskFailure("arguments", str(error)) from None
    if tool.wants_task:
        args = {**args, tool.wants_task: scene.task}
    return args
