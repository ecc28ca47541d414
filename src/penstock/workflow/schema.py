"""The published JSON Schema of the workflow file, for editors and other programs.

Made from the same tables that read the file, so the two cannot disagree about a key.
What JSON Schema cannot say (references, circles, expressions) is left to `penstock validate`.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from penstock.workflow.keys import SECTIONS, TOP
from penstock.workflow.kinds import Schema, Section

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
ID: Final = "urn:penstock:workflow"

_EXTRA: Final[dict[str, Schema]] = {
    "step": {"anyOf": [{"required": ["id", "uses"]}, {"required": ["expand"]}], "required": []},
    "check": {"oneOf": [{"required": [key]} for key in ("expr", "tool", "run")]},
}
"""What concerns several keys at once."""


def json_schema() -> dict[str, Any]:
    """The schema of a workflow file, draft 2020-12; a fresh value at every call."""
    top = _section(TOP)
    definitions = {section.name: _section(section) for section in SECTIONS if section is not TOP}
    head = {"$schema": DIALECT, "$id": ID, "title": "Penstock workflow"}
    return deepcopy({**head, **top, "$defs": definitions})


def _section(section: Section) -> Schema:
    schema: Schema = {
        "type": "object",
        "properties": {key: _described(spec.kind.schema(), spec.about) for key, spec in section.keys.items()},
        "additionalProperties": False,
        "required": list(section.required),
        **_EXTRA.get(section.name, {}),
    }
    if not schema["required"]:
        del schema["required"]
    return schema


def _described(schema: Schema, about: str) -> Schema:
    return {**schema, "description": about}
