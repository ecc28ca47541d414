"""What a workflow may call, and how to say that it cannot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.errors import ToolRefused, UnknownTool
from penstock.workflow.graph import ails
from penstock.workflow.spec import Step, Workflow


def called(workflow: Workflow) -> set[str]:
    """The ids of all that a workflow may call itself."""
    tasks = [task for _, task in policy_tasks(workflow)]
    agents = {tool for agent in workflow.config.agents.values() for tool in agent.tools}
    return agents | called_by((*workflow.steps, *tasks), workflow)


def policy_tasks(workflow: Workflow) -> Iterator[tuple[tuple[str | int, ...], Step]]:
    """The steps that rules of decision points may add, and where what they use stands."""
    for place, ail in ails(workflow):
        for n, rule in enumerate(ail.rules):
            for m, task in enumerate(rule.tasks):
                yield (*place, "rules", n, "tasks", m, "uses"), task


def called_by(steps: Sequence[Step], workflow: Workflow) -> set[str]:
    """The same of a few steps: what they use, what their gates ask, and what their agents may call."""
    named = [step.uses.removeprefix("agent:") for step in steps if step.uses.startswith("agent:")]
    agents = [workflow.config.agents[name] for name in named if name in workflow.config.agents]
    return {
        *(step.uses for step in steps),
        *(check.tool for step in steps if step.gate for check in step.gate.checks if check.tool),
        *(tool for agent in agents for tool in agent.tools),
    }


def said(error: UnknownTool) -> str:
    """What is wrong with a tool, without the hint."""
    if isinstance(error, ToolRefused):
        return f"{error.tool} may not be called"
    what = "workflow" if error.tool.startswith("workflow:") else "tool"
    return f"unknown {what} {error.tool!r}"


def children_of(workflow: Workflow) -> list[str]:
    named = [step.uses for step in workflow.steps if step.uses.startswith("workflow:")]
    followers = [name for name in (workflow.on_complete, workflow.on_failure) if name]
    return [name.removeprefix("workflow:") for name in (*named, *followers)]
