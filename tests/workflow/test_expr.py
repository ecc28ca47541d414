"""Expressions: what they read, what they give, what they refuse, and how they fail."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import ExpressionError
from penstock.workflow import expr
from penstock.workflow.expr import MISSING, ROOTS, Expression, Failure, Lookup, Path, Scope
from penstock.workflow.syntax import path_text

EVERYTHING = Scope(
    names=ROOTS,
    inputs={
        "n": "integer",
        "ratio": "number",
        "folder": "string",
        "dry": "boolean",
        "tags": "array",
        "options": "object",
        "extra": "any",
    },
    steps=("fetch", "parse", "report"),
)


def finding(**state: Any) -> Lookup:
    """A lookup in plain data: below null everything is null, as after a skipped step."""

    def look_up(path: Path) -> Any:
        value: Any = state
        for part in path:
            if value is None:
                return None
            if not isinstance(value, dict) or part not in value:
                return MISSING
            value = value[part]
        return value

    return look_up


def evaluate(source: str, **state: Any) -> Any:
    return expr.compile(source, EVERYTHING).evaluate(finding(**state))


def failure(source: str, **state: Any) -> str:
    result = evaluate(source, **state)
    assert isinstance(result, Failure)
    assert result.source == source
    return result.message


def refused(source: str, scope: Scope = EVERYTHING, **expect: Any) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        expr.compile(source, scope, **expect)
    return caught.value


def reads(source: str) -> list[str]:
    return [path_text(path) for path in expr.compile(source, EVERYTHING).reads]


# -- what is read ----------------------------------------------------------------------------------


def test_every_path_is_read_once_and_in_order_of_appearance() -> None:
    source = "steps.parse.output.b > inputs.n && steps.fetch.output.a == steps.parse.output.b"

    assert reads(source) == ["steps.parse.output.b", "inputs.n", "steps.fetch.output.a"]


@pytest.mark.parametrize(
    "source",
    [
        "steps['fetch'].output[\"files\"]",
        "steps.fetch.output.files",
        "  steps . fetch\n.output['files']  ",
        "steps['fetch'].output.files.size()",
        "[steps.fetch['output'].files]",
    ],
)
def test_an_index_by_a_constant_name_is_the_same_as_a_field(source: str) -> None:
    assert reads(source) == ["steps.fetch.output.files"]


def test_a_name_that_is_no_identifier_can_be_part_of_a_path() -> None:
    expression = expr.compile("steps.fetch.output['a b'].`c-d` > 1", EVERYTHING)

    assert expression.reads == (("steps", "fetch", "output", "a b", "c-d"),)
    assert expression.evaluate(finding(steps={"fetch": {"output": {"a b": {"c-d": 2}}}})) is True


def test_a_path_ends_where_it_is_called_or_indexed_by_number() -> None:
    assert reads("output.items.size() + output.rows[0].n") == ["output.items", "output.rows"]


def test_parentheses_end_a_path_early() -> None:
    assert reads("(steps.fetch.output).files") == ["steps.fetch.output"]


def test_asking_for_presence_reads_what_would_contain_it() -> None:
    assert reads("has(steps.fetch.output.files)") == ["steps.fetch.output"]
    assert reads("output.?a.orValue(1)") == ["output"]


def test_names_in_literals_and_comments_are_not_read() -> None:
    assert reads("'steps.fetch.output' + inputs.folder // steps.parse.output") == ["inputs.folder"]


def test_a_macro_variable_hides_a_root_of_the_same_name() -> None:
    source = "output.rows.map(steps, steps.fetch + inputs.n)"

    assert reads(source) == ["output.rows", "inputs.n"]
    assert evaluate(source, output={"rows": [{"fetch": 1}, {"fetch": 2}]}, inputs={"n": 10}) == [11, 12]


def test_a_macro_variable_hides_a_root_only_inside_the_macro() -> None:
    assert reads("[1, 2].exists(inputs, inputs > 1) && inputs.dry") == ["inputs.dry"]
    assert reads("cel.bind(output, output.a, output + 1)") == ["output.a"]


def test_the_range_of_a_macro_is_outside_its_scope() -> None:
    assert reads("output.all(output, output > 0)") == ["output"]


# -- what comes back -------------------------------------------------------------------------------


def test_a_plain_path_is_known_as_one_and_never_loads_cel() -> None:
    program = (
        "import sys; from penstock.workflow import expr; "
        "e = expr.compile('steps.a.output.b', expr.Scope(names=expr.ROOTS)); "
        "assert e.path == ('steps', 'a', 'output', 'b') and e.evaluate(lambda path: 7) == 7; "
        "sys.exit(any(name.startswith('cel_expr_python') for name in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_only_a_path_alone_counts_as_a_plain_path() -> None:
    assert expr.compile("output.a", EVERYTHING).path == ("output", "a")
    assert expr.compile("output.a == 1", EVERYTHING).path is None
    assert expr.compile("output.rows[0]", EVERYTHING).path is None
    assert expr.compile("true", EVERYTHING).path is None


def test_a_later_output_is_seen_when_the_expression_is_evaluated_again() -> None:
    expression = expr.compile("steps.fetch.output.n + inputs.n", EVERYTHING)
    state: dict[str, Any] = {"steps": {"fetch": {"output": {"n": 1}}}, "inputs": {"n": 1}}
    look_up = finding(**state)

    first = expression.evaluate(look_up)
    state["steps"]["fetch"]["output"]["n"] = 41

    assert (first, expression.evaluate(look_up)) == (2, 42)


def test_equal_sources_share_one_compiled_expression_that_keeps_nothing() -> None:
    first = expr.compile("output.verdict == 'VERIFIED'", EVERYTHING)
    second = expr.compile("output.verdict == 'VERIFIED'", Scope(names=frozenset({"output"})))

    assert first is second
    assert first.evaluate(finding(output={"verdict": "VERIFIED"})) is True
    assert second.evaluate(finding(output={"verdict": "REJECTED"})) is False
    assert isinstance(first.evaluate(finding(output={})), Failure)


def test_the_same_source_with_other_input_types_is_compiled_apart() -> None:
    text = Scope(names=ROOTS, inputs={"n": "string"})

    assert expr.compile("inputs.n + inputs.n", EVERYTHING).evaluate(finding(inputs={"n": 2})) == 4
    assert expr.compile("inputs.n + inputs.n", text).evaluate(finding(inputs={"n": "2"})) == "22"


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("null", None),
        ("[1, null, {'a': null}]", [1, None, {"a": None}]),
        ("{'b': 1, 'a': {2: true, false: 'x'}}", {"a": {"2": True, "false": "x"}, "b": 1}),
        ("timestamp('2020-01-02T03:04:05.5Z')", "2020-01-02T03:04:05.500000Z"),
        ("duration('90s')", "90s"),
        ("b'abc'", "YWJj"),
        ("7u", 7),
        ("type(1)", "int"),
    ],
)
def test_results_are_json(source: str, value: Any) -> None:
    assert evaluate(source) == value


def test_objects_come_back_with_sorted_keys() -> None:
    names = [f"key{n}" for n in range(20)]

    assert list(evaluate("[output][0]", output=dict.fromkeys(reversed(names), 1))) == sorted(names)
    assert evaluate("output.map(k, k)", output=dict.fromkeys(reversed(names), 1)) == sorted(names)


def test_integers_and_doubles_compare_as_numbers() -> None:
    assert evaluate("output.confidence < 0.7", output={"confidence": 1}) is False
    assert evaluate("output.confidence == 1", output={"confidence": 1.0}) is True
    assert evaluate("inputs.n > 2.5 && 2.5 < inputs.n", inputs={"n": 3}) is True
    assert evaluate("inputs.ratio >= 1 && inputs.ratio == 2", inputs={"ratio": 2}) is True
    assert evaluate("size(output) > 0.5", output=[1]) is True


def test_a_number_counts_as_a_double_however_it_was_given() -> None:
    assert evaluate("inputs.ratio / 2.0", inputs={"ratio": 3}) == 1.5
    assert evaluate("inputs.ratio / 2.0", inputs={"ratio": 3.0}) == 1.5


def test_text_is_counted_in_characters() -> None:
    assert evaluate("output.size() == 3 && output.contains('😀') && output == 'é😀ß'", output="é😀ß") is True


def test_extensions_for_strings_math_lists_and_optionals_are_there() -> None:
    assert evaluate("output.split(',').map(s, s.trim()).join('-')", output="a, b ,c") == "a-b-c"
    assert evaluate("math.greatest(inputs.n, 7)", inputs={"n": 3}) == 7
    assert evaluate("output.sortBy(r, -r.n)[0].n", output=[{"n": 1}, {"n": 3}]) == 3
    assert evaluate("output.transformList(i, v, i * v)", output=[5, 6]) == [0, 6]
    assert evaluate("output.?a.orValue(5)", output={}) == 5


# -- null, missing, coalesce, has ------------------------------------------------------------------

SKIPPED = {"fetch": {"output": None, "status": "skipped"}}


def test_everything_below_a_skipped_output_is_null() -> None:
    assert (
        evaluate("steps.fetch.output.files[0] == null || steps.fetch.output.a.b == null", steps=SKIPPED)
        is True
    )
    assert evaluate("steps.fetch.output.a.b", steps=SKIPPED) is None
    assert evaluate("has(steps.fetch.output.a)", steps=SKIPPED) is False
    assert evaluate("has(steps.fetch.output.a.b)", steps=SKIPPED) is False
    assert evaluate("steps.fetch.output.?a.orValue('none')", steps=SKIPPED) == "none"


def test_has_tells_a_null_value_from_no_value() -> None:
    assert evaluate("has(output.a)", output={"a": None}) is True
    assert evaluate("has(output.a)", output={}) is False
    assert evaluate("has(output.a) && output.a > 1", output={}) is False
    assert evaluate("has(output.a) ? output.a : 'none'", output={"a": 3}) == 3


def test_has_and_the_value_itself_may_stand_in_one_expression() -> None:
    assert evaluate("output == null && !has(output.a)", output=None) is True


def test_coalesce_gives_the_first_that_is_there_and_not_null() -> None:
    source = "coalesce(steps.fetch.output.title, output.title, inputs.extra, 'none')"

    assert evaluate(source, steps=SKIPPED, output={}, inputs={"extra": None}) == "none"
    assert evaluate(source, steps=SKIPPED, output={"title": "x"}, inputs={"extra": None}) == "x"
    assert evaluate(source, steps=SKIPPED, output={"title": 0}, inputs={"extra": None}) == 0


def test_coalesce_may_be_nested_and_hold_any_text() -> None:
    source = "coalesce(coalesce(output.a, null), {'k': coalesce(output.b, '), coalesce(')}['k']) + '!'"

    assert evaluate(source, output={}) == "), coalesce(!"
    assert evaluate(source, output={"b": "b"}) == "b!"
    assert evaluate(source, output={"a": "a", "b": "b"}) == "a!"


def test_coalesce_keeps_types_and_looks_no_further_than_it_must() -> None:
    assert evaluate("coalesce(output.a, timestamp('2020-01-01T00:00:00Z')).getFullYear()", output={}) == 2020
    assert evaluate("coalesce(output.a, 1u) + 1u", output={}) == 2
    assert evaluate("coalesce(1, 1 / 0)") == 1


def test_coalesce_does_not_hide_other_errors() -> None:
    assert (
        failure("coalesce(output.rows[3], 'none')", output={"rows": []}) == "index 3 is outside a list of 0"
    )


@given(st.lists(st.none() | st.integers(-5, 5) | st.text(alphabet="ab"), min_size=1, max_size=8))
def test_coalesce_equals_the_first_value_that_is_not_none(values: list[Any]) -> None:
    source = f"coalesce({', '.join(f'output.v{n}' for n in range(len(values)))})"
    given = {f"v{n}": value for n, value in enumerate(values)}

    assert evaluate(source, output=given) == next((v for v in values if v is not None), None)


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("output.a", "output.a: no such value"),
        ("output.a + 1", "output.a: no such value"),
        ("output['a b'] + 1", "output['a b']: no such value"),
        ("1 / inputs.n", "divide by zero"),
        ("[1, 2][inputs.n + 5]", "index 5 is outside a list of 2"),
        ("{'a': 1}[inputs.folder]", 'no such key: "./inbox"'),
        ("inputs.folder + inputs.extra", "+ does not take (string, int)"),
        ("!inputs.extra", "! does not take these values"),
        ("inputs.extra ? 1 : 2", "what stands before ? is not true or false"),
        ("inputs.extra.exists(x, x)", "map() or the like was used on something that is no list"),
        ("inputs.extra.map(x, x)", "map() or the like was used on something that is no list"),
        ("inputs.extra[0].name", "[…] was used on something of type int"),
        ("dyn(1).name", "a field was read of something that is no object"),
        ("1.0 / 0.0", "the result holds inf, which is no JSON number"),
        ("[{'a': 0.0 / 0.0}]", "the result holds nan, which is no JSON number"),
        ("9223372036854775807 + inputs.extra", "integer overflow"),
        ("int(inputs.folder)", "cannot convert string to int"),
    ],
)
def test_a_runtime_error_is_a_value_that_says_what_is_wrong(source: str, message: str) -> None:
    assert failure(source, output={}, inputs={"n": 0, "folder": "./inbox", "extra": 1}) == message


@pytest.mark.parametrize("source", ["output.a > 1 || true", "true || output.a > 1", "!(output.a && false)"])
def test_an_error_that_does_not_matter_is_absorbed(source: str) -> None:
    assert evaluate(source, output={}) is True


def test_an_error_that_matters_is_not_absorbed() -> None:
    assert failure("output.a > 1 || false", output={}) == "output.a: no such value"
    assert failure("output.a > 1 && true", output={}) == "output.a: no such value"


def test_the_branch_not_taken_is_not_needed() -> None:
    assert evaluate("inputs.dry ? 1 : output.a", inputs={"dry": True}, output={}) == 1


def test_nested_loops_run_into_the_iteration_budget() -> None:
    rows = list(range(200))

    message = failure("output.all(a, output.all(b, a + b >= 0))", output=rows)

    assert message == "the expression loops more than 10,000 times"


def test_integers_beyond_64_bits_are_refused_by_name() -> None:
    assert (
        failure("output.big + 1", output={"big": 2**70}) == f"output.big: {2**70} does not fit into 64 bits"
    )
    assert failure("output.size()", output=[1, -(2**64)]) == f"output[1]: -{2**64} does not fit into 64 bits"
    assert evaluate("output.big", output={"big": 2**70}) == 2**70


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("a\0b", "output.v: holds a NUL character, which expressions cannot carry"),
        ([{"k\0": 1}], "output.v: holds a NUL character, which expressions cannot carry"),
        ("\ud800", "a text holds a lone surrogate: it is not Unicode"),
        ({1, 2}, "output.v: a set is not JSON"),
    ],
)
def test_values_that_cel_cannot_carry_are_refused(value: Any, message: str) -> None:
    assert failure("[output.v] == []", output={"v": value}) == message
    assert evaluate("true || output.v == 1", output={"v": value}) is True


def test_a_value_nested_too_deeply_is_refused_and_a_deep_one_is_not() -> None:
    value: Any = 1
    for _ in range(400):
        value = [value]
    assert evaluate("[output][0] == output", output=value) is True

    for _ in range(100_000):
        value = [value]
    assert failure("size(output)", output=value) == "output: is nested more than 500 levels deep"
    while isinstance(value, list):  # taken apart by hand: freeing it is recursive, too
        value = value[0]


def test_nulls_in_results_leave_none_alone() -> None:
    expression = expr.compile("[output, {'a': output}].map(x, x)", EVERYTHING)
    before = sys.getrefcount(None)

    for _ in range(500):
        assert expression.evaluate(finding(output=None)) == [None, {"a": None}]

    assert abs(sys.getrefcount(None) - before) < 200


# -- long lists ------------------------------------------------------------------------------------


@given(st.lists(st.integers(-50, 50), max_size=300), st.integers(-50, 50))
@example([*range(300)], 0)
def test_map_and_filter_give_what_python_gives(items: list[int], least: int) -> None:
    state = {"output": items, "inputs": {"n": least}}
    kept = [n for n in items if n > least]

    assert evaluate("output.filter(x, x > inputs.n)", **state) == kept
    assert evaluate("output.map(x, x > inputs.n, x * 2)", **state) == [n * 2 for n in kept]
    assert evaluate("output.filter(x, x > inputs.n).map(x, [x])", **state) == [[n] for n in kept]
    assert evaluate("size(output.filter(x, x > inputs.n)) + size(output.map(x, x))", **state) == len(
        kept + items
    )


def test_map_and_filter_take_more_items_than_one_evaluation_may_loop() -> None:
    files = [f"{n}.json" if n % 2 else f"{n}.xml" for n in range(30_000)]

    assert len(evaluate("output.filter(f, f.endsWith('.json'))", output=files)) == 15_000
    assert evaluate("output.filter(f, f.endsWith('.json')).size() == 15000", output=files) is True


def test_an_error_in_one_item_fails_the_whole_list_where_it_is_needed() -> None:
    items = [*range(1, 200), 0]

    assert failure("output.map(x, 10 / x)", output=items) == "divide by zero"
    assert failure("output.map(x, 10 / x).size() > 1", output=items) == "divide by zero"
    assert evaluate("true || output.map(x, 10 / x).size() > 1", output=items) is True


def test_types_that_json_lacks_survive_between_macros() -> None:
    days = ["2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z"]

    assert evaluate("output.map(d, timestamp(d)).exists(t, t.getFullYear() == 2021)", output=days) is True
    assert evaluate("output.map(d, timestamp(d))", output=days) == days


# -- what is refused at load -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "message", "hint", "column"),
    [
        ("input.n + 1", "unknown name input", "did you mean inputs?", 1),
        ("1 + folder.size()", "unknown name folder", "did you mean inputs.folder?", 5),
        ("fetch.output", "unknown name fetch", "did you mean steps.fetch.output?", 1),
        ("'é' + inputs.foldr", "no input 'foldr'", "did you mean inputs.folder?", 7),
        ("inputs.zzz", "no input 'zzz'", "declared inputs: dry, extra, folder, n, options, ratio, tags", 1),
        ("true && steps.fetsh.output.ok", "no step 'fetsh'", "did you mean steps.fetch?", 9),
        ("previous.fetsh.output", "no step 'fetsh'", "did you mean previous.fetch?", 1),
        ("steps.fetch.files", "steps.fetch has no 'files'", "did you mean steps.fetch.output.files?", 1),
        ("steps.fetch.ouput.a", "steps.fetch has no 'ouput'", "did you mean steps.fetch.output?", 1),
        ("run.name", "run has no 'name'", "it has id, workflow", 1),
        ("status.code", "status is a string and has no field 'code'", "", 1),
        ("inputs.n.a + 1", "inputs.n is an integer and has no field 'a'", "", 1),
        ("len(inputs.tags)", "unknown function len", "did you mean size?", 4),
        ("inputs.folder.startswith('a')", "unknown function startswith", "did you mean startsWith?", 25),
        ("size()", "size() does not take these arguments", "", 5),
        ("lists.range(9)", "lists.range() is not available: one number could fill the memory", "", 0),
    ],
)
def test_wrong_names_are_refused_with_a_suggestion(source: str, message: str, hint: str, column: int) -> None:
    error = refused(source)

    assert (error.message, error.hint, error.column) == (message, hint, column)


@pytest.mark.parametrize(
    "source", ["steps", "steps[inputs.folder].output", "steps.size() > 1", "previous['a' + 'b']"]
)
def test_a_step_must_be_named_by_a_constant(source: str) -> None:
    assert refused(source).message in ("steps must name a step", "previous must name a step")


@pytest.mark.parametrize("source", ["steps.fetch", "has(steps.fetch.output)", "(steps.fetch).output", "run"])
def test_a_step_or_run_is_not_a_value_by_itself(source: str) -> None:
    assert "is not a value by itself" in refused(source).message


def test_a_name_that_exists_elsewhere_is_refused_where_it_does_not() -> None:
    scope = Scope(names=frozenset({"inputs", "steps"}), steps=())

    for source in ("item", "item.path == 'x'"):
        error = refused(source, scope)
        assert (error.message, error.hint) == ("item is not available here", "names here: inputs, steps")


def test_step_names_are_not_checked_when_the_steps_are_unknown() -> None:
    assert expr.compile("steps.anything.output", Scope(names=ROOTS)).path == ("steps", "anything", "output")


def test_a_near_miss_among_very_many_steps_is_found() -> None:
    scope = Scope(names=ROOTS, steps={f"step_{n}" for n in range(50_000)} | {"summarise"})

    assert refused("steps.summarize.output", scope).hint == "did you mean steps.summarise?"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("inputs.n + 'a'", "+ does not take (int, string)"),
        ("inputs.folder == 1", "== does not take (string, int)"),
        ("inputs.ratio * 2", "* does not take (double, int)"),
        ("inputs.dry < 1", "< does not take (bool, int)"),
        ("inputs.tags.startsWith('a')", "startsWith() does not take (list(dyn), string)"),
        ("inputs.options + 1", "+ does not take (map(string, dyn), int)"),
        ("inputs.n ? 1 : 2", "what stands before ? is int, not true or false"),
        ("true ? 1 : 'a'", "the parts of ?: do not fit together: (bool, int, string)"),
        ("iteration == 'first'", "== does not take (int, string)"),
        ("steps.fetch.status == 1", "== does not take (string, int)"),
        ("run.id + 1", "+ does not take (string, int)"),
        ("output.?a", "the result is optional"),
    ],
)
def test_type_errors_are_found_at_load(source: str, message: str) -> None:
    assert refused(source).message == message


def test_a_declared_input_may_still_be_null() -> None:
    assert evaluate("inputs.n == null && coalesce(inputs.folder, 'x') == 'x'", inputs={"n": None}) is True


@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        ("", "the expression is empty", ""),
        ("1 +", "the expression ends too early", ""),
        ("output.a b", "unexpected b", ""),
        ("output.a = 1", "unexpected =", "CEL writes == for ="),
        ("output.a and true", "unexpected and", "CEL writes && for and"),
        ("${ output.a } > 1", "unexpected $", "an expression is written without ${ } inside"),
        ("'abc", "unexpected 'abc", ""),
        (
            "(" * 50 + "1" + ")" * 50,
            "the expression is nested too deeply",
            "CEL allows 32 levels: split it over steps",
        ),
        ("[1].map(_d00, _d00)", "the name _d00 is reserved", "choose a name without a leading _"),
        ("'a\0b'", "an expression cannot hold a NUL character", ""),
    ],
)
def test_bad_syntax_is_refused_with_a_reason(source: str, message: str, hint: str) -> None:
    error = refused(source)

    assert (error.message, error.hint) == (message, hint)


def test_an_error_in_a_later_line_is_placed_from_the_start_of_the_text() -> None:
    source = "output.a > 1 &&\n  zork > 1"

    assert refused(source).column == source.index("zork") + 1


def test_an_expression_reads_at_most_a_hundred_values() -> None:
    assert refused(" && ".join(f"output.v{n}" for n in range(101))).message == (
        "the expression reads more than 100 values"
    )
    many = " && ".join(f"output.v{n}" for n in range(100))
    assert evaluate(many, output={f"v{n}": True for n in range(100)}) is True


@pytest.mark.parametrize("source", ["inputs.n", "inputs.n + 1", "'yes'", "inputs.tags"])
def test_a_condition_that_can_never_be_true_or_false_is_refused(source: str) -> None:
    assert refused(source, expect="bool").message.startswith("true or false is needed here, and this gives a")


@pytest.mark.parametrize("source", ["inputs.folder", "{'a': 1}", "1 == 1"])
def test_a_list_that_can_never_be_one_is_refused(source: str) -> None:
    assert refused(source, expect="list").message.startswith("a list is needed here, and this gives ")


def test_what_is_only_known_at_run_time_passes_the_load() -> None:
    for source in ("output", "output.a", "inputs.dry", "output.a > 1", "coalesce(output, true)"):
        assert isinstance(expr.compile(source, EVERYTHING, expect="bool"), Expression)
    for source in ("output", "inputs.tags", "inputs.tags.map(t, t)", "output.a.filter(x, x)"):
        assert isinstance(expr.compile(source, EVERYTHING, expect="list"), Expression)


# -- properties ------------------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True).filter(
    lambda name: name not in ("true", "false", "null", "in") and not name.startswith("_")
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
)


def same(left: Any, right: Any) -> bool:
    """Equal, and of equal types all the way down: 1 is not 1.0, and not true."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


@given(values)
def test_json_goes_through_cel_unchanged(value: Any) -> None:
    assert same(evaluate("[output][0]", output=value), value)


@given(st.lists(names, min_size=1, max_size=4), values, st.booleans())
def test_a_plain_path_and_cel_agree(parts: list[str], value: Any, present: bool) -> None:
    inner: Any = {parts[-1]: value} if present else {}
    for part in reversed(parts[:-1]):
        inner = {part: inner}
    path = ".".join(["output", *parts])

    plain = evaluate(path, output=inner)
    computed = evaluate(f"[{path}][0]", output=inner)

    assert reads(path) == reads(f"[{path}][0]") == [path]
    if present:
        assert same(plain, value)
        assert same(plain, computed)
    else:
        assert isinstance(plain, Failure)
        assert isinstance(computed, Failure)
        assert plain.message == computed.message


@given(st.text(alphabet="steps.fetch output[]'\"(){}+1 ,\n/\\rb`?&|!=<>é$", max_size=40))
@example("'''")
@example("coalesce(output.a,, 1)")
def test_any_text_compiles_or_is_refused(source: str) -> None:
    with suppress(ExpressionError):
        assert expr.compile(source, EVERYTHING).evaluate(lambda _path: MISSING) is not MISSING
