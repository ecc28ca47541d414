"""The page on the workflow file, from the tables that read it."""

from __future__ import annotations

from typing import Any

import msgspec

from generator.markdown import NOTE, code, paragraphs, table, wrapped
from penstock.steps.base import DEFAULT_TIMEOUT
from penstock.workflow.durations import EXAMPLES
from penstock.workflow.keys import SECTIONS
from penstock.workflow.kinds import Section
from penstock.workflow.schema import json_schema

LATER = frozenset({"workflow.schedule", "config.speculation", "config.wave_timeout"})
"""Keys that are checked, and that this version refuses to run."""

PARTLY = {
    "config.engine": "`langgraph`, `temporal`: later",
    "config.retention": "`checkpoints`, `messages`, `tasks`: how many are kept",
}
"""Keys of which some values are for later."""

DEFAULTS = {
    "config.timeout": "none",
    "config.on_expr_error": "`halt`; in routing `fallthrough`",
    "gate.max_attempts": "`config.gate_attempts`, `config.gate`, 3",
    "check.timeout": "60s",
    "step.gate": "`config.gate`",
    "step.ail": "none",
    "routing.on": "`output.status`",
    "step.max_parallel": "the run's",
    "step.retry": "`config.retry`",
    "step.timeout": f"{DEFAULT_TIMEOUT:g}s; a child has none",
    "step.approval": "`config.approval`",
    "step.effect": "the tool's",
    "step.on_expr_error": "`config.on_expr_error`",
    "step.estimate": "the tool's",
}
"""Defaults that come from elsewhere."""

_TITLES = {"workflow": "Top level", "input": "`inputs.NAME`", "step": "`steps[]`", "agent": "`agents.NAME`"}

_WORDS = {
    "string": "text", "integer": "whole number", "number": "number", "boolean": "`true` or `false`",
    "array": "list", "object": "map", "null": "null",
}  # fmt: skip


def page() -> str:
    intro = (
        "Every key of a workflow file. The tables on this page are the ones that read the file; "
        "`penstock schema` prints them as JSON Schema (draft 2020-12) for editors. How to write a file: "
        "[Write a workflow](../howto/write-a-workflow.md)."
    )
    limits = (
        "A file is YAML 1.2: `on`, `off`, `yes` and `no` are text. It may have 10 MB and 64 levels of "
        "nesting. Tags (`!x`), duplicate keys and unknown keys are refused."
    )
    kinds = (
        f"A *duration* is {EXAMPLES}, or a number of seconds. An *expression* is [CEL](../concepts/"
        "expression.md), with or without `${ }` around it. *JSON* is any value; its texts may hold `${ … }`."
    )
    marks = (
        "In the last column, **later** means: checked, but this version refuses to run a workflow that uses "
        "it. [Not yet](../not-yet.md) says more."
    )
    texts = map(wrapped, (intro, limits, kinds, marks))
    return paragraphs(NOTE, "# The workflow file", *texts, *map(_section, SECTIONS))


def _section(section: Section) -> str:
    defaults = {field.name: field.default for field in msgspec.structs.fields(section._make)}
    schema = json_schema()
    properties = schema["$defs"].get(section.name, schema)["properties"]
    rows = []
    for key, spec in section.keys.items():
        place = f"{section.name}.{key}"
        value = _spoken(properties[key])
        default = "required" if spec.required else DEFAULTS.get(place, "")
        default = default or _default(
            defaults.get(spec.field or key), unit="s" if value == "duration" else ""
        )
        rows.append((code(key), value, default, spec.about, _today(place)))
    title = _TITLES.get(section.name, code(section.name))
    return paragraphs(f"## {title}", table("key | value | default | meaning | today", rows))


def _today(place: str) -> str:
    return "later" if place in LATER else PARTLY.get(place, "")


def _default(value: Any, unit: str) -> str:
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, int | float):
        return code(f"{value:g}{unit}")
    return code(value) if isinstance(value, str) else ""


def _spoken(schema: dict[str, Any]) -> str:
    """A JSON Schema in a few words."""
    if "enum" in schema:
        return ", ".join(code(str(one).lower() if isinstance(one, bool) else one) for one in schema["enum"])
    if "anyOf" in schema:
        spoken = " or ".join(dict.fromkeys(_spoken(one) for one in schema["anyOf"]))
        return "duration" if "duration" in spoken else spoken
    if "pattern" in schema:
        return "duration"
    if "$ref" in schema:
        return code(schema["$ref"].rpartition("/")[2])
    kind = schema.get("type")
    if kind == ["string", "boolean"]:
        return "expression"
    if isinstance(kind, list):
        return " or ".join(_WORDS[one] for one in kind)
    if kind == "array" and schema.get("items"):
        return f"list of {_spoken(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map of name to {_spoken(schema['additionalProperties'])}"
    return _WORDS.get(str(kind), "JSON") + _range(schema)


def _range(schema: dict[str, Any]) -> str:
    if "maximum" in schema:
        return f", {schema['minimum']:g} to {schema['maximum']:g}"
    return f", {schema['minimum']:g} or more" if "minimum" in schema else ""
