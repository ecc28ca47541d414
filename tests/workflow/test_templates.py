from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DefinitionError, Problem
from penstock.ids import StepId
from penstock.workflow.nodes import Node
from penstock.workflow.read import from_plain, loads, read
from penstock.workflow.spec import Check, Gate, Retry, Routing, Step
from penstock.workflow.templates import MAX_STEPS

ROUNDS = """\
name: review
templates:
  round:
    - id: draft
      uses: agent:writer
      with: {notes: "${ steps.audit[n-1].output.notes }", round: "${ n }"}
    - id: audit
      uses: agent:critic
      needs: ["audit[n-1]"]
      with: {text: "${ steps.draft.output }"}
steps:
  - expand: round
    for: {n: [1, 2, 3]}
outputs: {verdict: "${ steps.audit[3].output }"}
"""


def expanded(
    *steps: dict[str, Any], use: dict[str, Any], more: tuple[dict[str, Any], ...] = ()
) -> list[Step]:
    """What a template of these steps unrolls to; whether it makes sense is not asked."""
    whole = [{"uses": "s:t", **step} for step in steps]
    rest = [{"uses": "s:t", **step} for step in more]
    data = {"name": "x", "templates": {"t": whole}, "steps": [{"expand": "t", "for": use}, *rest]}
    workflow, _ = read(Node.from_plain(data))
    return list(workflow.steps)


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(DefinitionError) as caught:
        loads(text, "flow.yaml")
    return caught.value.problems


def test_a_template_is_copied_once_for_each_value() -> None:
    workflow = loads(ROUNDS).workflow

    assert [step.id for step in workflow.steps] == [
        "draft_1",
        "audit_1",
        "draft_2",
        "audit_2",
        "draft_3",
        "audit_3",
    ]


def test_references_lead_to_the_steps_of_the_right_copy() -> None:
    workflow = loads(ROUNDS).workflow
    steps = {step.id: step for step in workflow.steps}

    assert steps["draft_2"].with_ == {"notes": "${ steps.audit_1.output.notes }", "round": 2}
    assert steps["audit_3"].with_ == {"text": "${ steps.draft_3.output }"}
    assert steps["audit_3"].needs == ("audit_2",)
    assert workflow.outputs == {"verdict": "${ steps.audit_3.output }"}


def test_before_the_first_copy_there_is_null_in_expressions_and_nothing_in_needs() -> None:
    steps = {step.id: step for step in loads(ROUNDS).workflow.steps}

    assert steps["draft_1"].with_["notes"] == "${ null }"
    assert steps["audit_1"].needs == ()


def test_before_the_first_copy_a_step_written_by_hand_takes_its_place() -> None:
    made = expanded(
        {"id": "audit", "with": {"before": "${ steps.audit[n-1].output }"}, "needs": "audit[n-1]"},
        use={"n": [1]},
        more=({"id": "audit_0"},),
    )

    assert made[0].with_ == {"before": "${ steps.audit_0.output }"}
    assert made[0].needs == ("audit_0",)


def test_several_variables_are_combined_with_the_first_one_slowest() -> None:
    made = expanded({"id": "ask"}, use={"model": ["gpt-4.1", "local"], "n": [1, 2]})

    assert [step.id for step in made] == ["ask_gpt_4_1_1", "ask_gpt_4_1_2", "ask_local_1", "ask_local_2"]


def test_an_id_may_be_written_out_with_its_variables() -> None:
    made = expanded(
        {"id": "${ m }_ask_${ n }"},
        {"id": "sum", "with": {"x": "${ steps.ask.output }", "y": "${ steps.ask[n, m].output }"}},
        use={"n": [1], "m": ["a"]},
    )

    assert [step.id for step in made] == ["a_ask_1", "sum_1_a"]


def test_without_variables_a_template_is_put_in_place_as_it_is() -> None:
    data = {
        "name": "x",
        "templates": {"t": {"steps": [{"id": "a", "uses": "s:t"}, {"id": "b", "uses": "s:t", "needs": "a"}]}},
        "steps": [{"expand": "t"}, {"id": "c", "uses": "s:t", "needs": ["b"]}],
    }

    assert [(step.id, step.needs) for step in from_plain(data).workflow.steps] == [
        ("a", ()),
        ("b", ("a",)),
        ("c", ("b",)),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${ n }", 2),
        ("${n+1}", 3),
        ("${ n - 1 }", 1),
        ("${ word }", "it's"),
        ("round ${ n } of ${ word }", "round 2 of it's"),
        ("${ n * 2 }", "${ 2 * 2 }"),
        ("${ size(word) + n }", '${ size("it\'s") + 2 }'),
        ("${ inputs.n.word + item.n }", "${ inputs.n.word + item.n }"),
        ("${ 'n' + \"n\" }", "${ 'n' + \"n\" }"),
        ("${ {'n': n}['n'] }", "${ {'n': 2}['n'] }"),
        ("$${ n }", "$${ n }"),
        ("$${ and ${ n }", "$${ and 2"),
        ("n", "n"),
        ("${ never closed n", "${ never closed n"),
        ("${ nn + n2 }", "${ nn + n2 }"),
        ("${ '}' + word }", "${ '}' + \"it's\" }"),
        ("${ low - n }", "${ (-3) - 2 }"),
        ("${ flag ? 1 : 2 }", "${ true ? 1 : 2 }"),
        ("${ steps['me'].status }", "${ steps.me_2_it_s__3_true.status }"),
        ("${ previous.me.output }", "${ previous.me_2_it_s__3_true.output }"),
        ("${ output.steps.me }", "${ output.steps.me }"),
        ("${ has(steps.me[n-1, word, low, flag].output.x) }", "${ false }"),
        (
            "${ coalesce(steps.me[n-1, word, low, flag].output.list[0].x, []).size() }",
            "${ coalesce(null, []).size() }",
        ),
        ("${ steps.me[n-1, word, low, flag].output.matches('x') }", "${ null.matches('x') }"),
    ],
)
def test_variables_and_references_in_a_text_are_put_in_place(text: str, value: Any) -> None:
    # The copy for n = 3 finds its neighbour, so that the one for n = 2 may miss it.
    use = {"n": [2, 3], "word": ["it's"], "low": [-3], "flag": [True]}

    made = expanded({"id": "me", "with": {"x": text}}, use=use)

    assert made[0].with_ == {"x": value}


