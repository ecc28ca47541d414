"""Penstock: workflows of tools, agents and functions that adapt while they run, inside their banks.

Names are loaded on first use, so that `import penstock` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from penstock.app import Penstock, RunHandle, open, run  # noqa: A004
    from penstock.engines.base import Result
    from penstock.engines.stream import Gap
    from penstock.errors import (
        CommandRejected,
        DefinitionError,
        InputError,
        PenstockError,
        RunFailed,
    )
    from penstock.run.commands import (
        Abort,
        InjectTasks,
        Message,
        ModifyArgs,
        Pause,
        Resume,
        RetryStep,
        SkipLayer,
        SkipStep,
    )
    from penstock.tools.base import Task
    from penstock.tools.functions import tool
    from penstock.workflow.builder import WorkflowBuilder as Workflow
    from penstock.workflow.read import load
    from penstock.workflow.spec import Step

_HOMES = {
    "Abort": "run.commands",
    "CommandRejected": "errors",
    "DefinitionError": "errors",
    "Gap": "engines.stream",
    "InjectTasks": "run.commands",
    "InputError": "errors",
    "Message": "run.commands",
    "ModifyArgs": "run.commands",
    "Pause": "run.commands",
    "Penstock": "app",
    "PenstockError": "errors",
    "Result": "engines.base",
    "Resume": "run.commands",
    "RetryStep": "run.commands",
    "RunFailed": "errors",
    "RunHandle": "app",
    "SkipLayer": "run.commands",
    "SkipStep": "run.commands",
    "Step": "workflow.spec",
    "Task": "tools.base",
    "Workflow": "workflow.builder:WorkflowBuilder",
    "load": "workflow.read",
    "open": "app",
    "run": "app",
    "tool": "tools.functions",
}

__all__ = [
    "Abort",
    "CommandRejected",
    "DefinitionError",
    "Gap",
    "InjectTasks",
    "InputError",
    "Message",
    "ModifyArgs",
    "Pause",
    "Penstock",
    "PenstockError",
    "Result",
    "Resume",
    "RetryStep",
    "RunFailed",
    "RunHandle",
    "SkipLayer",
    "SkipStep",
    "Step",
    "Task",
    "Workflow",
    "load",
    "open",
    "run",
    "tool",
]


# `penstock.run` is a package of ours and a function of yours. Once the package is loaded its name
# is free again, and the function takes it on first use.
import_module("penstock.run")
del globals()["run"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        msg = f"module 'penstock' has no attribute {name!r}"
        raise AttributeError(msg)
    module, _, attribute = home.partition(":")
    value = getattr(import_module(f"penstock.{module}"), attribute or name)
    globals()[name] = value
    return value
