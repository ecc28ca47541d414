"""The output of a command that is still running."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest


def until(process: subprocess.Popen[str], kind: str, **fields: object) -> dict[str, Any]:
    """Read the events of a run that is going on, up to the first of this type, with these fields."""
    assert process.stdout is not None
    for line in process.stdout:
        event: dict[str, Any] = json.loads(line)
        if event.get("type") == kind and all(event.get(name) == value for name, value in fields.items()):
            return event
    assert process.stderr is not None
    pytest.fail(f"the run ended before there was a {kind}: {process.stderr.read()}")


def line_with(process: subprocess.Popen[str], text: str) -> str:
    """Read what a command says on stderr, up to the first line with this text."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return line
    pytest.fail(f"it never said {text!r}")
