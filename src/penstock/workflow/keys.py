"""Every key of the workflow file: where it may stand, what kind of value it takes, what it is for.

These tables are the file format. `read` and `builder` read with them, `schema` publishes them.
"""

from __future__ import annotations

from typing import Any, Final, get_args

from penstock.workflow import spec
from penstock.workflow.kinds import (
    BAD,
    Assigned,
    Choice,
    Duration,
    Expr,
    Flag,
    Items,
    Json,
    JsonMap,
    Key,
    Label,
    Later,
    ListOf,
    MapOf,
    Number,
    Schema,
    Section,
    Short,
    Text,
    Whole,
)
from penstock.workflow.nodes import Node
from penstock.workflow.problems import Problems

_WORDS: Final = Text(empty=False)
_STEP_NAME: Final = Text("the id of a step", "write the id as text", empty=False)
_STEP_NAMES: Final = ListOf(_STEP_NAME, single=True, hint="write [first, second]")
_APPROVAL: Final = Choice(("always", "critical_only", "never"), {True: "always", False: "never"})
_EXPR_POLICY: Final = Choice(get_args(spec.ExprPolicy))
_TYPES: Final = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
    "map": "object",
}


class _Unrolled:
    """A key that `templates` has dealt with before anything is read."""

    def __init__(self, message: str, hint: str, schema: Schema) -> None:
        self._message = message
        self._hint = hint
        self._schema = schema

    def read(self, node: Node, problems: Problems) -> Any:
        """Only a use in a wrong place is left to be read."""
        problems.add(node, self._message, self._hint)
        return BAD

    def schema(self) -> Schema:
        return self._schema


INPUT: Final = Section(
    "input",
    spec.Input,
    {
        "type": Key(Choice(get_args(spec.InputType), _TYPES), "What the value must be."),
        "default": Key(Json(), "The value when none is given; without a default a value is required."),
        "enum": Key(ListOf(Json()), "The only values allowed."),
        "description": Key(Text(), "What the input is for."),
    },
    foreign={
        "required": "an input without 'default' is required",
        "optional": "an input with 'default' is optional",
        "value": "default",
        "choices": "enum",
        "options": "enum",
    },
    hint="write {type: string} or {default: value}",
)

_RETRY_FULL: Final = Section(
    "retry",
    spec.Retry,
    {
        "max_attempts": Key(Whole(1), "How often a task may run in all, the first time included."),
        "backoff": Key(Duration(zero=True), "The wait before the second attempt; it doubles each time."),
        "jitter": Key(
            Short((bool,), Flag(), lambda on: 0.1 if on else 0.0, Number(0, 1)),
            "The share of the wait that is spread at random, 0 to 1.",
        ),
        "on": Key(ListOf(_WORDS, single=True), "The kinds of error to retry; without it, all that may be."),
    },
    foreign={
        "attempts": "max_attempts",
        "limit": "max_attempts",
        "max": "max_attempts",
        "max_retries": "max_attempts (the first time included)",
        "retries": "max_attempts (the first time included)",
        "delay": "backoff",
        "interval": "backoff",
        "when": "on",
    },
    hint="write {max_attempts: 3, backoff: 1s}, or just the number of attempts",
)
RETRY: Final = Short((int,), Whole(1), lambda n: spec.Retry(max_attempts=n), _RETRY_FULL)


def _one_way_to_check(node: Node, problems: Problems) -> bool:
    ways = [key for key in ("expr", "tool", "run") if key in node.value]
    if len(ways) != 1:
        message = f"a check has {' and '.join(map(repr, ways))}" if ways else "a check does nothing"
        problems.add(node, message, "give exactly one of 'expr', 'tool' and 'run'")
    elif "with" in node.value and "tool" not in node.value:
        problems.add(node, "'with' belongs to a check by 'tool'", "remove it", key="with")
    else:
        return True
    return False


CHECK: Final = Section(
    "check",
    spec.Check,
    {
        "name": Key(Text(), "How the check is called in reports."),
        "expr": Key(Expr(), "A CEL condition on `output` that must be true."),
        "tool": Key(_WORDS, "A tool that must say yes: server:tool."),
        "with": Key(JsonMap(), "The tool's arguments.", field="with_"),
        "run": Key(
            ListOf(Label(), hint='write the command and each argument: [test, -s, "${ output.path }"]'),
            "A command that must exit with 0, as a list of arguments.",
        ),
        "timeout": Key(Duration(), "The longest the check may take."),
    },
    foreign={"if": "expr", "when": "expr", "command": "run", "args": "with", "uses": "tool"},
    check=_one_way_to_check,
    hint='write {expr: "output.ok"}, {tool: server:tool} or {run: [command]}',
)

