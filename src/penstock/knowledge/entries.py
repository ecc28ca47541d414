"""What is searched of a tool, and what is found. Nothing heavy is imported here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from penstock.tools.base import Sketch, Tool

Evidence = Callable[[Sequence[str]], Mapping[str, float]]
"""Takes the tools used so far, returns how likely others are to follow: by id, 0 to 1."""


class Entry(Struct, frozen=True):
    """What is searched of a tool."""

    id: str
    description: str = ""
    parameters: str = ""
    about: str = ""
    """What its server is for."""

    @property
    def server(self) -> str:
        return self.id.partition(":")[0]

    @property
    def name(self) -> str:
        return self.id.partition(":")[2]

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:24]


class Found(Struct, frozen=True):
    id: str
    score: float


def entry_of(tool: Tool | Sketch, about: str = "") -> Entry:
    """A tool as it is searched."""
    properties = tool.input_schema.get("properties")
    parts = []
    for name, schema in (properties if isinstance(properties, Mapping) else {}).items():
        said = schema.get("description") if isinstance(schema, Mapping) else None
        parts.append(f"{name} {said}" if isinstance(said, str) else str(name))
    return Entry(tool.id, tool.description, " ".join(parts), about)
