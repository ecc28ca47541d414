"""Twenty servers with thirty tools each behind one gateway: what that costs, and how it starts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import REQUEST_TIMEOUT, UNSUPPORTED_PROTOCOL_VERSION
from reached import Gateway, structured

from penstock.tools.mcp.session import agree

SERVERS, TOOLS = 20, 30


@pytest.fixture
def many(gateway: Gateway) -> Gateway:
    servers = {
        f"s{n}": {
            "command": sys.executable,
            "args": ["-m", "penstock.testing.mcp_many", "--tools", str(TOOLS), "--name", f"s{n}"],
        }
        for n in range(SERVERS)
    }
    (gateway.folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    return gateway


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_their_context_costs_less_than_two_thousand_tokens_and_each_start_is_told(many: Gateway) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "tools", "--budget", "--json"],
        cwd=many.folder, env=many.env, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    costs = json.loads(done.stdout)
    assert costs["tools"] >= SERVERS * TOOLS
    assert costs["meta_tokens"] < 1_000
    assert costs["tool_tokens"] > 20 * costs["meta_tokens"]


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_tool_of_the_last_server_is_called_and_discovery_stays_within_its_budget(
    many: Gateway,
) -> None:
    async with many.pipe() as client:
        call = {"tool": f"s{SERVERS - 1}:record_{TOOLS - 1}_look_up", "args": {"key": "k"}}
        answer = structured(await client.call_tool("execute", call))
        found = structured(await client.call_tool("discover", {"intent": "look up record 7 of s19"}))

    assert answer["results"] == {"call": f"s{SERVERS - 1} {TOOLS - 1} k"}
    assert found["of"] >= SERVERS * TOOLS
    assert found["tokens"] <= found["budget"]["available"]


class Slow:
    """A server of the newer protocol that is too busy to answer the first time."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def discover(self) -> None:
        self.said.append("discover")
        if len(self.said) == 1:
            raise MCPError(code=REQUEST_TIMEOUT, message="timed out")

    async def initialize(self) -> None:
        self.said.append("initialize")
        raise MCPError(code=UNSUPPORTED_PROTOCOL_VERSION, message="the handshake is not accepted")


async def test_a_server_that_is_slow_to_say_what_it_speaks_is_asked_again() -> None:
    server = Slow()

    await agree(server)  # type: ignore[arg-type]  # as much of a session as it takes

    assert server.said == ["discover", "initialize", "discover"]