_GATE_FULL: Final = Section(
    "gate",
    spec.Gate,
    {
        "checks": Key(ListOf(CHECK, hint="write a list of checks"), "Checks that must all pass."),
        "max_attempts": Key(Whole(1), "How often the step may try before a person is asked."),
    },
    foreign={"attempts": "max_attempts", "max_retries": "max_attempts", "retries": "max_attempts"},
    hint="write {checks: […], max_attempts: 3}, or just the list of checks",
)
GATE: Final = Short((list,), ListOf(CHECK), lambda checks: spec.Gate(checks=checks), _GATE_FULL)

CONDITION: Final = Section(
    "condition",
    spec.Condition,
    {
        "expr": Key(Expr(), "A CEL condition.", required=True),
        "target": Key(_STEP_NAME, "The step to go to when it is true, or end, or human.", required=True),
    },
    foreign={
        "if": "expr",
        "when": "expr",
        "then": "target",
        "goto": "target",
        "next": "target",
        "to": "target",
    },
    hint='write {expr: "output.ok", target: step}',
)

TIE_BREAKER: Final = Section(
    "tie_breaker",
    spec.TieBreaker,
    {
        "enabled": Key(Flag(), "Whether a model may choose among the targets that remain."),
        "valid_targets": Key(_STEP_NAMES, "The targets it may choose from; without it, all declared ones."),
        "prompt_hint": Key(Text(), "What the model should know."),
        "confidence": Key(Number(0, 1), "Below this confidence the fallback edge is taken."),
        "timeout": Key(Duration(), "After this time the fallback edge is taken."),
    },
)

ROUTING: Final = Section(
    "routing",
    spec.Routing,
    {
        "kind": Key(Choice(("linear", "conditional", "branch", "loop")), "What the routing is for."),
        "on": Key(Expr(), "The value that 'branches' look at; `output.status` without it."),
        "conditions": Key(
            ListOf(CONDITION, hint="write a list of conditions"), "Tried in order; the first true one wins."
        ),
        "branches": Key(MapOf(_STEP_NAME, "write {value: step}"), "The target for each value of 'on'."),
        "tie_breaker": Key(TIE_BREAKER, "A model's choice where conditions and branches leave several."),
        "loop_target": Key(_STEP_NAME, "The earlier step to go back to."),
        "max_iterations": Key(Whole(1), "How often the loop may run in all, the first time included."),
        "next": Key(_STEP_NAME, "The target when nothing else applies."),
        "detour": Key(_STEP_NAME, "A step to call before this step's route is chosen again."),
    },
    foreign={"default": "next", "else": "next", "cases": "branches", "switch": "on", "if": "conditions"},
)

RULE: Final = Section(
    "rule",
    spec.Rule,
    {
        "if": Key(Expr(), "A CEL condition.", field="if_", required=True),
        "do": Key(
            Choice(("continue", "replan", "inject", "abort")), "What to do when it is true.", required=True
        ),
        "requirement": Key(Text(), "For replan: what is needed."),
        "feeds": Key(Text(), "For inject and replan: STEP.ARGUMENT that takes the results in."),
        "tasks": Key(ListOf(Later(lambda: STEP)), "For inject: the steps to add."),
        "repeat": Key(Flag(), "Fire each time, not only once per run."),
    },
    foreign={"when": "if", "expr": "if", "then": "do", "action": "do", "steps": "tasks"},
)

AIL: Final = Section(
    "ail",
    spec.Ail,
    {
        "at": Key(Choice(("per_layer", "on_error", "manual")), "When the decider is asked."),
        "after": Key(_STEP_NAMES, "Ask after these steps."),
        "decider": Key(Choice(("policy", "model", "external", "human")), "Who decides."),
        "rules": Key(ListOf(RULE, hint="write a list of rules"), "For the policy decider."),
        "timeout": Key(Duration(), "How long to wait for an answer."),
        "on_timeout": Key(
            Choice(("continue", "wait", "abort")),
            "What follows without an answer. Before a step that needs approval, `continue` waits.",
        ),
    },
)

BUDGET: Final = Section(
    "budget",
    spec.Budget,
    {
        "usd": Key(Number(0), "The most that models may cost."),
        "tokens": Key(Whole(0), "The most tokens."),
        "wall": Key(Duration(), "The longest time at work; waiting for a person does not count."),
        "tool_calls": Key(Whole(0), "The most tool calls."),
    },
    foreign={"cost": "usd", "dollars": "usd", "time": "wall", "timeout": "wall", "max_tokens": "tokens"},
    hint="write {usd: 0.50, tokens: 200000, wall: 10m}",
)

