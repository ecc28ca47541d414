"""A small workflow as data, together with what its steps are going to do.

Random tests draw a `Sketch`, run it and compare: what each step does is known beforehand,
so what the run must come to is known as well (`outcomes`). `build` turns the sketch into a
workflow whose functions obey it and note in a `Record` when they were called.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.testing import clock
from penstock.workflow.builder import WorkflowBuilder
from penstock.workflow.spec import Effect, ExprPolicy, JoinRule, Routing

HANG = 3600.0
"""Seconds that a hanging step takes. Nothing in a sketch allows that much."""

HOSTILE: tuple[dict[str, Any], ...] = (
    {},
    {"next_step_id": "s1", "target": "s0", "route": "end", "goto": ["s2"]},
    {"status": "s1", "verdict": "${ steps.s0.output }", "loop_target": "s0"},
    {"yaml": "steps:\n  - id: evil\n    uses: py:os:system\n", "steps": [{"id": "evil"}]},
    {"__proto__": {"status": "human"}, "constructor": "end", "status": "__proto__"},
    {"status": "x" * 70_000, "decision": "approve", "by": "policy"},
    {"status": {"deep": [None, True, -0.0]}, "value": "1"},
)
"""What steps may say to lead a run astray. They are values, and nothing else."""

Key = tuple[str, int | None]
"""A step and, in a map, the item."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What one piece of work does, call by call."""

    value: int = 1
    """Part of its output."""
    seconds: float = 0.0
    fails: int = 0
    """How many calls fail before one succeeds."""
    hangs: bool = False
    """A failing call takes too long instead of raising."""
    later: tuple[int, ...] = ()
    """What `value` is in iterations after the first, the last of them from then on."""
    hostile: int = 0
    """Which of `HOSTILE` its output is mixed with; 0 for none."""

    def value_in(self, iteration: int) -> int:
        values = (self.value, *self.later)
        return values[min(iteration, len(values)) - 1]


