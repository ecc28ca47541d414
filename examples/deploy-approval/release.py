"""A release that only pretends: nothing leaves this process."""

from __future__ import annotations

from typing import Any

import penstock as ps


@ps.tool(effect="read")
def pack(version: str) -> str:
    return f"app-{version}.tar.gz"


@ps.tool(effect="destructive")
def deploy(artifact: str, environment: str, share: int) -> dict[str, Any]:
    """Replaces what runs there. Destructive, so it is never called without approval."""
    return {"artifact": artifact, "environment": environment, "share": share}


@ps.tool(effect="read")
def notify(deployed: dict[str, Any]) -> str:
    return f"{deployed['artifact']} is on {deployed['share']} % of {deployed['environment']}"