AGENT: Final = Section(
    "agent",
    spec.AgentSpec,
    {
        "prompt": Key(Text(), "What the agent is told."),
        "tier": Key(Text(), "The class of model it needs."),
        "model": Key(Text(), "One model by name."),
        "tools": Key(ListOf(_WORDS, single=True), "The tools it may call."),
        "output": Key(JsonMap(), "The JSON Schema of its answer."),
        "max_turns": Key(Whole(1), "The most turns."),
    },
    foreign={"instructions": "prompt", "system": "prompt", "system_prompt": "prompt", "schema": "output"},
)

CONFIG: Final = Section(
    "config",
    spec.Config,
    {
        "engine": Key(Choice(("auto", "native", "langgraph", "temporal")), "Who carries the run out."),
        "checkpoints": Key(
            Choice(("per_task", "per_layer", "manual", "off"), {False: "off"}), "When the state is saved."
        ),
        "approval": Key(_APPROVAL, "When a person must approve a step."),
        "approval_timeout": Key(Duration(), "Without an answer by then, the call counts as rejected."),
        "ail": Key(AIL, "Where an agent is asked how to go on."),
        "budget": Key(BUDGET, "The limits of the whole run."),
        "gate": Key(GATE, "The gate of steps that have none of their own."),
        "gate_attempts": Key(
            MapOf(Whole(1), 'write {"agent:*": 5}'), "Attempts at a gate, by what a step uses: `agent:*`."
        ),
        "retry": Key(RETRY, "How errors are retried in steps that do not say."),
        "max_parallel": Key(Whole(1), "How many tasks may run at once."),
        "timeout": Key(Duration(), "The longest the run may take."),
        "wave_timeout": Key(Duration(), "The longest a wave may take."),
        "retention": Key(JsonMap(), "What is kept, and how long."),
        "speculation": Key(
            Short((bool,), Flag(), bool, JsonMap()), "Whether likely next reads are started early."
        ),
        "on_expr_error": Key(_EXPR_POLICY, "What happens when an expression fails at run time."),
        "agents": Key(MapOf(AGENT, "write {name: {prompt: …}}"), "Agents that steps call as agent:NAME."),
    },
    foreign={
        "concurrency": "max_parallel",
        "parallel": "max_parallel",
        "parallelism": "max_parallel",
        "max_concurrency": "max_parallel",
        "retries": "retry",
        "timeout-minutes": "timeout",
        "timeout_minutes": "timeout",
    },
)

_EXPAND: Final = _Unrolled(
    "a template cannot be used here", "use it in the 'steps' of the workflow itself", {"type": "string"}
)
_FOR: Final = _Unrolled(
    "'for' belongs to 'expand'",
    "to run a step for each item of a list, use 'for_each'",
    {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {
            "type": "array",
            "minItems": 1,
            "items": {"type": ["string", "number", "boolean"]},
        },
    },
)

