"""What decisions read of an output: the only part of it that the fold keeps."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.run.state import control_key, dig
from penstock.workflow.expr import MISSING
from penstock.workflow.graph import Graph

LIMIT = 64 * 1024
"""Bytes of one value; a larger one is not kept, and reading it is a failure of the expression."""


def control_values(graph: Graph, i: int, output: Any) -> dict[str, Any]:
    """The values that control expressions read below a step's output, by dotted path."""
    values: dict[str, Any] = {}
    for path in graph.control[i]:
        value = dig(output, path)
        if value is not MISSING and len(msgspec.json.encode(value)) <= LIMIT:
            values[control_key(path)] = value
    return values