def test_conditions_are_expressions_without_being_marked() -> None:
    (made,) = expanded(
        {
            "id": "a",
            "when": "n > 1 && inputs.n",
            "for_each": "inputs.lists[n]",
            "gate": [{"expr": "output.n == n"}],
            "retry": {"on": ["n"]},
            "routing": {"on": "output.of[n]", "branches": {"n": "end"}},
        },
        use={"n": [1]},
    )

    assert made.when == "1 > 1 && inputs.n"
    assert made.for_each == "inputs.lists[1]"
    assert made.gate == Gate(checks=(Check(expr="output.n == 1"),))
    assert made.retry == Retry(on=("n",))
    assert made.routing == Routing(on="output.of[1]", branches={"n": StepId("end")})


def test_routes_lead_to_the_same_copy_unless_an_index_says_otherwise() -> None:
    made = expanded(
        {"id": "try"},
        {
            "id": "judge",
            "routing": {
                "conditions": [{"expr": "output.ok", "target": "done"}],
                "loop_target": "try",
                "max_iterations": 2,
                "branches": {"again": "try[1]"},
                "next": "end",
            },
        },
        use={"n": [1, 2]},
        more=({"id": "done"},),
    )

    routing = made[3].routing
    assert routing is not None
    assert (routing.loop_target, routing.next, routing.conditions[0].target) == ("try_2", "end", "done")
    assert routing.branches == {"again": "try_1"}


def test_steps_outside_refer_to_copies_by_constants() -> None:
    made = expanded(
        {"id": "ask"},
        use={"model": ["gpt-4.1"], "n": [1, 2]},
        more=({"id": "sum", "needs": ["ask['gpt-4.1', 1]"], "when": "steps.ask['gpt-4.1', 2].output.ok"},),
    )

    assert made[2].needs == ("ask_gpt_4_1_1",)
    assert made[2].when == "steps.ask_gpt_4_1_2.output.ok"


def test_an_ordinary_index_stays_an_index() -> None:
    made = expanded(
        {"id": "a"}, use={"n": [1]}, more=({"id": "b", "with": {"x": "${ steps.c[0] + inputs.l[0] }"}},)
    )

    assert made[1].with_ == {"x": "${ steps.c[0] + inputs.l[0] }"}


def test_copies_share_nothing_that_can_be_changed() -> None:
    first, second = expanded({"id": "a", "with": {"list": [1]}}, use={"n": [1, 2]})

    first.with_["list"].append(2)

    assert second.with_ == {"list": [1]}


def test_a_problem_in_a_copy_is_told_at_the_place_of_the_template() -> None:
    text = ROUNDS.replace("steps.draft.output", "steps.draught.output")

    problem = problems_of(text)[0]

    assert (problem.line, problem.where) == (10, "steps.audit_1.with.text")


def test_one_mistake_in_a_template_is_one_problem_however_many_copies() -> None:
    (problem,) = problems_of(ROUNDS.replace("needs: ", "neds: "))

    assert str(problem) == "flow.yaml:9:7: steps.audit_1: unknown key 'neds' (did you mean needs?)"


def test_every_part_of_a_copy_is_found_in_the_text() -> None:
    source = loads(ROUNDS)

    assert source.locate(("steps", 3, "with", "text")) == (10, 20)
    assert source.locate(("steps", 5, "id")) == (7, 11)


REFERENCES = [
    ("${ steps.audit[n-9].output }", "audit[n-9] has no step in any copy", "check the index"),
    ("${ steps.audit[7].output }", "audit[7] has no step", "a value of each variable"),
    ("${ steps.audit['x', 1].output }", "audit['x', 1] has no step", "a value of each variable"),
    ("${ steps.audit[n*2].output }", "the index of audit[n*2] cannot be read", "n-1"),
    ("${ steps.audit[m].output }", "the index of audit[m] cannot be read", "a variable"),
]


