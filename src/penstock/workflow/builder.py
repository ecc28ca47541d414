"""A workflow written in Python: the same `Workflow` that a file gives, with the same hash.

Options are read by the tables of the file format, so a duration, a short form or a mistake means
the same in both. Functions given as steps are remembered beside the definition, which only
has their names. Nothing runs here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET

from penstock.errors import DefinitionError, Problem
from penstock.ids import StepId
from penstock.workflow.graph import Graph
from penstock.workflow.keys import CONFIG, INPUT, STEP, TOP
from penstock.workflow.kinds import Section
from penstock.workflow.nodes import Node
from penstock.workflow.plain import Convert, plain
from penstock.workflow.problems import Problems
from penstock.workflow.refs import Ref, StepRef, as_name, as_value
from penstock.workflow.spec import Config, Effect, ExprPolicy, Input, InputType, JoinRule, Step, Workflow
from penstock.workflow.validate import check

Uses: TypeAlias = "str | Callable[..., Any] | WorkflowBuilder | Workflow"
Seconds = str | float
"""A duration, `"30s"`, or a number of seconds."""
Approval = Literal["always", "critical_only", "never"] | bool

_TYPES: Final[Mapping[type, InputType]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}
_PythonType = type[str] | type[int] | type[float] | type[bool] | type[list[Any]] | type[dict[str, Any]]
_ON_TOP: Final = ("reducers", "schedule", "on_complete", "on_failure")
"""Keywords of a workflow that are not part of `config`."""


class WorkflowBuilder:
    """A workflow in the making. `build` gives the definition; adding to it afterwards is fine."""

    def __init__(
        self,
        name: str,
        *,
        version: str | int = "",
        description: str = "",
        outputs: Mapping[str, Any] | None = None,
        **config: Any,
    ) -> None:
        """Other keywords are keys of `config`, or `reducers`, `schedule`, `on_complete`, `on_failure`."""
        top: dict[str, Any] = {"name": name, "version": version, "description": description}
        top |= {key: config.pop(key) for key in _ON_TOP if key in config}
        self._top = _fields(TOP, top, "")
        if settings := _fields(CONFIG, config, "config"):
            self._top["config"] = Config(**settings)
        self._inputs: dict[str, Input] = {}
        self._steps: dict[StepId, Step] = {}
        self._outputs: dict[str, Any] = {}
        self._built: tuple[Workflow, Graph] | None = None
        self.functions: dict[StepId, Callable[..., Any]] = {}
        """The functions given as steps. A closure has no name to import it by, but works in this process."""
        self.children: dict[str, Workflow] = {}
        """The workflows given as steps, by name."""
        self.builders: dict[str, WorkflowBuilder] = {}
        """Those of them that were builders: they know the functions of their own steps."""
        for key, value in (outputs or {}).items():
            self.output(key, value)

    def __repr__(self) -> str:
        return f"WorkflowBuilder({self.name!r}, {len(self._steps)} steps)"

    @property
    def name(self) -> str:
        name: str = self._top["name"]
        return name

    def input(
        self,
        name: str,
        /,
        type: InputType | _PythonType | None = None,
        *,
        default: Any = UNSET,
        enum: Iterable[Any] | None = None,
        description: str | None = None,
    ) -> Ref:
        """Declare an input; without a default a value must be given. Naming it again refers to it."""
        given = {
            "type": _type_name(type),
            "enum": None if enum is None else list(enum),
            "description": description,
        }
        options = {key: value for key, value in given.items() if value is not None}
        if default is not UNSET:
            options["default"] = default
        if options or name not in self._inputs:
            where = f"inputs.{name}"
            declared = Input(**_fields(INPUT, options, where))
            if self._inputs.get(name, declared) != declared:
                raise _refused(where, "the input is already declared otherwise", "declare it once")
            self._inputs[name] = declared
            self._built = None
        return Ref("inputs")[name]

    def step(
        self,
        id: str,
        uses: Uses,
        /,
        *,
        needs: str | StepRef | Iterable[str | StepRef] = (),
        when: str | Ref | None = None,
        join: JoinRule | None = None,
        for_each: str | Ref | StepRef | Iterable[Any] | None = None,
        max_parallel: int | None = None,
        on_item_error: Literal["fail", "keep"] | None = None,
        retry: int | Mapping[str, Any] | None = None,
        timeout: Seconds | None = None,
        gate: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None = None,
        approval: Approval | None = None,
        critical: bool | None = None,
        routing: Mapping[str, Any] | None = None,
        effect: Effect | None = None,
        on_orphan: Literal["ask", "rerun", "fail"] | None = None,
        on_error: Literal["fail", "continue"] | None = None,
        on_reject: Literal["fail", "abort"] | None = None,
        on_expr_error: ExprPolicy | None = None,
        budget: Mapping[str, Any] | None = None,
        model: str | None = None,
        ail: bool | Mapping[str, Any] | None = None,
        set: Mapping[str, Any] | None = None,
        estimate: Seconds | None = None,
        with_: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> StepRef:
        """Add a step. Other keywords are its arguments; `with_` takes those whose names clash."""
        name, where = StepId(id), f"steps.{id}"
        if name in self._steps:
            raise _refused(where, "there is already a step of this id", "give each step an id of its own")
        options = {
            "when": when,
            "join": join,
            "for_each": for_each,
            "max_parallel": max_parallel,
            "on_item_error": on_item_error,
            "retry": retry,
            "timeout": timeout,
            "gate": gate,
            "approval": approval,
            "critical": critical,
            "routing": routing,
            "effect": effect,
            "on_orphan": on_orphan,
            "on_error": on_error,
            "on_reject": on_reject,
            "on_expr_error": on_expr_error,
            "budget": budget,
            "model": model,
            "ail": ail,
            "set": set,
            "estimate": estimate,
        }
        given = {key: value for key, value in options.items() if value is not None}
        self._steps[name] = Step(
            id=name,
            uses=self._called(name, uses),
            with_=plain({**with_, **arguments} if with_ else arguments, f"{where}.with", as_value),
            needs=_needs(needs, f"{where}.needs") if needs else (),
            **(_options(given, where) if given else {}),
        )
        self._built = None
        return StepRef(name)

    def output(self, name: str, value: Any, /) -> None:
        """Declare what the workflow returns: a reference, or any JSON value that holds some."""
        self._outputs[name] = plain(value, f"outputs.{name}", as_value)
        self._built = None

    def build(self) -> Workflow:
        """The definition, checked. Raises DefinitionError with everything that is wrong."""
        return self._compiled()[0]

    @property
    def graph(self) -> Graph:
        """The definition, compiled."""
        return self._compiled()[1]

    def _compiled(self) -> tuple[Workflow, Graph]:
        if self._built is None:
            workflow = Workflow(
                steps=tuple(self._steps.values()),
                inputs=dict(self._inputs),
                outputs=plain(self._outputs),
                **self._top,
            )
            self._built = workflow, check(workflow)
        return self._built

    def _called(self, step: StepId, uses: Uses) -> str:
        """What the definition says for it; functions and children are remembered beside the definition."""
        if isinstance(uses, str):
            return uses
        where = f"steps.{step}.uses"
        if isinstance(uses, WorkflowBuilder | Workflow):
            return f"workflow:{self._child(uses, where)}"
        if not callable(uses):
            hint = "give text such as 'server:tool', a function or a workflow"
            raise _refused(where, f"a value of type {type(uses).__name__} cannot be called", hint)
        self.functions[step] = uses
        return f"py:{_import_name(uses)}"

    def _child(self, uses: WorkflowBuilder | Workflow, where: str) -> str:
        child = uses if isinstance(uses, Workflow) else uses.build()
        known = self.children.setdefault(child.name, child)
        if known is not child and known != child:
            message = f"there are two workflows called {child.name!r}"
            raise _refused(where, message, "give them different names")
        if isinstance(uses, WorkflowBuilder):
            self.builders[child.name] = uses
        return child.name


def _fields(
    section: Section, given: Mapping[str, Any], where: str, convert: Convert = as_value
) -> dict[str, Any]:
    """Values from Python, read as the file format reads them."""
    node = Node.from_plain(plain(given, where, convert))
    problems = Problems()
    fields = section.fields(node, problems)
    if problems:
        raise problems.error(node, prefix=where)
    return fields


def _type_name(given: Any) -> Any:
    if isinstance(given, type):
        return _TYPES.get(given, given.__name__)
    return given


def _options(given: dict[str, Any], where: str) -> dict[str, Any]:
    if isinstance(given.get("when"), bool):
        # `reference == 3` is False at once in Python, and would skip the step for ever.
        hint = 'write when="steps.count.output == 3"'
        raise _refused(where, "a condition is text, not a Python truth value", hint)
    routes: dict[str, Any] = {key: given.pop(key) for key in ("routing", "ail") if key in given}
    fields = _fields(STEP, given, where) if given else {}
    return fields | _fields(STEP, routes, where, as_name) if routes else fields


def _needs(needs: str | StepRef | Iterable[str | StepRef], where: str) -> tuple[StepId, ...]:
    given = (needs,) if isinstance(needs, str | StepRef) else tuple(needs)
    for need in given:
        if not isinstance(need, str | StepRef):
            hint = "give ids, or what flow.step(...) returned"
            raise _refused(where, f"{need!r} is not a step", hint)
    return tuple(StepId(need) if isinstance(need, str) else need.id for need in given)


def _import_name(function: Any) -> str:
    """`module:name`; in angle brackets where no import would find it."""
    named = getattr(function, "function", function)
    module = getattr(named, "__module__", None) or "__main__"
    name = getattr(named, "__qualname__", None) or f"<{type(named).__qualname__}>"
    return f"{module}:{name}"


def _refused(where: str, message: str, hint: str) -> DefinitionError:
    return DefinitionError([Problem(message, hint, where=where)])
