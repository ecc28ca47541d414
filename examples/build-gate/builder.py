"""A build that learns from what its gate said."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import penstock as ps


@ps.tool(effect="idempotent")
def build(folder: str, attempts: list[dict[str, Any]]) -> dict[str, Any]:
    """Each attempt mends what earlier ones were told: first the tests, then the empty artifact."""
    complaints = {failed["check"] for attempt in attempts for failed in attempt["failed"]}
    place = Path(folder or tempfile.mkdtemp(prefix="build-"))
    place.mkdir(parents=True, exist_ok=True)
    artifact = place / "app.bin"
    tests = "tests" in complaints
    packed = len(attempts) > 1 and "artifact" in complaints
    artifact.write_bytes(b"the whole program" if packed else b"")
    return {
        "path": str(artifact),
        "tests": tests,
        "bytes": artifact.stat().st_size,
        "tried": len(attempts) + 1,
    }


@ps.tool(effect="read")
def announce(build: dict[str, Any]) -> str:
    return f"built {build['bytes']} bytes at the attempt number {build['tried']}"
