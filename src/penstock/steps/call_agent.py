"""A step that asks an agent: a child run in which every turn and every tool call is a task.

The child is an ordinary workflow of two steps, a turn and the calls it wants, in a loop. So a
crash repeats nothing that was paid for, an approval waits where every approval waits, and the
conversation is part of the run's state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Protocol, runtime_checkable

import msgspec

from penstock.errors import UnknownTool
from penstock.ids import StepId
from penstock.models.base import Answer, BadOutput, Message, Request, ToolCall, ToolSpec
from penstock.policy.arguments import complaint
from penstock.steps.base import DEFAULT_TIMEOUT, Billed, Prepared, Scene, TaskFailure, Work, child_failure
from penstock.steps.call_tool import CallTool
from penstock.steps.model_calls import Models, asked, record
from penstock.tools.base import Tool
from penstock.tools.names import wire_name
from penstock.workflow.graph import compile_graph
from penstock.workflow.spec import END, AgentSpec, Condition, Config, Effect, Input, Routing, Step, Workflow

TURN, CALL = StepId("turn"), StepId("call")
TURN_TIMEOUT = 300.0
"""Seconds for one turn, its failovers included."""

PARTING = 5.0
"""Seconds more for the task of a turn: the models say themselves that its time is up, and why."""

LONGEST = 20_000
"""Characters of a tool's result that a model is shown."""


@runtime_checkable
class Naming(Protocol):
    """Models that can tell beforehand whether they have what is named."""

    def unknown(self, *, tier: str = "", model: str = "") -> str:
        """Why a call that names this would be refused whatever it asks; empty when it would not."""
        ...


def unknown(models: Models, step: Step, spec: AgentSpec) -> str:
    """Why an agent could not be asked whatever it is asked; empty when it could, or when nobody can tell."""
    model = step.model or spec.model
    if not (spec.tier or model) or not isinstance(models, Naming):
        return ""
    return models.unknown(tier=spec.tier, model=model)


class Toolbox(Protocol):
    """Where an agent's tools are found."""

    def find(self, uses: str, *, folder: str | None = None) -> Tool: ...

    def ids(self) -> Sequence[str]: ...


def work(step: Step, spec: AgentSpec, models: Models, tools: Mapping[str, Tool], *, gated: bool) -> Work:
    """The work of asking an agent. `gated`: whether someone else judges the form of what it says."""
    flow = family(step, spec, models, tools)

    async def perform(scene: Scene) -> Any:
        inputs = {"request": scene.args, "attempts": scene.attempts}
        child = await scene.host.child(scene.task, flow, inputs)
        if child.status != "succeeded":
            raise child_failure("agent", child)
        said = child.outputs
        if said.get("stopped"):
            raise TaskFailure("turns", said["stopped"], usage=child.usage)
        if said.get("problems") and not gated:
            why = f"the agent's answer does not fit: {said['problems'][0]}"
            raise TaskFailure("output", why, usage=child.usage)
        return Billed(said["answer"], usage=child.usage)

    # What it does is done by tasks with effects of their own; repeating it repeats nothing that ended.
    return Work(perform=perform, effect=step.effect or "idempotent", timeout=step.timeout)


