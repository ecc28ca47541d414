"""The meta-tools: the only definitions that a client pays for, however many tools are behind them.

One source for every definition. Descriptions are short on purpose: together they must stay well
below two thousand tokens, and an agent reads them in every conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

_RUN = {"type": "string", "description": "Handle from `execute`."}
_WAIT = {"type": "number", "minimum": 0, "maximum": 25, "default": 10, "description": "Seconds to wait."}


class Definition(Struct, frozen=True):
    name: str
    description: str
    input: Mapping[str, Any]
    read_only: bool = False
    destructive: bool = False


def _takes(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


_STEP: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "uses": {"type": "string", "description": "Tool id, server:tool."},
        "with": {"type": "object", "description": "Arguments; ${ steps.ID.output } reads results."},
        "needs": {"type": "array", "items": {"type": "string"}},
        "when": {"type": "string", "description": "CEL condition."},
        "for_each": {"type": "string", "description": "CEL list; ${ item } in `with`."},
    },
    "required": ["id", "uses"],
}

DEFINITIONS: Final = (
    Definition(
        "discover",
        "Find tools for an intent. Returns ids with input schemas, as many as fit the budget.",
        _takes(
            ("intent",),
            intent={"type": "string"},
            limit={"type": "integer", "minimum": 1, "maximum": 50, "default": 8},
            detail={"enum": ["schemas", "names"], "default": "schemas"},
        ),
        read_only=True,
    ),
    Definition(
        "execute",
        "Run one tool (tool, args), steps (independent ones in parallel), a workflow file (workflow, args), "
        "or an intent. Returns status, handle, results, what is next and the options.",
        _takes(
            tool={"type": "string", "description": "Tool id, server:tool."},
            args={"type": "object"},
            steps={"type": "array", "items": _STEP},
            workflow={"type": "string"},
            intent={"type": "string", "description": "Runs only what is plainly meant; else candidates."},
            per_layer={"type": "boolean", "description": "Stop after each layer for `continue`."},
            wait_s=_WAIT,
        ),
        destructive=True,
    ),
    Definition(
        "continue",
        "Go on after a layer, or wait for more. `fetch` shows a large result: a step, or step[item].",
        _takes(
            ("run_id",),
            run_id=_RUN,
            fetch={"type": "string"},
            offset={"type": "integer", "minimum": 0},
            wait_s=_WAIT,
        ),
        destructive=True,
    ),
    Definition(
        "respond",
        "Answer a pending decision by its id. approve, reject, edit (args), respond, retry, accept, skip.",
        _takes(
            ("run_id", "decision", "verb"),
            run_id=_RUN,
            decision={"type": "string"},
            verb={"type": "string"},
            args={"type": "object"},
            message={"type": "string"},
            wait_s=_WAIT,
        ),
        destructive=True,
    ),
    Definition(
        "replan",
        "Add steps to a run that has not ended, or say what is missing and let the planner find them.",
        _takes(
            ("run_id",),
            run_id=_RUN,
            steps={"type": "array", "items": _STEP},
            requirement={"type": "string"},
            wait_s=_WAIT,
        ),
        destructive=True,
    ),
    Definition(
        "abort", "Stop a run.", _takes(("run_id",), run_id=_RUN, reason={"type": "string"}), destructive=True
    ),
    Definition(
        "status",
        "How a run stands; without `run_id`, the runs of this session.",
        _takes(run_id=_RUN),
        read_only=True,
    ),
)


def plain() -> list[dict[str, Any]]:
    """The definitions as a model is given them."""
    return [
        {"name": one.name, "description": one.description, "input_schema": one.input} for one in DEFINITIONS
    ]
