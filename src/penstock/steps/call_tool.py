"""A step that calls a tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from penstock.errors import LostCall
from penstock.steps.base import DEFAULT_TIMEOUT, Scene, TaskFailure, Work
from penstock.tools.base import Consent, Tool
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


@dataclass(frozen=True, slots=True)
class Takes:
    """The schema of a tool, whatever it is called with. Equal for the same tool, as `CallTool` is."""

    tool: Tool

    def __call__(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.tool.input_schema


@dataclass(frozen=True, slots=True)
class Converted:
    """Arguments as a tool takes them. Equal for the same tool, as `CallTool` is."""

    tool: Tool

    def __call__(self, args: dict[str, Any]) -> dict[str, Any]:
        if self.tool.convert is None:
            return args
        try:
            return self.tool.convert(args)
        except ValueError as error:
            raise TaskFailure("arguments", str(error)) from None


def work(step: Step, tool: Tool) -> Work:
    """The work of calling `tool` for `step`."""
    simple = not (tool.blocking or tool.wants_task or tool.convert)
    limit = DEFAULT_TIMEOUT if tool.timeout is None else tool.timeout
    found = Work(
        perform=CallTool(tool),
        effect=step.effect or tool.effect,
        timeout=limit if step.timeout is None else step.timeout,
        direct=tool.call if simple else None,
        duration=tool.duration,
        check=Converted(tool),
        takes=Takes(tool),
        ruled=tool.asks,
    )
    return found if tool.consent is None else _with_consent(found, tool, tool.consent)


def _with_consent(found: Work, tool: Tool, consent: Consent) -> Work:
    """The work of calling a tool that is not what was approved: whoever approves the call sees how."""

    def shown(args: Mapping[str, Any]) -> dict[str, Any]:
        difference = consent.difference
        return {"uses": tool.id, "args": args, **({"changed": difference} if difference else {})}

    return replace(found, ruled="the tool is not what was approved", shown=shown, approved=consent.give)


def _arguments(tool: Tool, scene: Scene) -> dict[str, Any]:
    args = Converted(tool)(scene.args)
    if tool.wants_task:
        args = {**args, tool.wants_task: scene.task}
    return args