def family(step: Step, spec: AgentSpec, models: Models, tools: Mapping[str, Tool]) -> Prepared:
    """The child workflow of an agent, ready to run."""
    agent = step.uses.removeprefix("agent:")
    workflow = Workflow(
        name=f"agent-{agent}",
        inputs={"request": Input(), "attempts": Input(type="string", default="")},
        reducers={"conversation": "append"},
        config=Config(approval="critical_only", budget=step.budget, agents={agent: spec}),
        steps=(
            Step(
                id=TURN,
                uses=f"agent:{agent}",
                with_={
                    "request": "${ inputs.request }",
                    "attempts": "${ inputs.attempts }",
                    "conversation": "${ coalesce(context.conversation, []) }",
                },
                set={"conversation": "${ output.message }"},
            ),
            Step(
                id=CALL,
                uses=f"agent:{agent}",
                for_each="steps.turn.output.tool_calls",
                with_={"call": "${ item }"},
                on_item_error="keep",
                set={"conversation": "${ output }"},
                routing=Routing(
                    kind="loop",
                    conditions=(Condition(expr="size(steps.turn.output.tool_calls) == 0", target=END),),
                    loop_target=TURN,
                    max_iterations=max(2, spec.max_turns),
                ),
            ),
        ),
        outputs={
            "answer": "${ steps.turn.output.answer }",
            "problems": "${ steps.turn.output.problems }",
            "stopped": "${ steps.turn.output.stopped }",
        },
    )
    graph = compile_graph(workflow)
    graph.guard((graph.index[CALL],))
    turn = Work(
        perform=partial(_turn, spec=spec, model=step.model or spec.model, models=models, tools=tools),
        effect="idempotent",
        timeout=TURN_TIMEOUT + PARTING,
    )
    calls = _Calls(tools, step.approval or "critical_only")
    call = Work(
        perform=calls.perform,
        effect="write",
        timeout=max((tool.timeout or DEFAULT_TIMEOUT for tool in tools.values()), default=DEFAULT_TIMEOUT),
        effect_for=calls.effect,
        shown=calls.shown,
        amended=calls.amended,
        asks=calls.asks,
        takes=calls.takes,
    )
    return Prepared(graph, [turn, call])


# --- a turn ---


async def _turn(
    scene: Scene, *, spec: AgentSpec, model: str, models: Models, tools: Mapping[str, Tool]
) -> Billed:
    request = Request(
        messages=_messages(spec, scene.args),
        tools=tuple(_spec(name, tool) for name, tool in tools.items()),
        output=spec.output or None,
        timeout=TURN_TIMEOUT,
    )
    problems: tuple[str, ...] = ()
    try:
        answer = await asked(models, request, tier=spec.tier, model=model)
    except BadOutput as error:
        answer, problems = error.answer, error.problems
    stopped = ""
    if answer.tool_calls and scene.task.iteration >= spec.max_turns:  # nobody would read what they give
        wanted = [tools[call.name].id if call.name in tools else call.name for call in answer.tool_calls]
        names = ", ".join(wanted)
        stopped = f"after its last turn (max_turns: {spec.max_turns}) the agent still wants to call {names}"
    calls = () if stopped else answer.tool_calls
    said = Message("assistant", answer.text, calls)
    output = {
        "message": msgspec.to_builtins(said),
        "tool_calls": [msgspec.to_builtins(call) for call in calls],
        "answer": _answer(spec, answer, problems),
        "problems": list(problems),
        "stopped": stopped,
    }
    return Billed(output, calls=(record(answer),))


def _answer(spec: AgentSpec, answer: Answer, problems: Sequence[str]) -> Any:
    if spec.output and not problems and not answer.tool_calls:
        return answer.parsed
    marks = {"degraded": answer.degraded, "label": answer.label}
    told = {name: mark for name, mark in marks.items() if mark}
    return {"text": answer.text, "served_by": answer.served_by, **told}


def _messages(spec: AgentSpec, args: Mapping[str, Any]) -> tuple[Message, ...]:
    """The conversation as the model gets it."""
    request, attempts = args["request"], args["attempts"]
    asked = request if isinstance(request, str) else _text(request)
    first = [Message("system", spec.prompt)] if spec.prompt else []
    first.append(Message("user", f"{asked}\n\n{attempts}" if attempts else asked))
    return (*first, *_told(args["conversation"]))


def _told(conversation: Sequence[Any]) -> Iterator[Message]:
    """Turns, and after each the results of the calls that it wanted, in their order."""
    left = iter(conversation)
    for each in left:
        said = msgspec.convert(each, Message)
        yield said
        for call in said.tool_calls:
            yield msgspec.convert(_given(call, next(left, None)), Message)


