from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from penstock.workflow.keys import SECTIONS, TOP
from penstock.workflow.schema import json_schema
from penstock.workflow.yaml import parse

TRIAGE = Path(__file__).with_name("triage.yaml")


def valid(document: Any) -> bool:
    return Draft202012Validator(json_schema()).is_valid(document)


def with_step(**keys: Any) -> dict[str, Any]:
    return {"name": "x", "steps": [{"id": "a", "uses": "s:t", **keys}]}


def test_the_schema_is_valid_json_schema() -> None:
    Draft202012Validator.check_schema(json_schema())


def test_the_example_of_the_design_is_valid() -> None:
    document = parse(TRIAGE.read_text()).plain()

    assert [error.message for error in Draft202012Validator(json_schema()).iter_errors(document)] == []


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_schema_and_reader_know_the_same_keys(section: Any) -> None:
    schema = json_schema() if section is TOP else json_schema()["$defs"][section.name]

    assert set(schema["properties"]) == set(section.keys)
    assert schema["additionalProperties"] is False


def test_every_definition_that_is_referred_to_exists_and_is_used() -> None:
    schema = json_schema()
    referred: set[str] = set()
    parts: list[Any] = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            referred.add(part.get("$ref", "") if isinstance(part.get("$ref", ""), str) else "")
            parts.extend(part.values())
        elif isinstance(part, list):
            parts.extend(part)

    assert referred - {""} == {f"#/$defs/{name}" for name in schema["$defs"]}


def test_every_key_is_explained() -> None:
    schemas = [json_schema(), *json_schema()["$defs"].values()]

    assert all(key["description"] for schema in schemas for key in schema["properties"].values())


@pytest.mark.parametrize(
    "step",
    [
        {"timeout": "30s"},
        {"timeout": 1.5},
        {"timeout": "PT5M"},
        {"timeout": "1m30s"},
        {"timeout": "250ms"},
        {"needs": "b"},
        {"needs": ["b"]},
        {"retry": 3},
        {"retry": {"max_attempts": 3, "jitter": True, "on": "timeout"}},
        {"gate": [{"expr": "output.ok"}]},
        {"approval": True},
        {"approval": "never"},
        {"for_each": [1, 2]},
        {"when": "inputs.n > 3"},
        {"ail": False},
    ],
)
def test_short_forms_are_valid(step: dict[str, Any]) -> None:
    assert valid(with_step(**step))


@pytest.mark.parametrize(
    "step",
    [
        {"timeout": "soon"},
        {"timeout": 0},
        {"depends_on": ["b"]},
        {"retry": 0},
        {"max_parallel": 0},
        {"join": "some"},
        {"gate": [{"expr": "a", "tool": "b:c"}]},
        {"with": []},
    ],
)
def test_what_the_reader_refuses_is_not_valid(step: dict[str, Any]) -> None:
    assert not valid(with_step(**step))


def test_a_use_of_a_template_needs_no_id() -> None:
    assert valid(
        {
            "name": "x",
            "templates": {"t": [{"id": "a", "uses": "s:t"}], "u": {"steps": [{"id": "b", "uses": "s:t"}]}},
            "steps": [{"expand": "t", "for": {"n": [1, "two"]}}, {"expand": "u"}],
        }
    )


def test_each_call_gives_a_schema_of_its_own() -> None:
    json_schema()["properties"]["templates"]["additionalProperties"].clear()

    assert json_schema()["properties"]["templates"]["additionalProperties"]
