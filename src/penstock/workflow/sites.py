"""The places in a step where expressions stand: what each may read, and what that implies.

`steps.NAME` makes a need wherever it stands; `previous.NAME` never does. Expressions that
decide something (`when`, routing, gates, `set`, rules) also say which parts of an output must stay at
hand while the run goes. How an expression is written and evaluated is `expr`'s business.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from penstock.errors import ExpressionError
from penstock.workflow import expr
from penstock.workflow.expr import Expression, Path, Scope
from penstock.workflow.findings import Findings, Place, below
from penstock.workflow.interpolate import Template, compile_value
from penstock.workflow.spec import Ail, Check, Gate, Step, Workflow

Names = frozenset[str]

BEFORE: Final[Names] = frozenset({"inputs", "steps", "previous", "context", "iteration", "route", "run"})
"""What `when` and `for_each` may read: the step has not begun."""

ARGS: Final = BEFORE | {"attempts"}
"""What `with` may read; in a map also `item`."""

AFTER: Final = ARGS | {"output", "status"}
"""What `set` and gates may read: there is a result. A map's gate judges one `item`."""

ROUTING: Final = AFTER | {"max_iterations", "detour"}

SHARED_GATE: Final = AFTER - {"steps", "previous"}
"""A gate for every step cannot make every step need another."""

ENDED: Final[Names] = frozenset({"inputs", "steps", "context", "run"})
"""What outputs and rules may read: they belong to no step."""

Expect = Literal["bool", "list", "any"]


@dataclass(frozen=True, slots=True)
class CompiledCheck:
    """One check of a gate. Exactly one of `expr`, `tool`, `run`, `schema` is set."""

    name: str
    expr: Expression | None = None
    tool: str = ""
    args: Template | None = None
    run: Template | None = None
    """Renders to the argument vector."""
    timeout: float | None = None
    schema: Mapping[str, Any] | None = None
    """A JSON Schema of the whole output: the check of agents that promise a form."""