def _given(call: ToolCall, result: Any) -> dict[str, Any]:
    """The result of a call. One that came to nothing is told of, too; a person may have put in another."""
    if result is None:
        return _result(call, "error: the call was not made, or did not end")
    if isinstance(result, Mapping) and result.get("tool_call") == call.id:
        return dict(result)
    return _result(call, result if isinstance(result, str) else _json(result))


def _text(value: Any) -> str:
    """What an agent is asked, as text: a single argument as it is, several by name."""
    if isinstance(value, Mapping) and len(value) == 1:
        only = next(iter(value.values()))
        if isinstance(only, str):
            return only
    if isinstance(value, Mapping):
        named = ((name, one if isinstance(one, str) else _json(one)) for name, one in value.items())
        return "\n\n".join(f"{name}:\n{text}" if "\n" in text else f"{name}: {text}" for name, text in named)
    return _json(value)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# --- calls ---


class _Calls:
    """The calls that a turn wants: each with the effect class and the approval of its own tool."""

    def __init__(self, tools: Mapping[str, Tool], approval: str) -> None:
        self._tools = tools
        self._approval = approval

    async def perform(self, scene: Scene) -> Any:
        call = msgspec.convert(scene.args["call"], ToolCall)
        if why := self._unfit(call):
            return _result(call, f"error: {why}")
        try:
            output = await CallTool(self._tools[call.name])(
                Scene(scene.task, dict(call.arguments), scene.host)
            )
        except TaskFailure as error:
            return _result(call, f"error: {error}")
        except Exception as error:  # noqa: BLE001 - the model is told, and may do better
            return _result(call, f"error: {type(error).__name__}: {error}")
        return _result(call, output if isinstance(output, str) else _json(output))

    def _unfit(self, call: ToolCall) -> str:
        """Why a call cannot be made as the model wants it; empty when it can."""
        if call.problem:
            return call.problem
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return f"there is no tool {call.name!r}; there are {known}"
        return complaint(tool.input_schema, call.arguments)

    def effect(self, item: Any) -> Effect:
        tool = self._tools.get(item["name"])
        return "read" if tool is None else tool.effect

    def shown(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The call as a person is shown it, and as an approval is bound to it."""
        call = args["call"]
        tool = self._tools.get(call["name"])
        return {"uses": tool.id if tool else call["name"], "args": dict(call.get("arguments", {}))}

    def amended(self, args: dict[str, Any], edits: Mapping[str, Any]) -> dict[str, Any]:
        call = args["call"]
        return {"call": {**call, "arguments": {**call.get("arguments", {}), **edits}}}

    def takes(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        tool = self._tools.get(args["call"]["name"])
        return tool.input_schema if tool else {}

    def asks(self, args: Mapping[str, Any]) -> bool:
        call = msgspec.convert(args["call"], ToolCall)
        if self._unfit(call):
            return False  # nobody is asked about what is not going to happen
        if self._approval == "always" or self._tools[call.name].asks:
            return True
        return self._approval != "never" and self.effect(args["call"]) == "destructive"


def _result(call: ToolCall, text: str) -> dict[str, Any]:
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n… ({len(text) - LONGEST} more characters)"
    return {"role": "tool", "content": text, "tool_call": call.id, "name": call.name}


def toolbox(spec: AgentSpec, catalog: Toolbox, folder: str | None) -> dict[str, Tool]:
    """The tools that an agent may call, by the names that models take. Raises `UnknownTool`."""
    found: dict[str, Tool] = {}
    for wanted in spec.tools:
        if any(mark in wanted for mark in "*?["):
            ids = [id for id in catalog.ids() if fnmatchcase(id, wanted)]
            if not ids:
                raise UnknownTool(wanted, "no tool fits this pattern")
        else:
            ids = [wanted]
        for id in ids:
            found[wire_name(id)] = catalog.find(id, folder=folder)
    return found


def _spec(name: str, tool: Tool) -> ToolSpec:
    schema = dict(tool.input_schema) or {"type": "object", "properties": {}}
    return ToolSpec(name, tool.description, schema)
