from __future__ import annotations

import datetime as dt
import functools
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DefinitionError
from penstock.ids import StepId
from penstock.workflow.builder import WorkflowBuilder
from penstock.workflow.read import load, loads
from penstock.workflow.refs import Ref
from penstock.workflow.spec import Routing, Step

TRIAGE = Path(__file__).with_name("triage.yaml")


def list_directory(path: str) -> list[str]:
    return [path]


def flow(**config: Any) -> WorkflowBuilder:
    return WorkflowBuilder("x", **config)


def test_the_example_of_the_design_has_the_same_hash_in_python() -> None:
    triage = WorkflowBuilder(
        "triage-folder",
        checkpoints="per_task",
        approval="critical_only",
        budget={"usd": 0.50, "tokens": 200_000, "wall": "10m"},
        ail={
            "after": ["list"],
            "decider": "policy",
            "rules": [
                {
                    "if": "steps.list.output.files.exists(f, f.endsWith('.xml'))",
                    "do": "replan",
                    "requirement": "parse XML files",
                    "feeds": "author.notes",
                }
            ],
        },
    )
    folder = triage.input("folder", str, default="./inbox")
    triage.step("list", "files:list_directory", path=folder)
    parsed = triage.step(
        "parse_json",
        "data:parse_json",
        for_each="${ steps.list.output.files.filter(f, f.endsWith('.json')) }",
        retry={"max_attempts": 3, "backoff": "1s"},
        timeout="30s",
        path="${ item }",
    )
    author = triage.step("author", "agent:writer", notes=parsed, critique="${ previous.critic.output }")
    triage.step(
        "critic",
        "agent:critic",
        draft=author.output,
        routing={
            "kind": "loop",
            "conditions": [{"expr": "output.verdict == 'VERIFIED'", "target": "publish"}],
            "loop_target": author,
            "max_iterations": 3,
            "next": "publish",
        },
    )
    publish = triage.step(
        "publish",
        "files:write",
        path="report.md",
        content=author.output.text,
        gate={
            "max_attempts": 3,
            "checks": [{"expr": "output.bytes > 0"}, {"run": ["test", "-s", "${ output.path }"]}],
        },
    )
    triage.output("report", publish.output.path)

    assert triage.build() == load(TRIAGE).workflow
    assert triage.build().hash == load(TRIAGE).workflow.hash


def test_references_write_the_expression_they_stand_for() -> None:
    folder = flow().input("folder")

    assert str(folder) == "${ inputs.folder }"
    assert str(folder.x["a b"][0]) == "${ inputs.folder.x['a b'][0] }"
    assert str(folder["plain"]) == "${ inputs.folder.plain }"
    assert str(folder["in"]) == "${ inputs.folder['in'] }"
    assert str(folder["it's"]) == '${ inputs.folder["it\'s"] }'
    assert str(folder[folder.n]) == "${ inputs.folder[inputs.folder.n] }"
    assert f"in {folder.name}, please" == "in ${ inputs.folder.name }, please"


def test_a_step_stands_for_its_output() -> None:
    building = flow()
    first = building.step("a", "s:t")

    building.step("b", "s:t", whole=first, part=first.output.n, nested={"x": [first.status, f"<{first}>"]})

    assert building.build().steps[1].with_ == {
        "whole": "${ steps.a.output }",
        "part": "${ steps.a.output.n }",
        "nested": {"x": ["${ steps.a.status }", "<${ steps.a.output }>"]},
    }
    assert str(first.previous) == "${ previous.a.output }"
    assert str(first.error) == "${ steps.a.error }"


def test_a_reference_has_no_value_before_the_run() -> None:
    ref = flow().input("n")

    with pytest.raises(TypeError, match=r"inputs\.n has no value before the run"):
        bool(ref)
    with pytest.raises(TypeError, match=r"inputs\.n has no items before the run"):
        list(ref)
    with pytest.raises(AttributeError):
        _ = ref._private
    with pytest.raises(DefinitionError, match="cannot be indexed with -1"):
        _ = ref[-1]


def test_needs_are_added_only_when_they_are_given() -> None:
    building = flow()
    first = building.step("a", "s:t")
    building.step("b", "s:t", x=first)
    building.step("c", "s:t", needs=first)
    building.step("d", "s:t", needs=["a", first])

    assert [step.needs for step in building._steps.values()] == [(), (), ("a",), ("a", "a")]