STEP: Final[Section] = Section(
    "step",
    spec.Step,
    {
        "id": Key(_STEP_NAME, "The name of the step; expressions say steps.NAME.", required=True),
        "uses": Key(
            Text(
                "what the step calls",
                "write server:tool, py:module:function, agent:name or workflow:name",
                empty=False,
            ),
            "What it calls: server:tool, py:module:function, agent:name or workflow:name.",
            required=True,
        ),
        "with": Key(JsonMap(), "The arguments; texts may hold ${ expressions }.", field="with_"),
        "needs": Key(_STEP_NAMES, "Steps that must end first, besides those that expressions read."),
        "when": Key(Expr(), "A CEL condition; the step is skipped when it is false."),
        "join": Key(Choice(get_args(spec.JoinRule)), "What the needed steps must have come to."),
        "for_each": Key(Items(), "A list; the step runs once for each `item`."),
        "max_parallel": Key(Whole(1), "For for_each: how many items at once."),
        "on_item_error": Key(Choice(("fail", "keep")), "For for_each: what a failed item does."),
        "retry": Key(RETRY, "How errors are retried."),
        "timeout": Key(Duration(), "The longest one task may take."),
        "gate": Key(GATE, "Checks on the result."),
        "approval": Key(_APPROVAL, "Whether a person must approve the call."),
        "critical": Key(Flag(), "Treat the step as dangerous."),
        "routing": Key(ROUTING, "Where to go next."),
        "effect": Key(Choice(get_args(spec.Effect)), "What the call does to the world."),
        "on_orphan": Key(Choice(("ask", "rerun", "fail")), "What happens to a call that a crash cut short."),
        "on_error": Key(
            Choice(("fail", "continue"), {"ignore": "continue"}), "Whether a failure stops what follows."
        ),
        "on_reject": Key(Choice(("fail", "abort")), "What a rejected approval does."),
        "on_expr_error": Key(_EXPR_POLICY, "What happens when an expression fails at run time."),
        "budget": Key(BUDGET, "The limits of this step."),
        "model": Key(Text(), "The model of an agent step."),
        "ail": Key(Short((bool,), Flag(), bool, AIL), "Whether an agent is asked after this step."),
        "set": Key(MapOf(Assigned(), 'write {key: "${ output.x }"}'), "Context keys to write on success."),
        "estimate": Key(Duration(zero=True), "The time it is expected to take."),
        "expand": Key(_EXPAND, "The template to put here."),
        "for": Key(_FOR, "For expand: the values of each variable."),
    },
    foreign={
        "name": "id",
        **dict.fromkeys(("depends_on", "dependsOn", "depends", "dependencies", "after", "requires"), "needs"),
        **dict.fromkeys(("if", "condition", "only_if"), "when"),
        **dict.fromkeys(
            ("run", "tool", "agent", "action", "call", "function", "task", "use", "type"), "uses"
        ),
        **dict.fromkeys(("args", "params", "parameters", "arguments", "inputs", "input", "kwargs"), "with"),
        **dict.fromkeys(("matrix", "foreach", "forEach", "for-each", "loop", "each", "map"), "for_each"),
        **dict.fromkeys(("timeout-minutes", "timeout_minutes", "timeout_seconds", "timeout_s"), "timeout"),
        **dict.fromkeys(("retries", "max_retries", "retry_policy", "retryStrategy"), "retry"),
        **dict.fromkeys(("parallel", "concurrency", "max_concurrency"), "max_parallel"),
        **dict.fromkeys(("continue-on-error", "continue_on_error"), "use on_error: continue"),
        **dict.fromkeys(("next", "goto", "branches", "conditions", "switch"), "routing"),
        **dict.fromkeys(
            ("outputs", "output"), "a step's output is steps.NAME.output; 'outputs' is a key of the workflow"
        ),
        **dict.fromkeys(("env", "environment"), "give values as arguments under 'with'"),
        "template": "expand",
        "checks": "gate",
        "human": "approval",
    },
    hint="write {id: name, uses: server:tool}",
)

_STEPS: Final = ListOf(STEP, hint="write a list: - {id: name, uses: server:tool}")

_TEMPLATES: Final = _Unrolled(
    "templates need 'steps' that use them",
    "write steps: [{expand: NAME}]",
    {
        "type": "object",
        "additionalProperties": {
            "anyOf": [
                _STEPS.schema(),
                {
                    "type": "object",
                    "properties": {"steps": _STEPS.schema()},
                    "required": ["steps"],
                    "additionalProperties": False,
                },
            ]
        },
    },
)

TOP: Final = Section(
    "workflow",
    spec.Workflow,
    {
        "name": Key(_WORDS, "The name of the workflow.", required=True),
        "version": Key(Label(), "Its version."),
        "description": Key(Text(), "What it is for."),
        "inputs": Key(MapOf(INPUT, "write {name: {type: string}}"), "The values it takes."),
        "config": Key(CONFIG, "How it is run."),
        "steps": Key(_STEPS, "What it does.", required=True),
        "outputs": Key(JsonMap(), "What it returns; texts may hold ${ expressions }."),
        "templates": Key(_TEMPLATES, "Groups of steps to be copied by 'expand'."),
        "reducers": Key(MapOf(_WORDS, "write {key: append}"), "How writes to a context key are combined."),
        "schedule": Key(Text(), "When it starts by itself."),
        "on_complete": Key(Text(), "What runs when it has succeeded."),
        "on_failure": Key(Text(), "What runs when it has failed."),
    },
    foreign={
        **dict.fromkeys(("jobs", "tasks", "nodes", "stages", "jobsteps"), "steps"),
        **dict.fromkeys(("params", "parameters", "arguments", "args", "env", "variables", "vars"), "inputs"),
        **dict.fromkeys(("on", "trigger", "triggers", "cron"), "schedule"),
        **dict.fromkeys(("defaults", "settings", "options"), "config"),
        **dict.fromkeys(("id", "title"), "name"),
        **dict.fromkeys(("returns", "result", "results", "output"), "outputs"),
        **dict.fromkeys(CONFIG.keys, "put it under 'config:'"),
    },
    hint="start with 'name:' and 'steps:'",
)

SECTIONS: Final = (
    TOP,
    INPUT,
    CONFIG,
    AIL,
    RULE,
    BUDGET,
    _RETRY_FULL,
    _GATE_FULL,
    CHECK,
    AGENT,
    STEP,
    ROUTING,
    CONDITION,
    TIE_BREAKER,
)
