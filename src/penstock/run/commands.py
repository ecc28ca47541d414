"""Requests from outside to a run: an agent's, a person's, another program's.

A command is a wish, not a fact about the run: the core accepts it (and says so in an
event) or rejects it with a reason and changes nothing. `abort` and `pause` overtake;
the rest are taken in the order they came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from penstock.errors import DefinitionError, Problem
from penstock.ids import CommandId, DecisionId, StepId
from penstock.workflow.findings import did_you_mean
from penstock.workflow.spec import Step


class _Command(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="command"
):
    id: CommandId = CommandId("")
    """The same id sent twice is one command. Empty: the engine gives it one."""
    by: str = ""
    """Who asks, for the record."""


class Abort(_Command, frozen=True, tag="abort"):
    """Stop: cancel what runs, skip what has not started."""

    reason: str = ""


class Pause(_Command, frozen=True, tag="pause"):
    """Start nothing new; what runs may finish."""

    reason: str = ""


class Resume(_Command, frozen=True, tag="resume"):
    """Go on after a pause."""


class SkipStep(_Command, frozen=True, tag="skip_step"):
    """Leave out a step that has not started."""

    step: StepId
    reason: str = ""


class SkipLayer(_Command, frozen=True, tag="skip_layer"):
    """Skip the unstarted steps of one layer."""

    layer: int
    reason: str = ""


class ModifyArgs(_Command, frozen=True, tag="modify_args"):
    """Change arguments of a step that has not started: given names replace, the others stay."""

    step: StepId
    args: Mapping[str, Any]


class InjectTasks(_Command, frozen=True, tag="inject_tasks"):
    """Add steps to this run's graph. They are validated like a definition."""

    steps: tuple[Step, ...]


class RetryStep(_Command, frozen=True, tag="retry_step"):
    """Open a failed step again, and the steps that were skipped because of it."""

    step: StepId


class Message(_Command, frozen=True, tag="message"):
    """Add to the conversation of the run."""

    text: str
    role: Literal["agent", "human", "system"] = "human"


class Checkpoint(_Command, frozen=True, tag="checkpoint"):
    """Remember the fold here."""


class RequestDecision(_Command, frozen=True, tag="request_decision"):
    """Stop at this point and ask."""

    summary: str = ""


class ReplanDag(_Command, frozen=True, tag="replan_dag"):
    """Ask the planner for steps that serve a new requirement."""

    requirement: str


class Decide(_Command, frozen=True, tag="decide"):
    """Answer an open decision."""

    decision: DecisionId
    verb: str
    args: Mapping[str, Any] | None = None
    message: str = ""


Command = (
    Abort
    | Pause
    | Resume
    | SkipStep
    | SkipLayer
    | ModifyArgs
    | InjectTasks
    | RetryStep
    | Message
    | Checkpoint
    | RequestDecision
    | ReplanDag
    | Decide
)

OVERTAKING = (Abort, Pause)
"""Commands that do not wait their turn."""


def kinds() -> dict[str, type[Command]]:
    """Every command by its name on the wire."""
    return {str(kind.__struct_config__.tag): kind for kind in get_args(Command)}


def read(data: Mapping[str, Any]) -> Command:
    """A command from plain data, `{"command": NAME, …}`; steps may be written as in a workflow file.

    Raises `DefinitionError` when it is none.
    """
    known = kinds()
    name = data.get("command")
    kind = known.get(name) if isinstance(name, str) else None
    if kind is None:
        hint = did_you_mean(str(name), known) or f"there are {', '.join(known)}"
        raise DefinitionError([Problem(f"there is no command {name!r}", hint)])
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    for key in data:
        if key not in (*names, "command"):
            hint = did_you_mean(key, names) or f"it takes {', '.join(names)}"
            raise DefinitionError([Problem(f"{name} takes no {key!r}", hint)])
    try:
        command: Command = msgspec.convert(_with_steps(data), kind)
    except msgspec.ValidationError as error:
        raise DefinitionError([Problem(str(error), where=name or "")]) from None
    return command


def _with_steps(data: Mapping[str, Any]) -> Mapping[str, Any]:
    if "steps" not in data:
        return data
    from penstock.workflow.read import steps_from

    return {**data, "steps": msgspec.to_builtins(steps_from(data["steps"]))}
