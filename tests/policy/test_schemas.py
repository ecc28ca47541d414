"""Schemas of others are checked, and never at any price."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from penstock.policy.schemas import BadSchema, compiled, is_plain
from penstock.testing.mcp_faults import BOMBS
from penstock.tools.learning import SEEN, learned

TREE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


def test_a_complaint_names_the_place() -> None:
    check = compiled(TREE)

    assert check({"name": "a", "children": [{"name": "b"}]}) == ""
    assert check({"name": "a", "children": [{"name": 3}]}) == "children[0].name: 3 is not of type 'string'"
    assert check({}) == "'name' is a required property"


@pytest.mark.parametrize(
    ("bomb", "words"),
    [
        ("endless", "without end"),
        ("doubling", "without end"),
        ("heavy", "bytes; 262,144 are allowed"),
        ("elsewhere", "refers to 'https://example.com/schema.json'"),
        ("wrong", "is not valid"),
    ],
)
def test_a_bomb_is_refused_in_words_and_at_once(bomb: str, words: str) -> None:
    began = time.process_time()

    with pytest.raises(BadSchema, match=words):
        compiled(BOMBS[bomb])

    assert time.process_time() - began < 2.0


def test_a_reference_into_nothing_is_refused() -> None:
    with pytest.raises(BadSchema, match="which it does not hold"):
        compiled({"type": "object", "allOf": [{"$ref": "#/$defs/nothing"}]})


def test_a_schema_that_grows_with_the_value_is_stopped_by_its_cost() -> None:
    twice = {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}
    check = compiled({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x": twice}}}})
    value: dict[str, Any] = {}
    for _ in range(40):
        value = {"x": value}
    began = time.process_time()

    assert "cannot be checked" in check(value)
    assert time.process_time() - began < 3.0
    assert check({"x": {}}) == ""


def test_a_value_nested_too_deep_is_refused() -> None:
    value: dict[str, Any] = {"name": "x"}
    for _ in range(1_000):
        value = {"name": "x", "children": [value]}

    assert "nested" in compiled(TREE)(value)


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^a*a*a*a*a*a*b$", r"(?<!x", r"^(a|a)*$"])
def test_a_pattern_that_may_take_for_ever_is_left_to_the_tool(pattern: str) -> None:
    check = compiled({"properties": {"x": {"type": "string", "pattern": pattern}}})
    began = time.process_time()

    assert check({"x": "a" * 500 + "!"}) == ""
    assert time.process_time() - began < 0.5


def test_an_honest_pattern_is_applied() -> None:
    check = compiled({"properties": {"x": {"pattern": "^[a-z]+$"}}})

    assert "does not match" in check({"x": "A"})
    assert check({"x": "a"}) == ""


@given(st.lists(JSON, min_size=1, max_size=6))
def test_what_was_learned_fits_everything_it_was_learned_from(outputs: list[Any]) -> None:
    schema: dict[str, Any] = {}
    for output in outputs:
        schema = learned(schema, output)

    check = compiled(schema)
    assert schema[SEEN] == len(outputs)
    assert [check(output) for output in outputs] == [""] * len(outputs)


def test_what_is_learned_from_something_enormous_is_its_outline() -> None:
    wide = {f"a{n}": {f"b{m}": {f"c{o}": o for o in range(60)} for m in range(60)} for n in range(60)}

    schema = learned(None, wide)

    assert len(json.dumps(schema)) < 150_000
    assert compiled(schema)(wide) == ""


def test_what_is_not_always_there_is_not_required() -> None:
    schema = learned(learned({}, {"a": 1, "b": "x"}), {"a": 2.5})

    assert schema["required"] == ["a"]
    assert schema["properties"]["a"] == {"type": "number"}


# --- schemas that are seen to be valid ---

WORDS = st.sampled_from(
    [
        "type", "description", "title", "default", "enum", "examples", "const", "format", "pattern",
        "required", "properties", "items", "additionalProperties", "anyOf", "oneOf", "allOf", "minimum",
        "maximum", "exclusiveMinimum", "minLength", "maxItems", "uniqueItems", "$ref", "if", "x",
    ]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["object", "string", "number", "a", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(WORDS, VALUES, max_size=5), st.sampled_from([Draft7Validator, Draft202012Validator]))
def test_what_is_seen_to_be_valid_is_valid(schema: dict[str, Any], draft: Any) -> None:
    if is_plain(schema):
        draft.check_schema(schema)


def test_the_schemas_of_most_tools_are_seen_to_be_valid_and_are_applied() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where.", "minLength": 1},
            "limit": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    check = compiled(schema)

    assert is_plain(schema)
    assert check({"path": "x", "limit": 3, "tags": ["a"]}) == ""
    assert "'path' is a required property" in check({})
    assert "tags[0]: 'c' is not one of" in check({"path": "x", "tags": ["c"]})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt"},
        {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"},
        {"properties": {"a": {"$ref": "#/$defs/a"}}},
        {"required": ["a", "a"]},
        {"anyOf": []},
        {"minLength": -1},
        {"type": []},
    ],
)
def test_whatever_is_not_is_looked_at_closely(schema: dict[str, Any]) -> None:
    assert not is_plain(schema)