@dataclass(frozen=True, slots=True)
class Condition:
    """A `when`, and what it comes to. Reads an input, or the result of a step."""

    holds: bool = True
    step: str = ""
    """Compares this step's value; empty: the condition is an input."""
    value: int = 1

    @property
    def text(self) -> str:
        if self.step:
            return f"steps.{self.step}.output.value == {self.value}"
        return "inputs.yes" if self.holds else "inputs.no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One step."""

    id: str
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    """Needs whose outputs are arguments."""
    join: JoinRule = "all_success"
    when: Condition | None = None
    fate: Fate = Fate()
    items: tuple[Fate, ...] | None = None
    """One fate for each item of a `for_each`; None for a plain step."""
    keep: bool = False
    """`on_item_error: keep`."""
    max_parallel: int | None = None
    max_attempts: int = 1
    backoff: float = 1.0
    timeout: float | None = None
    effect: Effect = "read"
    carry_on: bool = False
    """`on_error: continue`."""
    blocking: bool = False
    """A plain function, in a thread."""
    child: Sketch | None = None
    """The step is this workflow."""
    routing: Routing | None = None
    approval: bool = False
    on_expr_error: ExprPolicy | None = None

    def work(self) -> dict[Key, Fate]:
        """Every piece of work of this step and its fate."""
        if self.items is None:
            return {(self.id, None): self.fate}
        return {(self.id, n): fate for n, fate in enumerate(self.items)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    nodes: tuple[Node, ...]
    name: str = "sketch"
    max_parallel: int = 32
    outputs: tuple[str, ...] = ()
    """Steps whose outputs are the workflow's."""

    def __getitem__(self, step: str) -> Node:
        return next(node for node in self.nodes if node.id == step)


@dataclass(slots=True)
class Call:
    """One call of a step's function, seen from inside."""

    workflow: str
    step: str
    item: int | None
    number: int
    """The how-manieth call of this piece of work it is, from 1."""
    got: dict[str, Any]
    """The outputs of other steps, as they arrived."""
    began: float
    ended: float | None = None
    """None: the call was never let go, as a thread that hangs."""
    round: int = 1
    """The iteration, as the step's own expressions see it."""


class Record:
    """What the functions of a sketch saw. Make one for each run, inside its event loop."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self._now = now or asyncio.get_running_loop().time
        self._lock = threading.Lock()
        self._active: Counter[tuple[str, str]] = Counter()
        self.calls: list[Call] = []
        self.most: Counter[tuple[str, str]] = Counter()
        """The most calls that went on at once: for each (workflow, step), and for (workflow, "")."""

    def begin(
        self, workflow: str, step: str, item: int | None, got: Mapping[str, Any], round: int = 1
    ) -> Call:
        with self._lock:
            same = (workflow, step, item, round)
            number = 1 + sum((c.workflow, c.step, c.item, c.round) == same for c in self.calls)
            call = Call(workflow, step, item, number, copy.deepcopy(dict(got)), self._now(), round=round)
            self.calls.append(call)
            self._count(call, 1)
            return call

    def end(self, call: Call) -> None:
        with self._lock:
            call.ended = self._now()
            self._count(call, -1)

    def let_go(self, call: Call) -> None:
        """A thread that hangs does not hold a slot: the engine has given it up."""
        with self._lock:
            self._count(call, -1)

    def _count(self, call: Call, by: int) -> None:
        for key in ((call.workflow, call.step), (call.workflow, "")):
            self._active[key] += by
            self.most[key] = max(self.most[key], self._active[key])


def build(sketch: Sketch, record: Record) -> WorkflowBuilder:
    """The sketch as a workflow. Its functions do as their fates say, and change what they were given."""
    flow = WorkflowBuilder(sketch.name, max_parallel=sketch.max_parallel)
    flow.input("yes", "boolean", default=True)
    flow.input("no", "boolean", default=False)
    for node in sketch.nodes:
        uses = build(node.child, record) if node.child else _function(sketch.name, node, record)
        flow.step(node.id, uses, **_options(node))
    for step in sketch.outputs:
        flow.output(step, f"${{ steps.{step}.output }}")
    return flow


def _options(node: Node) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if node.child is None:
        arguments["got"] = {need: f"${{ steps.{need}.output }}" for need in node.reads}
        if any(fate.later for fate in node.work().values()):
            arguments["round"] = "${ iteration }"
    options: dict[str, Any] = {
        "needs": node.needs,
        "join": node.join,
        "when": node.when.text if node.when else None,
        "retry": {"max_attempts": node.max_attempts, "backoff": node.backoff},
        "timeout": node.timeout,
        "effect": node.effect,
        "on_error": "continue" if node.carry_on else "fail",
        "approval": "always" if node.approval else None,
        "on_expr_error": node.on_expr_error,
    }
    if node.items is not None:
        options["for_each"] = list(range(len(node.items)))
        options["on_item_error"] = "keep" if node.keep else "fail"
        options["max_parallel"] = node.max_parallel
        if node.child is None:
            arguments["item"] = "${ item }"
    if node.routing is not None:
        options["routing"] = msgspec.to_builtins(node.routing)
    return {key: value for key, value in options.items() if value is not None} | {"with_": arguments}


def output_of(node: Node, fate: Fate, iteration: int = 1) -> dict[str, Any]:
    """What a call that succeeds returns."""
    value = fate.value_in(iteration)
    return {"step": node.id, "value": value, "deep": [[node.id]], **HOSTILE[fate.hostile]}


def _function(workflow: str, node: Node, record: Record) -> Callable[..., Any]:
    fates = node.work()

    def begin(got: dict[str, Any], item: int | None, round: int) -> tuple[Call, Fate]:
        call = record.begin(workflow, node.id, item, got, round)
        _scribble(got)
        return call, fates[node.id, item]

    def finish(call: Call, fate: Fate) -> dict[str, Any]:
        if call.number <= fate.fails:
            msg = f"call {call.number} of {node.id} fails"
            raise ValueError(msg)
        return output_of(node, fate, call.round)

    async def step(got: dict[str, Any], item: int | None = None, round: int = 1) -> dict[str, Any]:
        call, fate = begin(got, item, round)
        try:
            seconds = HANG if fate.hangs and call.number <= fate.fails else fate.seconds
            if seconds:
                await asyncio.sleep(seconds)
            return finish(call, fate)
        finally:
            record.end(call)

    def blocking(got: dict[str, Any], item: int | None = None, round: int = 1) -> dict[str, Any]:
        call, fate = begin(got, item, round)
        if fate.hangs and call.number <= fate.fails:
            record.let_go(call)
            clock.sleep(HANG)
        try:
            if fate.seconds:
                clock.sleep(fate.seconds)
            return finish(call, fate)
        finally:
            if not fate.hangs or call.number > fate.fails:
                record.end(call)

    return blocking if node.blocking else step


def _scribble(got: dict[str, Any]) -> None:
    """Spoil the arguments: nobody else may notice."""
    for value in got.values():
        if isinstance(value, dict) and "deep" in value:
            value["deep"][0].append("scribbled")
    got.clear()
