"""What a workflow is: the definition, as values.

Nothing here reads a file, checks a rule or runs anything. `read` and `builder` make
these values, `validate` checks them, `graph` compiles them. Two definitions with the
same content have the same `Workflow.hash`, however they were written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct

from penstock.ids import StepId

JoinRule = Literal["all_success", "none_failed", "any_success", "all_done"]
Effect = Literal["read", "idempotent", "write", "destructive"]
InputType = Literal["string", "integer", "number", "boolean", "array", "object", "any"]
ExprPolicy = Literal["fallthrough", "default", "halt"]

END = StepId("end")
HUMAN = StepId("human")
RESERVED_TARGETS = (END, HUMAN)
"""Route targets that are not steps; no step may bear their names."""


class _Value(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Settings shared by every part of a definition."""


class Input(_Value, frozen=True):
    type: InputType = "any"
    default: Any = UNSET
    """UNSET means the caller must give a value."""
    enum: tuple[Any, ...] = ()
    description: str = ""

    @property
    def required(self) -> bool:
        return self.default is UNSET


class Retry(_Value, frozen=True):
    """How a task's own errors are retried. Gate failures have attempts of their own."""

    max_attempts: int = 1
    backoff: float = 1.0
    """Seconds before the second attempt; doubles each time, up to a minute or this, if it is longer."""
    jitter: float = 0.1
    """Share of the wait that is spread, 0 to 1."""
    on: tuple[str, ...] = ()
    """Error kinds or exception names to retry; empty means all that may be retried."""


class Check(_Value, frozen=True):
    """One objective check. Exactly one of `expr`, `tool`, `run` is set."""

    name: str = ""
    expr: str = ""
    tool: str = ""
    with_: Mapping[str, Any] = msgspec.field(default_factory=dict, name="with")
    run: tuple[str, ...] = ()
    timeout: float | None = None


class Gate(_Value, frozen=True):
    checks: tuple[Check, ...] = ()
    max_attempts: int | None = None
    """None: as its workflow says for this kind of step, or for all; otherwise 3."""


class Condition(_Value, frozen=True):
    expr: str
    target: StepId


class TieBreaker(_Value, frozen=True):
    enabled: bool = False
    valid_targets: tuple[StepId, ...] = ()
    prompt_hint: str = ""
    confidence: float = 0.7
    timeout: float = 30.0


class Routing(_Value, frozen=True):
    kind: Literal["linear", "conditional", "branch", "loop"] = "linear"
    on: str = ""
    """The value that `branches` look at; empty means `output.status`."""
    conditions: tuple[Condition, ...] = ()
    branches: Mapping[str, StepId] = msgspec.field(default_factory=dict)
    tie_breaker: TieBreaker | None = None
    loop_target: StepId | None = None
    max_iterations: int | None = None
    next: StepId | None = None
    detour: StepId | None = None


class Rule(_Value, frozen=True):
    """A policy decider's rule."""

    if_: str = msgspec.field(name="if")
    do: Literal["continue", "replan", "inject", "abort"]
    requirement: str = ""
    feeds: str = ""
    tasks: tuple[Step, ...] = ()
    repeat: bool = False


class Ail(_Value, frozen=True):
    """Where an agent is asked whether and how to go on."""

    at: Literal["per_layer", "on_error", "manual"] = "manual"
    after: tuple[StepId, ...] = ()
    decider: Literal["policy", "model", "external", "human"] = "policy"
    rules: tuple[Rule, ...] = ()
    timeout: float = 60.0
    on_timeout: Literal["continue", "wait", "abort"] = "continue"
    """What follows when nobody answers. Before a step that needs approval, `continue` waits."""


class Budget(_Value, frozen=True):
    usd: float | None = None
    tokens: int | None = None
    wall: float | None = None
    """Seconds of work; waiting for a person is not counted."""
    tool_calls: int | None = None


class AgentSpec(_Value, frozen=True):
    prompt: str = ""
    tier: str = ""
    model: str = ""
    tools: tuple[str, ...] = ()
    output: Mapping[str, Any] = msgspec.field(default_factory=dict)
    max_turns: int = 10


