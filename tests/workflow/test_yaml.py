from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DefinitionError, Problem
from penstock.workflow.nodes import Node
from penstock.workflow.plain import MAX_DEPTH
from penstock.workflow.yaml import MAX_BYTES, decode, parse


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(DefinitionError) as caught:
        parse(text, "flow.yaml")
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("No", "No"),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("12", 12),
        ("-12", -12),
        ("+12", 12),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1.2.3", "1.2.3"),
        ("2026-01-31", "2026-01-31"),
        ("12:30:45", "12:30:45"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: Any) -> None:
    node = parse(f"key: {text}").value["key"]

    assert (node.value, type(node.value)) == (value, type(value))


def test_keys_that_older_yaml_took_for_booleans_are_text() -> None:
    assert parse("on: {off: 1}").plain() == {"on": {"off": 1}}


def test_every_value_and_every_key_knows_its_place() -> None:
    root = parse("name: x\nsteps:\n  - id: a\n    with: {n: 1}\n")

    step = root.value["steps"].value[0]
    assert root.key_spot("steps") == (2, 1)
    assert step.spot == (3, 5)
    assert step.key_spot("with") == (4, 5)
    assert step.value["with"].value["n"].spot == (4, 15)


def test_columns_count_characters_not_bytes() -> None:
    assert parse("{é: 1, b: 2}").key_spot("b") == (1, 8)


def test_an_alias_stands_for_its_value() -> None:
    assert parse("a: &x {n: [1]}\nb: *x\nc: [*x]").plain() == {
        "a": {"n": [1]},
        "b": {"n": [1]},
        "c": [{"n": [1]}],
    }


def test_plain_values_are_fresh_even_where_aliases_share_a_node() -> None:
    value = parse("a: &x [1]\nb: *x").plain()

    value["a"].append(2)

    assert value["b"] == [1]


@pytest.mark.parametrize(
    ("text", "place", "words", "hint"),
    [
        ("", (1, 1), "the file is empty", "start with"),
        ("# only a comment\n", (1, 1), "the file is empty", "start with"),
        ("a: b: c", (1, 5), "mapping values are not allowed", "quote a value that contains ': '"),
        ("a: [1,\n  2\n", (3, 1), "starts on line 1, did not find expected ',' or ']'", "close the list"),
        ("a: {b: c]", (1, 9), "did not find expected ',' or '}'", "close the map"),
        ("a:\n\t- b", (2, 1), "a tab cannot indent YAML", "use spaces"),
        ("a: 'x", (1, 6), "unexpected end of stream", "quote left open"),
        ("a: @x", (1, 4), "a value cannot start with '@'", "quote the value"),
        ('a: "\\q"', (1, 5), "unknown escape", "single quotes"),
        ("- a\nb: c", (2, 1), "did not find expected '-' indicator", "same indentation"),
        ("a: x\x00", (1, 5), "U+0000 is not allowed", "UTF-8"),
        ("a: \ud800", (1, 4), "U+D800 is not allowed", "UTF-8"),
        ("a: 1\n---\nb: 2", (2, 1), "a second document starts here", "one workflow per file"),
        (
            "a: !!python/object:os.system x",
            (1, 4),
            "tags such as !!python/object:os.system",
            "remove the tag",
        ),
        ("a: !mine {b: 1}", (1, 4), "tags such as !mine", "remove the tag"),
        ("a: 1\nb: 2\na: 3", (3, 1), "duplicate key 'a'", "already on line 1"),
        ("1: x", (1, 1), "the key 1 is not text", 'quote it: "1"'),
        ("x: {true: 1}", (1, 5), "the key true is not text", 'quote it: "true"'),
        ("? [a, b]\n: c", (1, 3), "a key must be plain text", "quote a key"),
        ("<<: {a: 1}", (1, 1), "merge keys", "use a template"),
        ("a: *nowhere", (1, 4), "the alias *nowhere names nothing", "&nowhere"),
        ("a: &a [*a]", (1, 8), "*a is inside the value", "contain itself"),
        ("a: 9223372036854775808", (1, 4), "does not fit into 64 bits", "quote it"),
        (f"a: {'9' * 5000}", (1, 4), "does not fit into 64 bits", "quote it"),
        ("a: .inf", (1, 4), ".inf is not a number", "quote it"),
        ("a: -1e999", (1, 4), "-1e999 is not a number", "quote it"),
        ("[" * 200 + "]" * 200, (1, MAX_DEPTH + 1), "nested more than 64 levels deep", "steps of their own"),
    ],
)
def test_what_is_wrong_has_a_place_a_message_and_a_hint(
    text: str, place: tuple[int, int], words: str, hint: str
) -> None:
    (problem,) = problems_of(text)

    assert (problem.file, problem.line, problem.column) == ("flow.yaml", *place)
    assert words in problem.message
    assert hint in problem.hint


