"""The values a run is given: types, defaults, choices, and texts from a command line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.ids import StepId
from penstock.workflow.inputs import check_inputs, coerce_inputs, fits
from penstock.workflow.spec import Input, InputType, Step, Workflow

STEP = Step(id=StepId("a"), uses="py:flow:work")


def taking(**inputs: Input) -> Workflow:
    return Workflow(name="flow", steps=(STEP,), inputs=inputs)


def refused(workflow: Workflow, given: dict[str, Any]) -> list[str]:
    with pytest.raises(InputError) as caught:
        check_inputs(workflow, given)
    return [str(problem) for problem in caught.value.problems]


def test_given_values_and_defaults_come_back_together() -> None:
    workflow = taking(folder=Input(type="string", default="./inbox"), count=Input(type="integer"))

    assert check_inputs(workflow, {"count": 3}) == {"folder": "./inbox", "count": 3}


def test_what_must_be_given_is_asked_for_in_words() -> None:
    workflow = taking(folder=Input(type="string", description="where to look"), rest=Input(default=None))

    assert refused(workflow, {}) == ["inputs.folder: text must be given: where to look"]


def test_all_problems_are_reported_at_once() -> None:
    workflow = taking(a=Input(type="string"), b=Input(type="integer"), c=Input())

    assert len(refused(workflow, {"b": "x", "d": 1})) == 4


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", ["", "x"], [1, None, ["x"], True]),
        ("integer", [0, -3], [1.0, "1", True, None]),
        ("number", [0, 1.5], ["1", False, None]),
        ("boolean", [True, False], [0, "true", None]),
        ("array", [[], [1]], ["x", {}, None]),
        ("object", [{}, {"a": 1}], [[], "x", None]),
        ("any", [None, 1, "x", True, [], {}], []),
    ],
)
def test_values_are_held_to_their_declared_type(kind: InputType, good: list[Any], bad: list[Any]) -> None:
    workflow = taking(x=Input(type=kind))

    for value in good:
        assert check_inputs(workflow, {"x": value}) == {"x": value}
    for value in bad:
        assert "is not" in refused(workflow, {"x": value})[0]


def test_choices_are_enforced_and_the_nearest_is_suggested() -> None:
    workflow = taking(size=Input(type="string", enum=("small", "large")))

    assert check_inputs(workflow, {"size": "small"}) == {"size": "small"}
    assert refused(workflow, {"size": "smal"}) == [
        'inputs.size: "smal" is not one of "small", "large" (did you mean \'small\'?)'
    ]


def test_true_is_not_the_choice_1() -> None:
    assert refused(taking(n=Input(enum=(1, 2))), {"n": True})


def test_an_unknown_input_suggests_the_nearest() -> None:
    workflow = taking(folder=Input(default=""))

    assert refused(workflow, {"foldr": "x"}) == ["the workflow has no input 'foldr' (did you mean 'folder'?)"]
    assert refused(workflow, {"zzz": "x"}) == ["the workflow has no input 'zzz' (it takes folder)"]
    assert refused(taking(), {"zzz": "x"}) == ["the workflow has no input 'zzz' (it takes none)"]


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), {"x": {1, 2}}, 2**64, b"x"])
def test_what_is_not_json_is_refused(value: Any) -> None:
    (problem,) = refused(taking(x=Input()), {"x": value})

    assert problem.startswith("inputs.x")


def test_a_long_value_is_not_repeated_in_full() -> None:
    (problem,) = refused(taking(x=Input(type="integer")), {"x": "y" * 10_000})

    assert len(problem) < 120


def test_two_runs_never_share_a_value() -> None:
    workflow = taking(x=Input(default={"list": [1]}), y=Input())
    mine = {"y": [1]}

    first, second = check_inputs(workflow, mine), check_inputs(workflow, mine)
    first["x"]["list"].append(2)
    first["y"].append(2)

    assert second == {"x": {"list": [1]}, "y": [1]}
    assert mine == {"y": [1]}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "3", "3"),
        ("string", "", ""),
        ("integer", "-3", -3),
        ("integer", " 7 ", 7),
        ("number", "3", 3),
        ("number", "2.5e3", 2500.0),
        ("boolean", "true", True),
        ("boolean", "No", False),
        ("boolean", "1", True),
        ("array", '["a", 1]', ["a", 1]),
        ("object", '{"a": null}', {"a": None}),
        ("any", "[1]", [1]),
        ("any", "3", 3),
        ("any", "just text", "just text"),
    ],
)
def test_a_text_is_read_by_the_declared_type(kind: InputType, text: str, value: Any) -> None:
    found = coerce_inputs(taking(x=Input(type=kind)), {"x": text})

    assert found == {"x": value}
    assert type(found["x"]) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("integer", "3.5"),
        ("integer", "three"),
        ("integer", "1_000"),
        ("integer", ""),
        ("number", "nan"),
        ("number", "1e"),
        ("boolean", "maybe"),
        ("array", "a,b"),
        ("object", "{a: 1}"),
    ],
)
def test_a_text_of_the_wrong_type_is_refused(kind: InputType, text: str) -> None:
    with pytest.raises(InputError, match=r"inputs\.x: .* is not"):
        coerce_inputs(taking(x=Input(type=kind)), {"x": text})


def test_a_text_for_an_unknown_input_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'folder'"):
        coerce_inputs(taking(folder=Input()), {"foldr": "x"})


def test_a_text_of_brackets_without_end_is_text_or_a_refusal() -> None:
    assert coerce_inputs(taking(x=Input()), {"x": "[" * 100_000}) == {"x": "[" * 100_000}
    with pytest.raises(InputError):
        coerce_inputs(taking(x=Input(type="array")), {"x": "[" * 100_000})


KINDS: list[InputType] = ["string", "integer", "number", "boolean", "array", "object", "any"]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(KINDS), VALUES)
def test_a_value_is_accepted_exactly_when_it_fits(kind: InputType, value: Any) -> None:
    workflow = taking(x=Input(type=kind))

    if fits(value, kind):
        assert check_inputs(workflow, {"x": value}) == {"x": value}
    else:
        assert refused(workflow, {"x": value})


@given(st.sampled_from(KINDS), st.text())
def test_what_a_text_is_read_as_is_of_the_declared_type(kind: InputType, text: str) -> None:
    workflow = taking(x=Input(type=kind))
    try:
        found = coerce_inputs(workflow, {"x": text})
    except InputError:
        return

    if kind not in ("array", "object"):
        assert fits(found["x"], kind)
