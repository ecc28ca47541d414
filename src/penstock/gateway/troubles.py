"""What is wrong with the servers behind the gateway: their configuration, and those that do not work now."""

from __future__ import annotations

from penstock.tools.catalog import ToolCatalog


def troubles(tools: ToolCatalog) -> list[str]:
    """One line each. A server that works again is none of them."""
    said = [str(problem) for problem in tools.servers.problems]
    if tools.servers.known:
        said += [
            f"{name}: {health.error}" for name, health in tools.health().items() if health.state == "failing"
        ]
    return said