class Config(_Value, frozen=True):
    engine: Literal["auto", "native", "langgraph", "temporal"] = "auto"
    checkpoints: Literal["per_task", "per_layer", "manual", "off"] = "per_layer"
    approval: Literal["always", "critical_only", "never"] = "critical_only"
    approval_timeout: float | None = None
    """Seconds after which a call that nobody approved counts as rejected; None: it waits."""
    ail: Ail | None = None
    budget: Budget | None = None
    gate: Gate | None = None
    gate_attempts: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Attempts before a gate calls a person, by what a step uses: `agent:*`, `files:*`, `data:parse`."""
    retry: Retry | None = None
    max_parallel: int = 32
    timeout: float | None = None
    """Seconds for the whole run; None means no limit."""
    wave_timeout: float | None = None
    retention: Mapping[str, Any] = msgspec.field(default_factory=dict)
    speculation: bool | Mapping[str, Any] = False
    on_expr_error: ExprPolicy | None = None
    agents: Mapping[str, AgentSpec] = msgspec.field(default_factory=dict)


class Step(_Value, frozen=True):
    """A node of a workflow: what it calls, with what, when, and what becomes of a failure."""

    id: StepId
    uses: str
    with_: Mapping[str, Any] = msgspec.field(default_factory=dict, name="with")
    needs: tuple[StepId, ...] = ()
    """As written. `graph` adds the ones that references imply."""
    when: str = ""
    join: JoinRule = "all_success"
    for_each: str = ""
    max_parallel: int | None = None
    """For `for_each`: how many items at once; None means as many as the run allows."""
    on_item_error: Literal["fail", "keep"] = "fail"
    retry: Retry | None = None
    timeout: float | None = None
    """Seconds for one task; None means the default of its kind."""
    gate: Gate | None = None
    approval: Literal["always", "critical_only", "never"] | None = None
    critical: bool = False
    routing: Routing | None = None
    effect: Effect | None = None
    on_orphan: Literal["ask", "rerun", "fail"] = "ask"
    on_error: Literal["fail", "continue"] = "fail"
    on_reject: Literal["fail", "abort"] = "fail"
    on_expr_error: ExprPolicy | None = None
    budget: Budget | None = None
    model: str = ""
    ail: Ail | bool | None = None
    set: Mapping[str, str] = msgspec.field(default_factory=dict)
    estimate: float | None = None
    """Expected seconds, for the order in which ready steps take scarce slots."""


class Workflow(_Value, frozen=True):
    """A definition: immutable, content-hashed, pinned by each run of it."""

    name: str
    steps: tuple[Step, ...]
    version: str = ""
    description: str = ""
    inputs: Mapping[str, Input] = msgspec.field(default_factory=dict)
    config: Config = Config()
    outputs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    reducers: Mapping[str, str] = msgspec.field(default_factory=dict)
    schedule: str = ""
    on_complete: str = ""
    on_failure: str = ""

    @property
    def hash(self) -> str:
        return content_hash(self)


def encode(workflow: Workflow) -> bytes:
    """The canonical JSON of a definition: what is hashed, stored and pinned.

    A default that was written out equals one that was left out.
    """
    return _encoded(workflow)[0]


def _encoded(workflow: Workflow) -> tuple[bytes, str]:
    """A definition and its hash, made once: that of a large one takes longer than a run takes to start."""
    known = _KNOWN.get(id(workflow))
    if known is None:
        body = msgspec.json.encode(_sparse(workflow), order="sorted")
        known = _KNOWN[id(workflow)] = workflow, body, "sha256:" + hashlib.sha256(body).hexdigest()
        while len(_KNOWN) > MOST_KNOWN:
            _KNOWN.pop(next(iter(_KNOWN), 0), None)
    return known[1:]


MOST_KNOWN: Final = 32
_KNOWN: Final[dict[int, tuple[Workflow, bytes, str]]] = {}
"""By identity. The definition is kept with it: no other can come to have the same."""


def _sparse(value: Any) -> Any:
    """A part of a definition without what equals its default. Only as deep as definitions are nested."""
    if isinstance(value, _Value):
        return {
            name: _sparse(one)
            for name, attribute, default in _fields(type(value))
            if (one := getattr(value, attribute)) is not default and one != default
        }
    if isinstance(value, tuple):
        return [_sparse(one) for one in value]
    if isinstance(value, Mapping) and value and isinstance(next(iter(value.values())), _Value):
        return {key: _sparse(one) for key, one in value.items()}
    return value


@cache
def _fields(kind: type[_Value]) -> tuple[tuple[str, str, Any], ...]:
    """Name in the file, name of the attribute and default of each field."""
    return tuple(
        (
            field.encode_name,
            field.name,
            field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory(),
        )
        for field in msgspec.structs.fields(kind)
    )


def decode(data: bytes) -> Workflow:
    """The inverse of `encode`."""
    return msgspec.json.decode(data, type=Workflow)


def content_hash(workflow: Workflow) -> str:
    return _encoded(workflow)[1]
