"""What is refused, where it is said to be, and what the reader is told to do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DefinitionError, Problem
from penstock.ids import StepId
from penstock.workflow.findings import SHOWN
from penstock.workflow.spec import (
    AgentSpec,
    Ail,
    Budget,
    Check,
    Condition,
    Config,
    Gate,
    Input,
    Retry,
    Routing,
    Rule,
    Step,
    Workflow,
    decode,
    encode,
)
from penstock.workflow.validate import check, unsupported


def step(name: Any, *needs: str, **parts: Any) -> Step:
    return Step(id=name, uses=parts.pop("uses", "py:flow:work"), needs=tuple(map(StepId, needs)), **parts)


def flow(*steps: Step, **parts: Any) -> Workflow:
    return Workflow(name=parts.pop("name", "flow"), steps=steps, **parts)


def problems(workflow: Workflow) -> list[Problem]:
    with pytest.raises(DefinitionError) as caught:
        check(workflow)
    return list(caught.value.problems)


def only(workflow: Workflow) -> Problem:
    (problem,) = problems(workflow)
    return problem


def goes_to(target: str, expr: str = "output.ok") -> Condition:
    return Condition(expr=expr, target=StepId(target))


# -- gathering ---------------------------------------------------------------------------------------


def test_all_problems_are_reported_at_once_in_the_order_of_the_definition() -> None:
    bad = flow(
        step("a", "nope", timeout=0.0),
        step("b", when="steps.a.outputs"),
        inputs={"n": Input(type="integer", default="x")},
        config=Config(max_parallel=0),
        outputs={"o": "${ steps.c.output }"},
    )

    assert [problem.where for problem in problems(bad)] == [
        "inputs.n.default",
        "config.max_parallel",
        "steps.a.timeout",
        "steps.a.needs[0]",
        "steps.b.when",
        "outputs.o",
    ]


def test_a_problem_is_given_its_place_in_the_text_it_came_from() -> None:
    asked: list[tuple[str | int, ...]] = []

    def locate(path: tuple[str | int, ...]) -> tuple[str, int, int]:
        asked.append(path)
        return "flow.yaml", 12, 5

    with pytest.raises(DefinitionError) as caught:
        check(flow(step("a", retry=Retry(max_attempts=0))), locate)

    assert asked == [("steps", 0, "retry", "max_attempts")]
    assert str(caught.value) == "flow.yaml:12:5: steps.a.retry.max_attempts: must be 1 or more, not 0"


def test_located_problems_come_in_the_order_of_the_text() -> None:
    lines = {"uses": 9, "timeout": 3, "needs": 6}
    with pytest.raises(DefinitionError) as caught:
        check(flow(step("a", "b", uses="x", timeout=0.0)), lambda path: ("f.yaml", lines[str(path[2])], 1))

    assert [problem.line for problem in caught.value.problems] == [3, 6, 9]


def test_more_problems_than_anyone_reads_are_counted() -> None:
    found = problems(flow(*(step(f"s{i}", uses="x") for i in range(SHOWN + 7))))

    assert len(found) == SHOWN + 1
    assert found[-1].message == "and 7 more problems"


def test_every_bad_entry_of_with_is_reported() -> None:
    found = problems(flow(step("a", with_={"x": "${ nope }", "y": {"z": ["${ inputs.q }"]}, "fine": 1})))

    assert [problem.where for problem in found] == ["steps.a.with.x", "steps.a.with.y.z[0]"]


def test_an_accepted_workflow_comes_back_compiled() -> None:
    assert check(flow(step("a"), step("b", "a"))).ids == ["a", "b"]


# -- names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a b", "1st", "fetch-url", "a.b", "naïve", "a\n"])
def test_an_id_must_be_a_plain_name(name: str) -> None:
    assert "is not a name" in only(flow(step(name))).message


def test_a_bad_id_comes_with_a_good_one() -> None:
    assert only(flow(step("fetch-url"))).hint.endswith("e.g. fetch_url")
    assert only(flow(step("1st"))).hint.endswith("e.g. _1st")


@pytest.mark.parametrize("name", ["end", "human", "in", "true", "null", "loop"])
def test_reserved_words_are_no_ids(name: str) -> None:
    assert only(flow(step(name))).hint == "choose another name"


def test_two_steps_of_one_name_are_refused() -> None:
    problem = only(flow(step("a"), step("b"), step("a")))

    assert problem.message == "two steps are called 'a'"
    assert problem.where == "steps.a.id"


@pytest.mark.parametrize(
    "uses",
    [
        "files:read",
        "my-server.v2:tools/call",
        "py:package.module:function",
        "py:__main__:make.<locals>.<lambda>",
        "agent:writer",
        "workflow:sub/flow.yaml",
        "workflow:My Flow",
    ],
)
def test_what_can_be_called_is_accepted(uses: str) -> None:
    check(flow(step("a", uses=uses)))


@pytest.mark.parametrize(
    ("uses", "hint"),
    [
        ("", "write server:tool, py:module:function, agent:name or workflow:name"),
        ("read", "write SERVER:read; a Python function is py:MODULE:read"),
        ("package.module.function", "a Python function is py:package.module:function"),
        ("py:function", "write py:module:function"),
        ("agent:", "write agent:NAME"),
        ("workflow:", "write workflow:NAME"),
        ("files:", "write server:tool, py:module:function, agent:name or workflow:name"),
        ("my files:read", "write server:tool, py:module:function, agent:name or workflow:name"),
    ],
)
def test_what_cannot_be_called_is_refused_with_a_hint(uses: str, hint: str) -> None:
    problem = only(flow(step("a", uses=uses)))

    assert problem.where == "steps.a.uses"
    assert problem.hint == hint


@pytest.mark.parametrize("name", ["my input", "a-b", "in"])
def test_an_input_must_be_a_name_that_expressions_can_say(name: str) -> None:
    assert "expressions can say" in only(flow(step("a"), inputs={name: Input()})).message


# -- needs -------------------------------------------------------------------------------------------


def test_an_unknown_need_suggests_the_nearest_step() -> None:
    problem = only(flow(step("fetch"), step("parse", "fetsh")))

    assert problem.message == "no step is called 'fetsh'"
    assert problem.hint == "did you mean 'fetch'?"


def test_a_step_cannot_need_itself() -> None:
    assert only(flow(step("a", "a"))).message == "a step cannot need itself"


def test_a_need_is_named_once() -> None:
    assert only(flow(step("a"), step("b", "a", "a"))).message == "'a' is named twice"


@pytest.mark.parametrize(
    ("parts", "hint"),
    [
        ({"with_": {"x": "${ steps.a.output }"}}, "for its result in the last iteration say previous.a"),
        ({"when": "steps.a.output.ok"}, "for its result in the last iteration say previous.a"),
        ({"set": {"k": "${ steps.a.output }"}}, "say `output` for this step's own result"),
        (
            {"gate": Gate(checks=(Check(expr="steps.a.output.ok"),))},
            "say `output` for this step's own result",
        ),
        (
            {"routing": Routing(conditions=(goes_to("end", "steps.a.output.ok"),))},
            "say `output` for this step's own result",
        ),
    ],
)
def test_a_step_that_reads_itself_is_told_how(parts: dict[str, Any], hint: str) -> None:
    problem = only(flow(step("a", **parts)))

    assert problem.message == "steps.a is this step itself"
    assert problem.hint == hint


def test_unknown_steps_by_the_thousand_do_not_take_long() -> None:
    found = problems(flow(*(step(f"step_{i}", f"stop_{i}") for i in range(20_000))))

    assert found[0].hint == "did you mean 'step_0'?"


# -- expressions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        {"when": "output.ok"},
        {"when": "item > 1"},
        {"with_": {"x": "${ item }"}},
        {"with_": {"x": "${ output }"}},
        {"for_each": "item.list"},
        {"for_each": "[1]", "set": {"k": "${ item }"}},
        {"when": "max_iterations > 1"},
        {"with_": {"x": "${ detour.output }"}},
    ],
)
def test_a_name_that_has_no_meaning_at_a_place_is_refused_there(parts: dict[str, Any]) -> None:
    assert "is not available here" in only(flow(step("a", **parts))).message


@pytest.mark.parametrize(
    "parts",
    [
        {
            "for_each": "[1, 2]",
            "with_": {"x": "${ item }"},
            "gate": Gate(checks=(Check(expr="output > item"),)),
        },
        {"with_": {"n": "${ iteration }", "a": "${ attempts }", "r": "${ run.id }", "c": "${ context.k }"}},
        {
            "routing": Routing(
                conditions=(
                    goes_to("end", "status == 'failed' && iteration < max_iterations"),
                    goes_to("end", "detour.output.x"),
                )
            )
        },
    ],
)
def test_names_are_available_where_they_have_a_meaning(parts: dict[str, Any]) -> None:
    check(flow(step("a", **parts)))


@pytest.mark.parametrize(
    ("parts", "where"),
    [
        ({"when": "1 + 1"}, "steps.a.when"),
        ({"for_each": "'text'"}, "steps.a.for_each"),
        ({"when": "inputs.n > "}, "steps.a.when"),
        ({"when": "inputs.n + 'x' == 'y'"}, "steps.a.when"),
        ({"gate": Gate(checks=(Check(expr="'x'"),))}, "steps.a.gate.checks[0].expr"),
        ({"routing": Routing(conditions=(goes_to("end", "3"),))}, "steps.a.routing.conditions[0].expr"),
    ],
)
def test_bad_syntax_and_types_are_found_at_load(parts: dict[str, Any], where: str) -> None:
    assert only(flow(step("a", **parts), inputs={"n": Input(type="integer")})).where == where


def test_outputs_and_rules_may_read_steps_that_exist() -> None:
    rule = Rule(if_="steps.b.output", do="continue")
    found = problems(
        flow(step("a"), outputs={"o": ["${ steps.c.output }"]}, config=Config(ail=Ail(rules=(rule,))))
    )

    assert [problem.where for problem in found] == ["config.ail.rules[0].if", "outputs.o[0]"]


def test_a_gate_for_every_step_cannot_make_every_step_need_another() -> None:
    gate = Gate(checks=(Check(expr="output.n > steps.a.output.n"),))

    assert "steps is not available here" in only(flow(step("a"), config=Config(gate=gate))).message


# -- numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "where"),
    [
        ({"timeout": 0.0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"estimate": -1.0}, "estimate"),
        ({"for_each": "[1]", "max_parallel": 0}, "max_parallel"),
        ({"retry": Retry(max_attempts=0)}, "retry.max_attempts"),
        ({"retry": Retry(backoff=-1)}, "retry.backoff"),
        ({"retry": Retry(jitter=1.5)}, "retry.jitter"),
        ({"gate": Gate(checks=(Check(expr="output.ok"),), max_attempts=0)}, "gate.max_attempts"),
        ({"gate": Gate(checks=(Check(expr="output.ok", timeout=0),))}, "gate.checks[0].timeout"),
        ({"budget": Budget(usd=-1)}, "budget.usd"),
        ({"routing": Routing(loop_target=StepId("a"), max_iterations=0)}, "routing.max_iterations"),
    ],
)
def test_a_number_out_of_range_is_refused(parts: dict[str, Any], where: str) -> None:
    assert only(flow(step("a", **parts))).where == f"steps.a.{where}"


@pytest.mark.parametrize(
    ("config", "where"),
    [
        (Config(max_parallel=0), "max_parallel"),
        (Config(timeout=0.0), "timeout"),
        (Config(wave_timeout=-1.0), "wave_timeout"),
        (Config(retry=Retry(max_attempts=0)), "retry.max_attempts"),
        (Config(budget=Budget(tokens=-1)), "budget.tokens"),
        (Config(ail=Ail(timeout=0)), "ail.timeout"),
        (Config(agents={"x": AgentSpec(max_turns=0)}), "agents.x.max_turns"),
        (Config(retention={"checkpoints": -1}), "retention.checkpoints"),
        (Config(retention={"messages": "many"}), "retention.messages"),
        (Config(retention={"checkpoint": 5}), "retention.checkpoint"),
    ],
)
def test_a_number_in_config_out_of_range_is_refused(config: Config, where: str) -> None:
    assert only(flow(step("a"), config=config)).where == f"config.{where}"


@pytest.mark.parametrize("parts", [{"max_parallel": 2}, {"on_item_error": "keep"}])
def test_keys_of_a_map_belong_to_a_map(parts: dict[str, Any]) -> None:
    assert "together with for_each" in only(flow(step("a", **parts))).message


WRONG: Any = "3"
WRONG_RETRY = Retry(max_attempts=WRONG)


# -- wrong types from Python -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "where", "message"),
    [
        ({"timeout": "30s"}, "steps.a.timeout", "expected a number or nothing, got text"),
        (
            {"retry": Retry(max_attempts=WRONG)},
            "steps.a.retry.max_attempts",
            "expected a whole number, got text",
        ),
        ({"retry": {"max_attempts": 3}}, "steps.a.retry", "Retry is expected, not dict"),
        ({"join": "any"}, "steps.a.join", "invalid enum value 'any'"),
        (
            {"max_parallel": True},
            "steps.a.max_parallel",
            "expected a whole number or nothing, got true or false",
        ),
        ({"when": True}, "steps.a.when", "expected text, got true or false"),
        ({"with_": {"x": object()}}, "steps.a", "holds something that is not JSON"),
    ],
)
def test_a_wrong_type_is_a_message_and_not_a_crash(parts: dict[str, Any], where: str, message: str) -> None:
    problem = only(flow(step("a", **parts)))

    assert problem.where == where
    assert problem.message.startswith(message)


def test_a_wrong_type_outside_the_steps_is_a_message_too() -> None:
    assert only(flow(step("a"), config=Config(max_parallel="4"))).where == "config.max_parallel"  # type: ignore[arg-type]
    assert only(flow(step("a"), config={"max_parallel": 4})).where == "config"
    assert only(flow(step("a"), inputs={"n": {"type": "string"}})).where == "inputs.n"
    assert only(flow(step(7))).where == "steps[0].id"
    assert only(flow({"id": "a"})).message == "a step is expected, not dict"  # type: ignore[arg-type]


def test_endless_nesting_is_a_message_too() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    assert only(flow(step("a", with_={"x": deep}))).message == "nested too deep"


# -- gates, state, decisions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        (Gate(), "at least one check"),
        (Gate(checks=(Check(),)), "a check checks nothing"),
        (Gate(checks=(Check(expr="output.ok", run=("true",)),)), "a check has expr and run"),
        (Gate(checks=(Check(tool="stat"),)), "'stat' is not a tool"),
        (Gate(checks=(Check(tool="agent:judge"),)), "'agent:judge' is not a tool"),
        (Gate(checks=(Check(expr="output.ok", with_={"x": 1}),)), "only together with tool"),
    ],
)
def test_a_gate_that_cannot_work_is_refused(gate: Gate, said: str) -> None:
    assert said in only(flow(step("a", gate=gate))).message


@pytest.mark.parametrize(
    ("reducers", "hint"),
    [
        ({"k": "appendd"}, "did you mean 'append'?"),
        ({"k": "zzz"}, "one of last, append, merge, sum, max, min, or py:module:function"),
        ({"messages": "last"}, "choose another key"),
        ({"a key": "last"}, "use letters, digits and _, e.g. a_key"),
    ],
)
def test_a_bad_reducer_is_refused(reducers: dict[str, str], hint: str) -> None:
    assert only(flow(step("a"), reducers=reducers)).hint == hint


def test_reducers_are_named_or_python_functions() -> None:
    check(
        flow(
            step("a", set={"k": "${ output }", "free": "${ output }"}),
            reducers={"k": "sum", "j": "py:mine:fold"},
        )
    )


@pytest.mark.parametrize("key", ["messages", "tasks", "decisions", "context", "a key", "in"])
def test_a_step_sets_only_keys_that_are_its_to_set(key: str) -> None:
    assert only(flow(step("a", set={key: "${ output }"}))).where == f"steps.a.set.{key}"


@pytest.mark.parametrize(
    ("ail", "where"),
    [
        (Ail(after=(StepId("b"),)), "after[0]"),
        (Ail(rules=(Rule(if_="true", do="replan"),)), "rules[0]"),
        (Ail(rules=(Rule(if_="true", do="inject"),)), "rules[0]"),
        (Ail(rules=(Rule(if_="true", do="continue", feeds="a"),)), "rules[0].feeds"),
        (Ail(rules=(Rule(if_="true", do="continue", feeds="b.x"),)), "rules[0].feeds"),
        (
            Ail(rules=(Rule(if_="true", do="inject", tasks=(step("x", "nope"),)),)),
            "rules[0].tasks[0].needs[0]",
        ),
        (Ail(rules=(Rule(if_="true", do="inject", tasks=(step("x"), step("a"))),)), "rules[0].tasks[1].id"),
    ],
)
def test_rules_must_fit_the_workflow(ail: Ail, where: str) -> None:
    assert only(flow(step("a"), config=Config(ail=ail))).where == f"config.ail.{where}"


def test_a_rule_may_add_steps_that_need_those_of_the_workflow() -> None:
    rule = Rule(
        if_="true", do="inject", tasks=(step("x", "a"), step("y", with_={"v": "${ steps.x.output }"}))
    )

    check(flow(step("a"), config=Config(ail=Ail(rules=(rule,)))))


@pytest.mark.parametrize(
    ("one", "where"),
    [
        (Input(type="integer", default="3"), "default"),
        (Input(type="integer", default=True), "default"),
        (Input(type="string", default=None), "default"),
        (Input(type="string", enum=("a", 1)), "enum[1]"),
        (Input(type="string", enum=("a", "b"), default="c"), "default"),
        (Input(enum=(1, 2), default=True), "default"),
    ],
)
def test_defaults_and_choices_must_be_of_the_declared_type(one: Input, where: str) -> None:
    assert only(flow(step("a"), inputs={"n": one})).where == f"inputs.n.{where}"


def test_a_workflow_has_a_name_and_a_step() -> None:
    assert [problem.where for problem in problems(flow(name=" "))] == ["name", "steps"]


@given(st.text(), st.text(), st.text(), st.text())
def test_no_text_makes_the_check_crash(name: str, uses: str, when: str, value: str) -> None:
    said = ["accepted"]
    try:
        check(flow(step(name, uses=uses, when=when, with_={"x": value}, set={"k": value})))
    except DefinitionError as error:
        said = [problem.message for problem in error.problems]

    assert all(said)


# -- what this version carries out -------------------------------------------------------------------


def test_an_ordinary_workflow_is_supported() -> None:
    ordinary = flow(
        step("a", retry=Retry(max_attempts=2), timeout=3.0, effect="write"),
        step("b", "a", for_each="[1]", approval="never", critical=True),
        config=Config(engine="native", checkpoints="per_task"),
    )

    assert unsupported(ordinary) == []


@pytest.mark.parametrize(
    "parts",
    [
        {"routing": Routing(next=StepId("end"))},
        {"gate": Gate(checks=(Check(expr="output.ok"),))},
        {"approval": "always"},
        {"critical": True},
        {"effect": "destructive"},
        {"ail": Ail()},
        {"budget": Budget(usd=1)},
        {"uses": "agent:writer"},
    ],
)
def test_a_step_that_adapts_or_asks_is_supported(parts: dict[str, Any]) -> None:
    assert unsupported(flow(step("risky", **parts))) == []


@pytest.mark.parametrize(
    ("parts", "where"),
    [
        ({"config": Config(engine="temporal")}, "config.engine"),
        ({"config": Config(speculation=True)}, "config.speculation"),
        ({"config": Config(wave_timeout=3.0)}, "config.wave_timeout"),
        ({"schedule": "0 7 * * *"}, "schedule"),
    ],
)
def test_a_setting_that_cannot_be_carried_out_is_named(parts: dict[str, Any], where: str) -> None:
    (problem,) = unsupported(flow(step("a"), **parts))

    assert problem.where == where


@pytest.mark.parametrize(
    "parts",
    [
        {"config": Config(approval="always")},
        {"config": Config(ail=Ail())},
        {"config": Config(budget=Budget(usd=1))},
        {"config": Config(gate=Gate(checks=(Check(expr="output.ok"),)))},
        {"on_complete": "workflow:report"},
        {"on_failure": "workflow:alarm"},
    ],
)
def test_a_setting_that_can_be_carried_out_is_supported(parts: dict[str, Any]) -> None:
    assert unsupported(flow(step("a"), **parts)) == []


def test_what_was_stored_compiles_again() -> None:
    workflow = flow(step("a", with_={"x": [1, {"y": None}]}), step("b", "a", retry=Retry(max_attempts=2)))

    assert check(decode(encode(workflow))).needs == [(), (0,)]
