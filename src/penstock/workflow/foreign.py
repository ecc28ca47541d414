"""What a definition may do only in a file that someone has read, and not when it comes from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.errors import Problem
from penstock.workflow.spec import Ail, Gate, Step, Workflow

_HINT = "write it to a workflow file, and run that"


def barred(workflow: Workflow) -> list[Problem]:
    """Everything that a definition from elsewhere must not say."""
    config = workflow.config
    found = [("config.gate", _checks(config.gate)), ("config.ail", _rules(config.ail))]
    found += [("config.approval", "runs without approval are" if config.approval == "never" else "")]
    found += [(f"config.agents.{name}", _tools(agent.tools)) for name, agent in config.agents.items()]
    found += [(f"reducers.{name}", _code(by)) for name, by in workflow.reducers.items()]
    found += [
        (name, "workflows that follow are" if given else "")
        for name, given in (("on_complete", workflow.on_complete), ("on_failure", workflow.on_failure))
    ]
    return barred_steps(workflow.steps) + _problems(found)


def barred_steps(steps: Sequence[Step]) -> list[Problem]:
    """The same for steps alone."""
    return _problems((f"steps.{step.id}", only_in_files(step) or _child(step)) for step in steps)


def only_in_files(step: Step) -> str:
    """What of a step is: `py:` steps are, for example. Empty when it is fine anywhere."""
    if step.uses.startswith("py:"):
        return "`py:` steps are"
    return _checks(step.gate) or _rules(step.ail) or _leave(step)


def _problems(found: Iterable[tuple[str, str]]) -> list[Problem]:
    return [
        Problem(f"{what} allowed only in workflow files", _HINT, where=where) for where, what in found if what
    ]


def _leave(step: Step) -> str:
    """A call is as dangerous as its tool says; whoever wants it done cannot talk that down."""
    if step.approval == "never":
        return "steps without approval are"
    return f"`effect: {step.effect}` is" if step.effect not in (None, "destructive") else ""


def _child(step: Step) -> str:
    return "child workflows are" if step.uses.startswith("workflow:") else ""


def _checks(gate: Gate | None) -> str:
    checks = gate.checks if gate is not None else ()
    if any(check.run for check in checks):
        return "`run` checks are"
    return _tools(check.tool for check in checks)


def _rules(ail: Ail | bool | None) -> str:
    rules = ail.rules if isinstance(ail, Ail) else ()
    tasks = (task for rule in rules for task in rule.tasks)
    return next((what for task in tasks if (what := only_in_files(task) or _child(task))), "")


def _tools(ids: Iterable[str]) -> str:
    return "`py:` tools are" if any(id.startswith("py:") for id in ids) else ""


def _code(reducer: str) -> str:
    return "reducers of your own are" if ":" in reducer else ""
