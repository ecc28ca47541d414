"""Which of its legal targets a routed step takes: the first hit of a fixed order.

Conditions, branches, a tie-breaker, the way back, the way on. A cap only closes ways back; it
never hides a condition. What a target means for the run is the core's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from penstock.workflow.expr import Expression, Failure
from penstock.workflow.routes import Router
from penstock.workflow.spec import ExprPolicy

STALLED = 3
"""Equal rounds of a loop that make a stall."""

DEEPEST = 3
"""Detours within detours."""

Evaluate = Callable[[Expression], Any]
Closed = Callable[[int], str]
"""Why a target cannot be taken now; empty when it can."""

Evaluated = dict[str, Any]


class Choice(Struct, frozen=True):
    """What a router does next."""

    target: int | None
    """A step, `END` or `HUMAN`; None when there is no way left."""
    rule: str
    evaluated: tuple[Evaluated, ...] = ()
    candidates: tuple[int, ...] = ()
    reason: str = ""


class Tie(Struct, frozen=True):
    """The rules leave it open: a tie-breaker may choose among these."""

    candidates: tuple[int, ...]
    evaluated: tuple[Evaluated, ...] = ()


class Asking(Struct, frozen=True):
    """What the choice depends on besides the router itself."""

    evaluate: Evaluate
    closed: Closed
    failed: bool = False
    """The step failed: only rules that ask about that count."""
    on_error: ExprPolicy = "fallthrough"
    clock: Callable[[], int] | None = None
    """Nanoseconds, to put on record what an expression cost."""


def choose(router: Router, asking: Asking) -> Choice | Tie:
    """The first legal target that applies."""
    log: list[Evaluated] = []
    found = _by_conditions(router, asking, log) or _by_branches(router, asking, log)
    if found is not None:
        return found
    if asking.failed:
        return Choice(None, "failed", tuple(log), reason="no rule is for a failure")
    halted = any("error" in entry for entry in log) and asking.on_error != "fallthrough"
    if not halted:
        open_targets = tuple(target for target in router.tie_targets if not asking.closed(target))
        if len(open_targets) > 1:
            return Tie(open_targets, tuple(log))
    elif asking.on_error == "halt":
        return Choice(None, "halt", tuple(log), reason=_first_error(log))
    return fallback(router, asking.closed, tuple(log), skip_loop=halted)


def fallback(
    router: Router, closed: Closed, log: tuple[Evaluated, ...] = (), *, skip_loop: bool = False
) -> Choice:
    """The way back, or else the way on."""
    capped = ""
    if router.loop_target is not None and not skip_loop:
        capped = closed(router.loop_target)
        if not capped:
            return Choice(router.loop_target, "loop", log)
    if router.next is not None:
        why = closed(router.next)
        if not why:
            return Choice(router.next, "next", log, reason=capped)
        capped = capped or why
    capped = capped or next((entry["closed"] for entry in log if "closed" in entry), "")
    if capped:
        return Choice(None, "cap", log, reason=capped)
    return Choice(None, "none", log, reason="no rule applies, and there is no `next`")


def _by_conditions(router: Router, asking: Asking, log: list[Evaluated]) -> Choice | None:
    for expression, target in router.conditions:
        if asking.failed and ("status",) not in expression.reads:
            continue
        entry: Evaluated = {"expr": expression.source, "target": target}
        value = _value(expression, asking, entry, log)
        if isinstance(value, Failure):
            if asking.on_error != "fallthrough":
                return None
        elif value is True:
            why = asking.closed(target)
            if not why:
                return Choice(target, "condition", tuple(log))
            entry["closed"] = why
    return None


def _by_branches(router: Router, asking: Asking, log: list[Evaluated]) -> Choice | None:
    if router.on is None or (log and "error" in log[-1] and asking.on_error != "fallthrough"):
        return None
    if asking.failed:
        key: str | None = "failed"
        entry: Evaluated = {"expr": "status", "value": "failed"}
        log.append(entry)
    else:
        entry = {"expr": router.on.source}
        value = _value(router.on, asking, entry, log)
        key = None if isinstance(value, Failure) else branch_key(value)
    if key is None or key not in router.branches:
        return None
    target = entry["target"] = router.branches[key]
    why = asking.closed(target)
    if not why:
        return Choice(target, "branch", tuple(log))
    entry["closed"] = why
    return None


def branch_key(value: Any) -> str | None:
    """How a value is written as the key of a branch."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value).decode()


def _value(expression: Expression, asking: Asking, entry: Evaluated, log: list[Evaluated]) -> Any:
    clock = asking.clock
    began = clock() if clock else 0
    value = asking.evaluate(expression)
    if clock:
        entry["us"] = (clock() - began) / 1000
    if isinstance(value, Failure):
        entry["error"] = value.message
    else:
        entry["value"] = value if not isinstance(value, str) else value[:200]
    log.append(entry)
    return value


def _first_error(log: Sequence[Evaluated]) -> str:
    entry = next(entry for entry in log if "error" in entry)
    return f"{entry['expr']}: {entry['error']}"
