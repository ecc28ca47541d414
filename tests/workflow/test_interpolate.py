"""`${ … }` in values: where it is found, what it becomes, and what stays as it was."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ExpressionError
from penstock.workflow.expr import MISSING, ROOTS, Failure, Lookup, Path, Scope
from penstock.workflow.interpolate import Template, compile_value, expression_text

SCOPE = Scope(names=ROOTS, inputs={"folder": "string", "n": "integer"}, steps=("fetch",))


def finding(**state: Any) -> Lookup:
    def look_up(path: Path) -> Any:
        value: Any = state
        for part in path:
            if not isinstance(value, dict) or part not in value:
                return MISSING
            value = value[part]
        return value

    return look_up


def template(value: Any) -> Template:
    return compile_value(value, SCOPE)


def rendered(value: Any, **state: Any) -> Any:
    return template(value).render(finding(**state))


def refused(value: Any) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        template(value)
    return caught.value


@pytest.mark.parametrize("value", [7, 1.5, True, None, "text", [1, {"a": 2}], {"a": []}])
def test_a_whole_string_expression_keeps_the_type(value: Any) -> None:
    assert rendered("${ output }", output=value) == value
    assert rendered("${output}", output=value) == value
    assert rendered("${ [output][0] }", output=value) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "<a>"),
        (None, "<>"),
        (True, "<true>"),
        (7, "<7>"),
        (1.5, "<1.5>"),
        ([1, "é", None], '<[1,"é",null]>'),
        ({"a": {"b": 1}}, '<{"a":{"b":1}}>'),
    ],
)
def test_a_mixed_string_is_a_string(value: Any, text: str) -> None:
    assert rendered("<${ output }>", output=value) == text


def test_a_space_around_the_expression_makes_it_a_mixed_string() -> None:
    assert rendered(" ${ output }", output=7) == " 7"


def test_several_expressions_in_one_string_are_filled_in_order() -> None:
    assert (
        rendered("${ inputs.n }-${ inputs.folder }/${ inputs.n + 1 }", inputs={"n": 1, "folder": "x"})
        == "1-x/2"
    )


def test_values_are_filled_in_at_any_depth_and_keys_are_not() -> None:
    value = {"${ output }": [{"text": "${ output.a }"}, "b", ("${ output.b }",)], "n": 1}

    assert rendered(value, output={"a": "A", "b": [2]}) == {
        "${ output }": [{"text": "A"}, "b", [[2]]],
        "n": 1,
    }


def test_all_paths_are_read_once_and_in_order() -> None:
    made = template({"a": "${ steps.fetch.output.x }", "b": ["${ inputs.n + 1 } ${ steps.fetch.output.x }"]})

    assert made.reads == (("steps", "fetch", "output", "x"), ("inputs", "n"))
    assert not made.constant


@pytest.mark.parametrize(
    "source",
    [
        "${ {'a': 1}['a'] }",
        "${{'a': {'b': 1}}['a']['b']}",
        "${ '}' == '\\x7d' ? 1 : 0 }",
        "${ '\\'}' == r'\\d}' ? 0 : 1 }",
        """${ '''}''' == "}" ? 1 : 0 }""",
    ],
)
def test_braces_and_quotes_inside_an_expression_do_not_end_it(source: str) -> None:
    assert rendered(source) == 1


def test_a_comment_inside_an_expression_may_hold_a_brace() -> None:
    assert rendered("${ output // }\n + 1 }", output=1) == 2


def test_a_doubled_dollar_is_a_literal() -> None:
    assert rendered("$${ output }") == "${ output }"
    assert rendered("$${ ${ output }", output=1) == "${ 1"
    assert template("$${ output }").constant
    assert rendered("costs $5 {really}, 100$") == "costs $5 {really}, 100$"


def test_a_template_without_expressions_is_constant() -> None:
    made = template({"a": [1, "x", None]})

    assert made.constant
    assert made.reads == ()


def test_renderings_share_nothing_mutable() -> None:
    fetched = {"rows": [[1]]}
    made = template({"rows": "${ steps.fetch.output.rows }", "options": {"deep": [1]}})
    look_up = finding(steps={"fetch": {"output": fetched}})

    first = made.render(look_up)
    first["rows"][0].append(2)
    first["options"]["deep"].append(2)

    assert fetched == {"rows": [[1]]}
    assert made.render(look_up) == {"rows": [[1]], "options": {"deep": [1]}}


def test_the_value_given_to_a_template_may_change_afterwards() -> None:
    value = {"a": ["${ inputs.n }", 1]}
    made = template(value)
    value["a"].append(2)

    assert made.render(finding(inputs={"n": 0})) == {"a": [0, 1]}
    assert value == {"a": ["${ inputs.n }", 1, 2]}


def test_the_first_failure_is_what_comes_back() -> None:
    result = rendered({"a": "${ output.x }", "b": "<${ output.y + 1 }>"}, output={"x": 1})

    assert result == Failure("output.y: no such value", "output.y + 1")


def test_a_value_that_is_not_json_fails() -> None:
    for text in ("${ output }", "<${ output }>"):
        result = rendered(text, output=object())
        assert isinstance(result, Failure)
        assert result.message.startswith("the value is not JSON")


@pytest.mark.parametrize(
    ("value", "where", "column"),
    [
        ({"notes": [{"text": "a ${ inputs.fold }"}]}, "notes[0].text", 6),
        (["x", "${ inputs.fold }"], "[1]", 4),
        ("${  inputs.n +  }", "", 15),
        ({"a": "ok ${ inputs.n", "b": 1}, "a", 4),
    ],
)
def test_an_error_says_where_in_the_value_it_is(value: Any, where: str, column: int) -> None:
    error = refused(value)

    assert (error.where, error.column) == (where, column)


def test_an_unclosed_expression_is_refused_with_a_way_out() -> None:
    error = refused("${ inputs.folder")

    assert error.message == "${ is never closed"
    assert error.hint == "close it with }, or write $${ for a literal ${"


def test_an_empty_expression_is_refused() -> None:
    assert refused("${ }").message == "the expression is empty"


def test_deep_values_are_compiled_and_absurd_ones_refused() -> None:
    deep: Any = "${ inputs.n }"
    for _ in range(200):
        deep = [{"a": deep}]
    result = rendered(deep, inputs={"n": 5})
    while not isinstance(result, int):
        result = result[0]["a"]
    assert result == 5

    for _ in range(2_000):
        deep = [deep]
    assert "nested more than" in refused(deep).message


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("${ a == 1 }", "a == 1"),
        ("  ${a}  ", "a"),
        ("a == 1", "a == 1"),
        ("${ a } && ${ b }", "${ a } && ${ b }"),
        ("${ {'k': '}'}['k'] }", "{'k': '}'}['k']"),
        ("${ a", "${ a"),
        ("", ""),
    ],
)
def test_one_pair_of_braces_around_a_bare_expression_is_optional(text: str, inner: str) -> None:
    assert expression_text(text) == inner


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def escaped(value: Any) -> Any:
    match value:
        case str():
            return value.replace("${", "$${")
        case list():
            return [escaped(item) for item in value]
        case dict():
            return {key: escaped(item) for key, item in value.items()}
        case _:
            return value


@given(json_values)
def test_an_escaped_value_renders_as_itself(value: Any) -> None:
    made = template(escaped(value))

    assert made.constant
    assert made.render(finding()) == value


@given(st.text("${}a '", max_size=12), st.text("${}a '", max_size=12), json_values)
def test_literal_text_around_an_expression_is_kept(before: str, after: str, value: Any) -> None:
    source = f"{escaped(before)}<${{ output }}>{escaped(after)}"
    spelled = {str: value, type(None): ""}.get(type(value), msgspec.json.encode(value).decode())

    assert rendered(source, output=value) == f"{before}<{spelled}>{after}"
