"""What a definition may say that this version does not carry out yet.

Such a definition is read, checked and drawn like any other; only running it is refused,
with one message for each thing, before anything starts. Remove a rule here with the change
that carries it out.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import Problem
from penstock.workflow.spec import Workflow

_HINT = "it is checked and drawn, but this version cannot run it yet"


def unsupported(workflow: Workflow) -> list[Problem]:
    """Everything that stops this version from running the workflow; empty when nothing does."""
    return [Problem(message, _HINT, where=where) for where, message in _of_workflow(workflow)]


def _of_workflow(workflow: Workflow) -> Iterator[tuple[str, str]]:
    config = workflow.config
    if config.engine in ("langgraph", "temporal"):
        yield "config.engine", f"the engine {config.engine!r} is not part of this version"
    if config.speculation:
        yield "config.speculation", "speculation is not carried out"
    if config.wave_timeout is not None:
        yield "config.wave_timeout", "a time limit for waves is not carried out"
    if workflow.schedule:
        yield "schedule", "schedule is not carried out"
