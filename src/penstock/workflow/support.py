"""What a definition may say that this version does not carry out yet.

Such a definition is read, checked and drawn like any other; only running it is refused,
with one message for each thing, before anything starts. Remove a rule here with the change
that carries it out.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import Problem
from penstock.workflow.spec import Step, Workflow

_HINT = "it is checked and drawn, but this version cannot run it yet"


def unsupported(workflow: Workflow) -> list[Problem]:
    """Everything that stops this version from running the workflow; empty when nothing does."""
    found = [Problem(message, _HINT, where=where) for where, message in _of_workflow(workflow)]
    for step in workflow.steps:
        found.extend(unsupported_in(step, workflow.config.approval))
    return found


def unsupported_in(step: Step, approval: str) -> list[Problem]:
    """Everything that stops this version from running one step of a workflow with this `approval`."""
    wanted = step.approval or approval
    return [
        Problem(message, _HINT, where=f"steps.{step.id}.{key}") for key, message in _of_step(step, wanted)
    ]


def _of_workflow(workflow: Workflow) -> Iterator[tuple[str, str]]:
    config = workflow.config
    if config.engine in ("langgraph", "temporal"):
        yield "config.engine", f"the engine {config.engine!r} is not part of this version"
    if config.approval == "always":
        yield "config.approval", "asking a person before each step is not carried out"
    if config.ail is not None:
        yield "config.ail", "asking an agent how to go on is not carried out"
    if config.budget is not None:
        yield "config.budget", "budgets are not enforced"
    if config.gate is not None and config.gate.checks:
        yield "config.gate", "gates are not carried out"
    if config.speculation:
        yield "config.speculation", "speculation is not carried out"
    if config.wave_timeout is not None:
        yield "config.wave_timeout", "waves are not carried out"
    for key in ("schedule", "on_complete", "on_failure"):
        if getattr(workflow, key):
            yield key, f"{key} is not carried out"


def _of_step(step: Step, approval: str) -> Iterator[tuple[str, str]]:
    name = repr(step.id)
    if step.uses.startswith("agent:"):
        yield "uses", f"step {name} calls an agent, which is not carried out"
    if step.routing is not None:
        yield "routing", f"step {name} chooses its next step, which is not carried out"
    if step.gate is not None:
        yield "gate", f"step {name} has a gate, which is not carried out"
    if step.approval == "always":
        yield "approval", f"step {name} asks a person first, which is not carried out"
    elif approval != "never" and (step.critical or step.effect == "destructive"):
        key = "critical" if step.critical else "effect"
        yield key, f"step {name} is critical and would need a person's approval, which is not carried out"
    if step.ail:
        yield "ail", f"step {name} asks an agent how to go on, which is not carried out"
    if step.budget is not None:
        yield "budget", f"step {name} has a budget, which is not enforced"
