"""Whether each value in a definition makes sense by itself: names, numbers, shapes.

Types are right when this is asked (`shape`). How steps hang together is not looked at
here (`graph`), nor is anything run, opened or imported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

from penstock.workflow.findings import Findings, Place
from penstock.workflow.inputs import TYPE_WORDS, among, fits, shown
from penstock.workflow.spec import (
    RESERVED_TARGETS,
    Ail,
    Budget,
    Check,
    Config,
    Gate,
    Input,
    Retry,
    Routing,
    Step,
    Workflow,
)

IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)

CEL_WORDS: Final = frozenset((
    "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let",
    "loop", "namespace", "null", "package", "return", "true", "var", "void", "while",
))  # fmt: skip
"""Names that no expression could say."""

KEPT: Final = ("checkpoints", "messages", "tasks")
"""What `retention` may say how many of to keep."""

REDUCERS: Final = ("last", "append", "merge", "sum", "max", "min")
STATE: Final = frozenset({"context", "messages", "tasks", "decisions"})
"""State that every run keeps by itself."""

_USES: Final = re.compile(
    r"""py:[A-Za-z_][\w.]*:\S+     # a Python function
      | agent:[\w./-]+
      | workflow:\S.*
      | (?!(?:py|agent|workflow):)[A-Za-z0-9_][\w.-]*:\S+     # a tool of a server
    """,
    re.ASCII | re.VERBOSE,
)
_FUNCTION: Final = re.compile(r"py:[A-Za-z_][\w.]*:\S+", re.ASCII)
_ABOVE_ZERO: Final = 1e-9
"""The least length of time that is one."""


def check_workflow_values(workflow: Workflow, findings: Findings) -> None:
    """Everything but the steps."""
    if not workflow.name.strip():
        findings.add(("name",), "a workflow needs a name")
    if not workflow.steps:
        findings.add(("steps",), "a workflow needs at least one step")
    for name, one in workflow.inputs.items():
        _check_input(name, one, findings)
    for key, reducer in workflow.reducers.items():
        _check_reducer(key, reducer, findings)
    _check_config(workflow.config, findings)
    ail = workflow.config.ail
    if ail is not None:
        check_ail(ail, ("config", "ail"), [step.id for step in workflow.steps], findings)


def check_step_values(step: Step, i: int, findings: Findings) -> None:
    place: Place = ("steps", i)
    _check_id(step.id, (*place, "id"), findings)
    if not _USES.fullmatch(step.uses):
        findings.add((*place, "uses"), f"{step.uses!r} is nothing that can be called", _uses_hint(step.uses))
    if step.max_parallel is not None or step.on_item_error != "fail":
        _check_map(step, place, findings)
    _check_least(step.timeout, _ABOVE_ZERO, (*place, "timeout"), findings)
    _check_least(step.estimate, 0, (*place, "estimate"), findings)
    if step.retry is not None:
        _check_retry(step.retry, (*place, "retry"), findings)
    if step.gate is not None:
        _check_gate(step.gate, (*place, "gate"), findings)
    if step.routing is not None:
        _check_routing(step.routing, (*place, "routing"), findings)
    if step.budget is not None:
        _check_budget(step.budget, (*place, "budget"), findings)
    for key in step.set:
        _check_key(key, (*place, "set", key), findings)


def check_ail(ail: Ail, place: Place, ids: Iterable[str], findings: Findings) -> None:
    known = dict.fromkeys(ids)
    _check_least(ail.timeout, _ABOVE_ZERO, (*place, "timeout"), findings)
    for n, name in enumerate(ail.after):
        if name not in known:
            findings.add((*place, "after", n), f"no step is called {name!r}", findings.near(name, known))
    for n, rule in enumerate(ail.rules):
        spot = (*place, "rules", n)
        fed, _, argument = rule.feeds.partition(".")
        if rule.feeds and not argument:
            findings.add((*spot, "feeds"), f"{rule.feeds!r} names no argument", "write STEP.ARGUMENT")
        elif rule.feeds and fed not in known:
            findings.add((*spot, "feeds"), f"no step is called {fed!r}", findings.near(fed, known))
        if rule.do == "inject" and not rule.tasks:
            findings.add(spot, "injects nothing", "add `tasks`")
        if rule.do == "replan" and not rule.requirement:
            findings.add(spot, "does not say what the new plan is for", "add `requirement`")


def _check_id(name: str, place: Place, findings: Findings) -> None:
    if not IDENTIFIER.fullmatch(name):
        findings.add(place, f"{name!r} is not a name", _identifier_hint(name))
    elif name in RESERVED_TARGETS:
        findings.add(place, f"{name!r} is a route target of every workflow", "choose another name")
    elif name in CEL_WORDS:
        findings.add(place, f"{name!r} is a word of the expression language", "choose another name")


def _identifier_hint(name: str) -> str:
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    plain = f"_{plain}" if plain[:1].isdigit() else plain
    use = "use letters, digits and _"
    return f"{use}, e.g. {plain}" if IDENTIFIER.fullmatch(plain) else use


def _uses_hint(uses: str) -> str:
    kind, colon, rest = uses.partition(":")
    if kind == "py":
        return "write py:module:function"
    if kind in ("agent", "workflow"):
        return f"write {kind}:NAME"
    if not colon and re.fullmatch(r"[\w.]+\.\w+", uses, re.ASCII):
        module, _, function = uses.rpartition(".")
        return f"a Python function is py:{module}:{function}"
    if not colon and IDENTIFIER.fullmatch(uses):
        return f"write SERVER:{uses}; a Python function is py:MODULE:{uses}"
    if colon and rest and kind.strip() in ("python", "function"):
        return f"write py:{rest}"
    return "write server:tool, py:module:function, agent:name or workflow:name"


def _check_map(step: Step, place: Place, findings: Findings) -> None:
    _check_least(step.max_parallel, 1, (*place, "max_parallel"), findings)
    if not step.for_each:
        key = "max_parallel" if step.max_parallel is not None else "on_item_error"
        hint = "for the whole run say config.max_parallel" if key == "max_parallel" else "remove it"
        findings.add((*place, key), "means something only together with for_each", hint)


def _check_input(name: str, one: Input, findings: Findings) -> None:
    place: Place = ("inputs", name)
    if not IDENTIFIER.fullmatch(name) or name in CEL_WORDS:
        findings.add(place, f"{name!r} is not a name that expressions can say", _identifier_hint(name))
    for n, value in enumerate(one.enum):
        if not fits(value, one.type):
            findings.add((*place, "enum", n), f"{shown(value)} is not {TYPE_WORDS[one.type]}")
    if one.required:
        return
    if not fits(one.default, one.type):
        hint = "for an input that may have no value say type: any" if one.default is None else ""
        findings.add((*place, "default"), f"{shown(one.default)} is not {TYPE_WORDS[one.type]}", hint)
    elif one.enum and not among(one.default, one.enum):
        findings.add(
            (*place, "default"), f"{shown(one.default)} is not one of the allowed values", "see enum"
        )


def _check_reducer(key: str, reducer: str, findings: Findings) -> None:
    place: Place = ("reducers", key)
    _check_key(key, place, findings)
    if reducer not in REDUCERS and not _FUNCTION.fullmatch(reducer):
        hint = findings.near(reducer, REDUCERS) or f"one of {', '.join(REDUCERS)}, or py:module:function"
        findings.add(place, f"{reducer!r} is no reducer", hint)


def _check_key(key: str, place: Place, findings: Findings) -> None:
    if key in STATE:
        findings.add(place, f"{key!r} is kept by the run itself", "choose another key")
    elif not IDENTIFIER.fullmatch(key) or key in CEL_WORDS:
        findings.add(place, f"{key!r} is not a name that expressions can say", _identifier_hint(key))


def _check_config(config: Config, findings: Findings) -> None:
    place: Place = ("config",)
    _check_least(config.max_parallel, 1, (*place, "max_parallel"), findings)
    _check_least(config.timeout, _ABOVE_ZERO, (*place, "timeout"), findings)
    _check_least(config.wave_timeout, _ABOVE_ZERO, (*place, "wave_timeout"), findings)
    if config.retry is not None:
        _check_retry(config.retry, (*place, "retry"), findings)
    if config.gate is not None:
        _check_gate(config.gate, (*place, "gate"), findings, may_be_empty=True)
    if config.budget is not None:
        _check_budget(config.budget, (*place, "budget"), findings)
    for name, count in config.retention.items():
        if name not in KEPT:
            hint = findings.near(name, KEPT) or f"it has {', '.join(KEPT)}"
            findings.add((*place, "retention", name), f"unknown key {name!r}", hint)
        elif not isinstance(count, int) or isinstance(count, bool) or count < 0:
            findings.add(
                (*place, "retention", name), f"must be a whole number, 0 or more, not {shown(count)}"
            )
    for name, agent in config.agents.items():
        _check_least(agent.max_turns, 1, (*place, "agents", name, "max_turns"), findings)


def _check_retry(retry: Retry, place: Place, findings: Findings) -> None:
    _check_least(retry.max_attempts, 1, (*place, "max_attempts"), findings)
    _check_least(retry.backoff, 0, (*place, "backoff"), findings)
    _check_share(retry.jitter, (*place, "jitter"), findings)


def _check_gate(gate: Gate, place: Place, findings: Findings, *, may_be_empty: bool = False) -> None:
    _check_least(gate.max_attempts, 1, (*place, "max_attempts"), findings)
    if not gate.checks and not may_be_empty:
        findings.add(place, "a gate needs at least one check", 'add `checks`, e.g. [{expr: "output.ok"}]')
    for n, check in enumerate(gate.checks):
        _check_check(check, (*place, "checks", n), findings)


def _check_check(check: Check, place: Place, findings: Findings) -> None:
    ways = [name for name in ("expr", "tool", "run") if getattr(check, name)]
    if len(ways) != 1:
        what = f"has {' and '.join(ways)}" if ways else "checks nothing"
        findings.add(place, f"a check {what}", "give exactly one of expr, tool, run")
    if check.tool and (not _USES.fullmatch(check.tool) or check.tool.startswith(("agent:", "workflow:"))):
        findings.add(
            (*place, "tool"), f"{check.tool!r} is not a tool", "write server:tool or py:module:function"
        )
    if check.with_ and not check.tool:
        findings.add((*place, "with"), "means something only together with tool")
    _check_least(check.timeout, _ABOVE_ZERO, (*place, "timeout"), findings)


def _check_routing(routing: Routing, place: Place, findings: Findings) -> None:
    _check_least(routing.max_iterations, 1, (*place, "max_iterations"), findings)
    if routing.tie_breaker is not None:
        _check_share(routing.tie_breaker.confidence, (*place, "tie_breaker", "confidence"), findings)
        _check_least(routing.tie_breaker.timeout, _ABOVE_ZERO, (*place, "tie_breaker", "timeout"), findings)


def _check_budget(budget: Budget, place: Place, findings: Findings) -> None:
    for name in ("usd", "tokens", "wall", "tool_calls"):
        _check_least(getattr(budget, name), 0, (*place, name), findings)


def _check_least(value: float | None, least: float, place: Place, findings: Findings) -> None:
    if value is None or (value >= least and math.isfinite(value)):
        return
    bound = "more than 0" if least == _ABOVE_ZERO else f"{least:g} or more"
    findings.add(place, f"must be {bound}, not {value}")


def _check_share(value: float, place: Place, findings: Findings) -> None:
    if not 0 <= value <= 1:
        findings.add(place, f"must be between 0 and 1, not {value}")