def test_mistakes_that_do_not_hide_others_are_reported_together() -> None:
    found = [problem.message for problem in problems_of("a: 1\na: 2\nb: .nan\n3: x")]

    assert found == ["duplicate key 'a'", ".nan is not a number that JSON can carry", "the key 3 is not text"]


def test_nesting_up_to_the_limit_is_fine() -> None:
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH

    assert json.dumps(parse(deepest).plain()) == deepest


def test_two_hundred_levels_of_block_style_are_refused_at_the_limit() -> None:
    text = "\n".join(f"{' ' * level}k:" for level in range(200))

    (problem,) = problems_of(text)

    assert "nested more than 64 levels deep" in problem.message
    assert problem.line == MAX_DEPTH + 1


def test_aliases_cannot_nest_deeper_than_the_limit() -> None:
    half = "[" * 40 + "{}" + "]" * 40

    (problem,) = problems_of(f"a: &a {half}\nb: {half.format('*a')}")

    assert "nested more than 64 levels deep" in problem.message
    assert problem.line == 2


def test_an_alias_bomb_is_refused_before_it_goes_off() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 40)
    )

    (problem,) = problems_of(bomb)

    assert "aliases expand to more than 100,000 values" in problem.message
    assert problem.line == 5


def test_a_text_over_the_size_limit_is_refused_unparsed() -> None:
    (problem,) = problems_of("[" * (MAX_BYTES + 1))

    assert "larger than 10 MB" in problem.message
    assert "child workflows" in problem.hint


def test_the_size_limit_counts_bytes() -> None:
    (problem,) = problems_of("é" * (MAX_BYTES // 2 + 1))

    assert "larger than 10 MB" in problem.message


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert decode(b"\xef\xbb\xbfa: 1") == "a: 1"


def test_bytes_that_are_not_utf_8_are_refused_with_their_line() -> None:
    with pytest.raises(DefinitionError) as caught:
        decode(b"a: 1\nb: \xff", "flow.yaml")

    (problem,) = caught.value.problems
    assert (problem.message, problem.line) == ("not UTF-8 text", 2)


letters = st.text(st.characters(max_codepoint=0xD7FF, exclude_characters="\x85\u2028\u2029"), max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
json_values = st.recursive(
    scalars | letters,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(letters, inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_json_is_yaml(value: Any) -> None:
    assert parse(json.dumps(value)).plain() == value


@given(json_values)
def test_plain_data_survives_as_nodes(value: Any) -> None:
    assert Node.from_plain(value).plain() == value


@given(st.text(max_size=60) | st.text("ab:-[]{}&*!|>'\"%@`#,?\n\t ", max_size=60))
def test_any_text_at_all_is_parsed_or_refused_with_a_message(text: str) -> None:
    with contextlib.suppress(DefinitionError):
        parse(text)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(DefinitionError, match="nested more than 64 levels deep"):
        Node.from_plain(loop)