class Sites:
    """The expressions of some steps, compiled, and what they read."""

    def __init__(self, workflow: Workflow, known: Collection[str], findings: Findings) -> None:
        self._inputs = {name: one.type for name, one in workflow.inputs.items()}
        self._known = known
        self._findings = findings
        self._scopes: dict[Names, Scope] = {}
        self._step = ""
        self.args: dict[int, Template] = {}
        self.when: dict[int, Expression] = {}
        self.for_each: dict[int, Expression] = {}
        self.sets: dict[int, tuple[tuple[str, Template], ...]] = {}
        self.gates: dict[int, tuple[CompiledCheck, ...]] = {}
        self.step_rules: dict[int, tuple[Expression, ...]] = {}
        self.needed: list[str] = []
        """Steps that the step at hand reads by `steps.NAME`."""
        self.control: dict[str, dict[Path, None]] = {}
        """Step to the paths below its output that decisions read, in order of appearance."""

    def enter(self, i: int, step: Step, shared: tuple[CompiledCheck, ...]) -> None:
        """Compile everything in a step but its routing. `shared` is the gate of steps without one."""
        self._step = step.id
        self.needed = []
        place: Place = ("steps", i)
        item: Names = frozenset({"item"}) if step.for_each else frozenset()
        if step.with_ and (args := self.values(step.with_, ARGS | item, (*place, "with"))):
            self.args[i] = args
        if step.when and (when := self.decision(step.when, BEFORE, (*place, "when"), "bool")):
            self.when[i] = when
        if step.for_each:
            self._each(i, step.for_each)
        if step.set:
            self.sets[i] = self._sets(step.set, (*place, "set"))
        if step.gate is not None:
            self.gates[i] = self.gate(step.gate, AFTER | item, (*place, "gate"))
        elif shared:
            self.gates[i] = shared
        if isinstance(step.ail, Ail):
            self.step_rules[i] = self.rules(step.ail, (*place, "ail"))

    def _each(self, i: int, source: str) -> None:
        """A map's list is no decision: it may be large, and only its length is kept at hand."""
        place: Place = ("steps", i, "for_each")
        each = self._expression(source, BEFORE, place, "list")
        if each is not None:
            self.for_each[i] = each
            self._note(each.reads, place)

    def decision(
        self, source: str, names: Names, place: Place, expect: Expect, *, own: bool = False
    ) -> Expression | None:
        """An expression that decides something. `own`: it reads the step's own `output` later on."""
        found = self._expression(source, names, place, expect)
        if found is not None:
            self._note(found.reads, place, control=True, own=own)
        return found

    def values(self, value: Any, names: Names, place: Place, *, control: bool = False) -> Template | None:
        """A value with `${ … }` in it."""
        found = self._template(value, names, place)
        if found is not None:
            self._note(found.reads, place, control=control)
        return found

    def gate(self, gate: Gate, names: Names, place: Place) -> tuple[CompiledCheck, ...]:
        return tuple(self._check(check, names, (*place, "checks", n)) for n, check in enumerate(gate.checks))

    def rules(self, ail: Ail, place: Place) -> tuple[Expression, ...]:
        """The conditions of a policy decider's rules. They belong to no step and make no needs."""
        needed, self.needed = self.needed, []
        own, self._step = self._step, ""
        places = ((rule.if_, (*place, "rules", n, "if")) for n, rule in enumerate(ail.rules))
        found = [self.decision(source, ENDED, spot, "bool") for source, spot in places]
        self.needed, self._step = needed, own
        return tuple(one for one in found if one is not None)

    def outputs(self, outputs: Mapping[str, Any]) -> tuple[tuple[str, Template], ...]:
        self._step = ""
        found = ((name, self.values(value, ENDED, ("outputs", name))) for name, value in outputs.items())
        return tuple((name, template) for name, template in found if template is not None)

    def _check(self, check: Check, names: Names, place: Place) -> CompiledCheck:
        name = check.name or check.expr or check.tool or " ".join(check.run)
        condition = args = run = None
        if check.expr:
            condition = self.decision(check.expr, names, (*place, "expr"), "bool")
        if check.with_:
            args = self.values(check.with_, names, (*place, "with"), control=True)
        if check.run:
            run = self.values(list(check.run), names, (*place, "run"), control=True)
        return CompiledCheck(name, condition, check.tool, args, run, check.timeout)

    def _sets(self, sets: Mapping[str, str], place: Place) -> tuple[tuple[str, Template], ...]:
        found = ((key, self.values(value, AFTER, (*place, key), control=True)) for key, value in sets.items())
        return tuple((key, template) for key, template in found if template is not None)

    def _scope(self, names: Names) -> Scope:
        scope = self._scopes.get(names)
        if scope is None:
            scope = self._scopes[names] = Scope(names=names, inputs=self._inputs, steps=self._known)
        return scope

    def _expression(self, source: str, names: Names, place: Place, expect: Expect) -> Expression | None:
        try:
            return expr.compile(source, self._scope(names), expect=expect)
        except ExpressionError as error:
            self._findings.add(place, error.message, error.hint)
            return None

    def _template(self, value: Any, names: Names, place: Place) -> Template | None:
        try:
            return compile_value(value, self._scope(names))
        except ExpressionError as error:
            if not isinstance(value, Mapping):
                self._findings.add(below(place, error.where), error.message, error.hint)
                return None
        for key, part in value.items():  # one message for each bad entry, not only for the first
            try:
                compile_value(part, self._scope(names))
            except ExpressionError as error:
                self._findings.add(below((*place, key), error.where), error.message, error.hint)
        return None

    def _note(self, reads: Iterable[Path], place: Place, *, control: bool = False, own: bool = False) -> None:
        """Remember what was read: as a need, and as something that decisions look at."""
        for path in reads:
            root = path[0]
            if root == "output" and own:
                self._keep(self._step, path[1:])
            elif root in ("steps", "previous") and len(path) > 1:
                if root == "steps":
                    self._need(path[1], place)
                if control and (len(path) == 2 or path[2] == "output"):
                    self._keep(path[1], path[3:])

    def _need(self, name: str, place: Place) -> None:
        if name != self._step:
            self.needed.append(name)
            return
        after = len(place) > 2 and place[2] in ("set", "gate", "routing")
        hint = "say `output` for this step's own result" if after else ""
        hint = hint or f"for its result in the last iteration say previous.{name}"
        self._findings.add(place, f"steps.{name} is this step itself", hint)

    def keep_detour(self, reads: Iterable[Path], detour: str) -> None:
        """A router may look at what its detour gave."""
        for path in reads:
            if path[0] == "detour" and len(path) > 1 and path[1] == "output":
                self._keep(detour, path[2:])

    def _keep(self, name: str, path: Path) -> None:
        self.control.setdefault(name, {})[path] = None
