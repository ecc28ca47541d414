"""What decisions read of an output: the only part of it that the fold keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.ids import StepId
from penstock.run.scope import control_key, dig
from penstock.run.state import Run
from penstock.workflow.expr import MISSING, Path
from penstock.workflow.graph import Graph

TOO_LARGE = ".."
"""The key under which too large values are noted: no path looks like it."""

LIMIT = 64 * 1024
"""Bytes of one value; a larger one is not kept, and reading it is a failure of the expression."""


def control_values(graph: Graph, i: int, output: Any) -> dict[str, Any]:
    """The values that control expressions read below a step's output, by dotted path."""
    values: dict[str, Any] = {}
    for path in graph.control[i]:
        value = dig(output, path)
        if value is MISSING:
            continue
        if len(msgspec.json.encode(value)) <= LIMIT:
            values[control_key(path)] = value
        else:
            values.setdefault(TOO_LARGE, []).append(control_key(path))
    return values


def too_large(run: Run, reads: Sequence[Path]) -> str:
    """What to say of an expression that reads a value too large to be kept; empty when none is."""
    for path in reads:
        i = run.graph.index.get(StepId(path[1]), -1) if path[0] == "steps" and len(path) > 2 else -1
        if control_key(path[3:]) in run.control.get(i, {}).get(TOO_LARGE, ()):
            where, limit = ".".join(path), LIMIT // 1024
            return f"{where} is larger than {limit} KB, too large to decide by; let the step return a summary"
    return ""