def test_options_mean_what_they_mean_in_a_file() -> None:
    building = flow(reducers={"n": "sum"})
    building.input("n")
    building.step(
        "a",
        "s:t",
        retry=3,
        timeout="1m30s",
        approval=True,
        gate=[{"expr": "output.ok"}],
        when="${ inputs.n > 1 }",
        on_error="continue",
        estimate=2,
        set={"n": 1},
    )
    written = """
        name: x
        inputs: {n: {}}
        reducers: {n: sum}
        steps:
          - {id: a, uses: s:t, retry: 3, timeout: 90, approval: true, gate: [{expr: output.ok}],
             when: inputs.n > 1, on_error: continue, estimate: 2s, set: {n: 1}}
    """

    assert building.build().hash == loads(written).workflow.hash


def test_for_each_takes_a_reference_a_step_or_a_list() -> None:
    building = flow()
    first = building.step("a", "s:t")
    building.step("b", "s:t", for_each=first)
    building.step("c", "s:t", for_each=first.output.files)
    building.step("d", "s:t", for_each=[1, 2])

    assert [step.for_each for step in building.build().steps[1:]] == [
        "steps.a.output",
        "steps.a.output.files",
        "[1,2]",
    ]


def test_arguments_whose_names_are_options_go_through_with() -> None:
    building = flow()
    building.step("a", "s:t", timeout=5, with_={"timeout": "x", "id": 1}, uses=2)

    (step,) = building.build().steps
    assert (step.timeout, step.with_) == (5.0, {"timeout": "x", "id": 1, "uses": 2})


def test_tuples_are_lists_and_later_changes_do_not_reach_the_definition() -> None:
    building = flow()
    given_list = [1, (2, 3)]
    building.step("a", "s:t", x=given_list)

    given_list.append(4)

    assert building.build().steps[0].with_ == {"x": [1, [2, 3]]}


def test_a_function_is_named_and_remembered() -> None:
    building = flow()
    building.step("a", list_directory, path=".")

    assert building.build().steps[0].uses == f"py:{__name__}:list_directory"
    assert building.functions == {"a": list_directory}


def test_a_function_that_cannot_be_imported_still_works_in_this_process() -> None:
    building = flow()
    partial = functools.partial(list_directory, ".")
    building.step("a", lambda: 1)
    building.step("b", partial)

    first, second = building.build().steps
    assert "<lambda>" in first.uses
    assert second.uses.endswith(":<partial>")
    assert building.functions["b"] is partial


def test_a_workflow_as_a_step_is_a_child() -> None:
    child = WorkflowBuilder("child")
    child.step("a", list_directory, path=".")
    building = flow()
    building.step("one", child)
    building.step("two", child.build())

    assert [step.uses for step in building.build().steps] == ["workflow:child", "workflow:child"]
    assert building.children == {"child": child.build()}
    assert building.builders == {"child": child}


def test_two_different_children_of_one_name_are_refused() -> None:
    first, second = WorkflowBuilder("child"), WorkflowBuilder("child")
    first.step("a", "s:t")
    second.step("b", "s:t")
    building = flow()
    building.step("one", first)

    with pytest.raises(DefinitionError, match="two workflows called 'child'"):
        building.step("two", second)


def test_an_input_may_be_declared_in_passing() -> None:
    building = flow()
    building.input("n", "integer", default=3, enum=[1, 3], description="how many")
    building.step("a", "s:t", n=building.input("n"), folder=building.input("folder"))

    workflow = building.build()
    assert workflow.inputs["n"].default == 3
    assert workflow.inputs["n"].enum == (1, 3)
    assert workflow.inputs["folder"].required


def test_an_input_cannot_be_declared_in_two_ways() -> None:
    building = flow()
    building.input("n", int)

    with pytest.raises(DefinitionError, match="already declared otherwise"):
        building.input("n", str)


def test_building_twice_gives_the_same_value_until_something_changes() -> None:
    building = flow()
    building.step("a", "s:t")
    before = building.build()

    assert building.build() is before
    assert building.graph.workflow is before

    building.output("x", 1)

    assert building.build() is not before
    assert before.outputs == {}


