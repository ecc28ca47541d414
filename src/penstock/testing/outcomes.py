"""What a sketch must come to: a second opinion on outcomes, and nothing else.

Steps are looked at in order, each once, with the rules as the documentation states them.
There is no time here, no queue and no event; an engine that disagrees with this page is
wrong, or the page is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.testing.sketch import Fate, Node, Sketch, output_of

Status = Literal["succeeded", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Outcome:
    status: Status
    kind: str = ""
    """Of a skip: `condition` or `upstream_failed`."""
    attempts: int = 0
    """Of a plain step. A map has attempts for each item."""
    output: Any = None

    def counts_as(self, node: Node) -> str:
        """How a join sees it: `success`, `failure` or `skip`."""
        if self.status == "succeeded" or (self.status == "failed" and node.carry_on):
            return "success"
        if self.status == "failed" or self.kind == "upstream_failed":
            return "failure"
        return "skip"


@dataclass(frozen=True, slots=True)
class Ending:
    """How the whole run must end."""

    status: Literal["succeeded", "failed", "partial"]
    outputs: Mapping[str, Any]
    steps: Mapping[str, Outcome]


def expected(sketch: Sketch) -> Ending:
    """What every run of the sketch comes to when nobody interferes."""
    steps: dict[str, Outcome] = {}
    for node in sketch.nodes:
        steps[node.id] = _judge(sketch, node, steps)
    outputs = {step: steps[step].output for step in sketch.outputs}
    failed = any(steps[node.id].status == "failed" and not node.carry_on for node in sketch.nodes)
    produced = any(value is not None for value in outputs.values())
    return Ending("succeeded" if not failed else "partial" if produced else "failed", outputs, steps)


def _judge(sketch: Sketch, node: Node, before: Mapping[str, Outcome]) -> Outcome:
    needs = {before[need].counts_as(sketch[need]) for need in node.needs}
    skipped = _joined(node, needs)
    if skipped:
        return Outcome("skipped", skipped)
    if node.when is not None and not _holds(node, before):
        return Outcome("skipped", "condition")
    if node.items is None:
        return _done(node, node.fate)
    items = [_done(node, fate) for fate in node.items]
    if not node.keep and any(item.status == "failed" for item in items):
        return Outcome("failed")
    return Outcome("succeeded", output=[item.output for item in items])


def _joined(node: Node, needs: set[str]) -> str:
    """Why the needs keep a step from running; empty when they do not."""
    match node.join:
        case "all_done":
            return ""
        case "any_success" if "success" in needs or not needs:
            return ""
        case "none_failed" if "failure" not in needs:
            return ""
        case _ if "failure" in needs:
            return "upstream_failed"
        case _ if "skip" in needs:
            return "condition"
        case _:
            return ""


def _holds(node: Node, before: Mapping[str, Outcome]) -> bool:
    condition = node.when
    if condition is None or not condition.step:
        return condition is None or condition.holds
    output = before[condition.step].output
    return output is not None and bool(output["value"] == condition.value)


def _done(node: Node, fate: Fate) -> Outcome:
    """What one piece of work comes to after all its attempts."""
    if node.child is not None:
        ending = expected(node.child)
        good, spoilt = ending.status == "succeeded", node.max_attempts
        return Outcome(
            "succeeded" if good else "failed",
            attempts=1 if good else spoilt,
            output=dict(ending.outputs) if good else None,
        )
    # A write that timed out may have happened: it is not tried again.
    tries = 1 if fate.hangs and node.effect in ("write", "destructive") else node.max_attempts
    if fate.fails < tries:
        return Outcome("succeeded", attempts=fate.fails + 1, output=output_of(node, fate))
    return Outcome("failed", attempts=tries)