@pytest.mark.parametrize(("text", "words", "hint"), REFERENCES)
def test_a_reference_that_leads_nowhere_is_an_error(text: str, words: str, hint: str) -> None:
    (problem,) = problems_of(ROUNDS.replace("${ steps.draft.output }", text))

    assert (problem.line, problem.column) == (10, 20)
    assert words in problem.message
    assert hint in problem.hint


def test_a_route_beyond_the_last_copy_is_an_error() -> None:
    text = ROUNDS.replace("needs: [", "routing: {next: ").replace('n-1]"]', 'n+1]"}')

    (problem,) = problems_of(text)

    assert "audit[n+1] is beyond the last copy" in problem.message
    assert problem.line == 9


USES = [
    ("{expand: roud, for: {n: [1]}}", 14, "there is no template 'roud'", "did you mean round?"),
    ("{expand: [a]}", 14, "expected a template's name", "the templates are: round"),
    ("{expand: round, for: {n: 3}}", 30, "expected a list of values, found the number 3", "{n: [1, 2, 3]}"),
    ("{expand: round, for: {n: []}}", 30, "expected a list of values, found an empty list", "{n: [1, 2, 3]}"),
    ("{expand: round, for: [1]}", 26, "expected a map of variables, found a list", "for: {n:"),
    ("{expand: round, for: {item: [1]}}", 33, "'item' already means something", "another name"),
    ("{expand: round, for: {a-b: [1]}}", 32, "'a-b' is not a name", "another name"),
    ("{expand: round, for: {n: [[1]]}}", 31, "expected a constant, found a list", "numbers"),
    (
        "{expand: round, for: {n: [1]}, when: x}",
        36,
        "'when' cannot stand beside 'expand'",
        "the template's steps",
    ),
]


@pytest.mark.parametrize(("use", "column", "words", "hint"), USES)
def test_a_wrong_use_of_a_template_is_told_with_its_place(
    use: str, column: int, words: str, hint: str
) -> None:
    text = f"name: x\ntemplates:\n  round: [{{id: a, uses: s:t}}]\nsteps:\n  - {use}\n"

    (problem,) = problems_of(text)

    assert (problem.line, problem.column) == (5, column)
    assert words in problem.message
    assert hint in problem.hint


TEMPLATES = [
    ("3", 10, "expected a list of steps, found the number 3", "{steps:"),
    ("[]", 10, "expected a list of steps, found an empty list", "{steps:"),
    ("{steps: [{uses: s:t}]}", 19, "needs an 'id'", "{id: name"),
    ("{steps: [{id: a, uses: s:t}], with: {}}", 40, "unknown key 'with'", "only 'steps'"),
    ("[{expand: round}]", 12, "a template cannot use a template", "write its steps here"),
    ('[{id: "a_${ m }", uses: s:t}]', 16, "'m' is not a variable", "the variables are n, k"),
    ('[{id: "a_${ n }", uses: s:t}]', 16, "does not contain 'k'", "put ${ k } into it"),
]


@pytest.mark.parametrize(("template", "column", "words", "hint"), TEMPLATES)
def test_a_wrong_template_is_told_with_its_place(template: str, column: int, words: str, hint: str) -> None:
    text = (
        f"name: x\ntemplates:\n  round: {template}\nsteps:\n  - {{expand: round, for: {{n: [1], k: [1]}}}}\n"
    )

    problem = problems_of(text)[0]

    assert (problem.line, problem.column) == (3, column)
    assert words in problem.message
    assert hint in problem.hint


def test_templates_cannot_unroll_to_more_steps_than_a_workflow_may_have() -> None:
    values = ", ".join(map(str, range(400)))
    use = f"{{expand: t, for: {{a: [{values}], b: [{values}]}}}}"

    (problem,) = problems_of(f"name: x\ntemplates: {{t: [{{id: s, uses: s:t}}]}}\nsteps:\n  - {use}\n")

    assert problem.message == "templates unroll to 160,000 steps"
    assert f"{MAX_STEPS:,}" in problem.hint


def test_steps_of_the_same_id_are_refused_however_they_came_about() -> None:
    text = "name: x\ntemplates: {t: [{id: a, uses: s:t}]}\nsteps:\n  - {expand: t, for: {n: [1, 1]}}\n"

    (problem,) = problems_of(text)

    assert "a_1" in problem.message
    assert problem.line == 2


@given(st.integers(1, 6), st.integers(1, 6))
def test_a_chain_over_a_template_has_each_copy_need_the_one_before(first: int, length: int) -> None:
    values = list(range(first, first + length + 1))

    made = expanded({"id": "s", "needs": ["s[n-1]"]}, use={"n": values})

    assert [step.needs for step in made] == [(), *((f"s_{n}",) for n in values[:-1])]


@pytest.mark.slow
def test_a_template_of_100_000_copies_unrolls_in_a_few_seconds() -> None:
    started = time.process_time()

    made = expanded(
        {"id": "s", "needs": ["s[n-1]"], "with": {"n": "${ n }"}}, use={"n": list(range(MAX_STEPS))}
    )

    assert len(made) == MAX_STEPS
    assert time.process_time() - started < 20