def test_outputs_may_be_given_at_once_or_one_by_one() -> None:
    one, other = flow(outputs={"x": "${ steps.a.output }"}), flow()
    one.step("a", "s:t")
    other.output("x", other.step("a", "s:t"))

    assert one.build().hash == other.build().hash


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda f: f.step("a", "s:t", x={1, 2}),
            "steps.a.with.x: a value of type set is not JSON (use a list",
        ),
        (lambda f: f.step("a", "s:t", x=[{"y": b"b"}]), "steps.a.with.x[0].y: a value of type bytes"),
        (lambda f: f.step("a", "s:t", x=Path()), "(use str(path))"),
        (lambda f: f.step("a", "s:t", x=dt.date(2026, 1, 1)), "(use .isoformat())"),
        (lambda f: f.step("a", "s:t", x=math.nan), "steps.a.with.x: nan is not a JSON number"),
        (lambda f: f.step("a", "s:t", x=2**64), "does not fit into 64 bits"),
        (lambda f: f.step("a", "s:t", x={1: 2}), "steps.a.with.x: the key 1 is not text (use '1')"),
        (lambda f: f.step("a", "s:t", x=list_directory), "a function is given as `uses`"),
        (lambda f: f.step("a", 3), "steps.a.uses: a value of type int cannot be called"),
        (lambda f: f.step("a", "s:t", needs=[3]), "steps.a.needs: 3 is not a step"),
        (lambda f: f.step("a", "s:t", when=f.input("n") == 3), "steps.a: a condition is text"),
        (
            lambda f: f.step("a", "s:t", retry={"backof": 1}),
            "steps.a.retry: unknown key 'backof' (did you mean",
        ),
        (lambda f: f.step("a", "s:t", timeout="soon"), "steps.a.timeout: expected a duration"),
        (lambda f: f.step("a", "s:t", max_parallel=0), "steps.a.max_parallel: 0 is too small"),
        (
            lambda f: f.step("a", "s:t", approval="perhaps"),
            "steps.a.approval: the text 'perhaps' is not one of",
        ),
        (lambda f: f.input("n", "int"), "inputs.n.type: the text 'int' is not one of"),
        (lambda f: f.input("n", set), "inputs.n.type: the text 'set' is not one of"),
        (lambda f: f.output("x", object()), "outputs.x: a value of type object"),
        (lambda _: flow(max_paralel=3), "config: unknown key 'max_paralel' (did you mean max_parallel?)"),
        (lambda _: flow(max_parallel=0), "config.max_parallel: 0 is too small"),
        (lambda _: flow(reducers=3), "reducers: expected a map"),
    ],
)
def test_what_cannot_be_accepted_is_refused_where_it_is_written(make: Any, message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        make(flow())

    assert message in str(caught.value)


def test_a_step_that_was_refused_is_not_there() -> None:
    building = flow()
    with pytest.raises(DefinitionError):
        building.step("a", "s:t", retry=0)

    building.step("a", "s:t")

    assert len(building.build().steps) == 1


def test_a_second_step_of_the_same_id_is_refused_at_once() -> None:
    building = flow()
    building.step("a", "s:t")

    with pytest.raises(DefinitionError, match=r"steps\.a: there is already a step of this id"):
        building.step("a", "s:t")


def test_building_tells_everything_that_is_wrong() -> None:
    building = flow()
    building.step("a", "s:t", needs="nobody")
    building.step("b", "s:t", x="${ steps.none.output }")

    with pytest.raises(DefinitionError) as caught:
        building.build()

    assert [problem.where for problem in caught.value.problems] == ["steps.a.needs[0]", "steps.b.with.x"]


def test_routes_name_steps_and_arguments_read_them() -> None:
    building = flow()
    first = building.step("a", "s:t")
    building.step(
        "b",
        "s:t",
        x=first,
        routing={"kind": "loop", "loop_target": first, "max_iterations": 2, "next": "end"},
    )

    assert building.build().steps[1].routing == Routing(
        kind="loop", loop_target=first.id, max_iterations=2, next=StepId("end")
    )


names = st.text("abcdefgh", min_size=1, max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text("ab é'\"\\\n", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)


@given(
    st.lists(
        st.tuples(names, st.dictionaries(names, values, max_size=3)), min_size=1, unique_by=lambda s: s[0]
    )
)
def test_a_definition_in_python_has_the_hash_of_the_same_one_in_yaml(
    made: list[tuple[str, dict[str, Any]]],
) -> None:
    building = flow()
    for name, arguments in made:
        building.step(f"s_{name}", "s:t", retry=2, with_=arguments)
    workflow = building.build()

    steps = [{"id": f"s_{name}", "uses": "s:t", "retry": 2, "with": arguments} for name, arguments in made]
    assert loads(json.dumps({"name": "x", "steps": steps})).workflow.hash == workflow.hash


@given(st.lists(st.text("ab .'\"\\\n\té", max_size=5), max_size=4))
def test_any_keys_can_be_reached(keys: list[str]) -> None:
    building = flow()
    ref: Ref = building.input("data")
    for key in keys:
        ref = ref[key]
    building.step("a", "s:t", x=ref)

    assert building.build().steps[0].with_ == {"x": str(ref)}


def test_adding_100_000_steps_takes_about_a_second() -> None:
    building = flow()
    started = time.process_time()
    last = building.step("s0", "local:noop")
    for n in range(1, 100_000):
        last = building.step(f"s{n}", "local:noop", needs=last)

    assert time.process_time() - started < 4
    assert building._steps[last.id] == Step(id=last.id, uses="local:noop", needs=(StepId("s99998"),))
