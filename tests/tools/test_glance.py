"""Arguments that fit at a glance fit the schema; the rest is looked at closer, and so is every odd schema."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policy.schemas import compiled
from penstock.tools.glance import glance

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.floats(-9, 9), st.text(max_size=3), st.just([1]),
    st.just({"a": 1}),
)  # fmt: skip
PARTS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])},
        optional={
            "description": st.text(max_size=3), "minimum": st.just(3), "maxLength": st.just(1),
            "enum": st.just(["x", 1]),
        },
    ),
    st.just({}),
    st.just({"type": ["string", "null"]}),
    st.just({"anyOf": [{"type": "string"}]}),
    st.booleans(),
)  # fmt: skip
SCHEMAS = st.fixed_dictionaries(
    {"type": st.just("object")},
    optional={
        "properties": st.dictionaries(NAMES, PARTS, max_size=3),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "additionalProperties": st.one_of(st.booleans(), PARTS),
        "minProperties": st.just(2),
        "title": st.just("x"),
    },
)


@given(SCHEMAS, st.dictionaries(NAMES, VALUES, max_size=3))
def test_whatever_fits_at_a_glance_fits_the_schema(schema: dict[str, Any], args: dict[str, Any]) -> None:
    if glance(schema)(args):
        assert compiled(schema)(args) == ""


ECHO = {
    "type": "object",
    "title": "echoArguments",
    "properties": {"text": {"title": "Text", "type": "string"}, "times": {"type": "integer", "default": 1}},
    "required": ["text"],
}


@pytest.mark.parametrize(
    ("args", "fits"),
    [
        ({"text": "a"}, True),
        ({"text": "a", "times": 2}, True),
        ({"text": "a", "times": True}, False),
        ({"text": "a", "times": 2.0}, False),
        ({"text": "a", "more": 1}, False),
        ({"times": 2}, False),
        ({}, False),
    ],
)
def test_plain_values_by_name_are_seen(args: dict[str, Any], fits: bool) -> None:
    assert glance(ECHO)(args) is fits
