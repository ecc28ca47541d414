"""What is wrong with `.mcp.json` is seen by whoever starts us and by whoever calls; the rest works on."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from reached import Gateway, structured

WRONG: dict[str, Any] = {
    "empty": {},
    "keyed": {"command": sys.executable, "env": {"KEY": "${NO_SUCH_VARIABLE}"}, "disabled": False},
    "missing": {"command": "no-such-command-at-all"},
    "testing": {"command": sys.executable, "args": ["-m", "penstock.testing.mcp_server"]},
}
SAID = ("mcpServers.empty", "NO_SUCH_VARIABLE", "no-such-command-at-all")
"""A word of what is wrong with each: nothing to start, a variable that is not set, no such program."""

FLOW = """
name: sum
steps:
  - {id: sum, uses: "testing:add", with: {a: 1, b: 2}}
outputs: {total: "${ steps.sum.output.total }"}
"""


@pytest.fixture
def wrong(gateway: Gateway) -> Gateway:
    servers = {**WRONG, "keyed": {**WRONG["keyed"], "args": ["-m", "penstock.testing.mcp_server"]}}
    (gateway.folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (gateway.folder / "sum.yaml").write_text(FLOW)
    return gateway


def typed(gateway: Gateway, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        cwd=gateway.folder,
        env=gateway.env,
        input="",
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.mark.parametrize("words", [("mcp",), ("tools",)])
def test_problems_are_said_when_we_start(wrong: Gateway, words: tuple[str, ...]) -> None:
    done = typed(wrong, *words)

    assert done.returncode == 0
    # `penstock mcp` ends with its client, which leaves at once here, before the servers have been tried.
    for word in SAID[:2] if words == ("mcp",) else SAID:
        assert word in done.stderr


def test_a_run_says_them_and_goes_on_with_the_servers_that_work(wrong: Gateway) -> None:
    done = typed(wrong, "run", "sum.yaml")

    assert (done.returncode, json.loads(done.stdout)) == (0, {"total": 3})
    for word in SAID[:2]:  # the third server is not used, so nobody starts it
        assert word in done.stderr


async def test_callers_are_told_by_discover_and_status_and_the_rest_works(wrong: Gateway) -> None:
    async with wrong.pipe() as client:
        found = structured(await client.call_tool("discover", {"intent": "add two numbers"}))
        stands = structured(await client.call_tool("status", {}))
        call = {"tool": "testing:add", "args": {"a": 1, "b": 2}}
        answer = structured(await client.call_tool("execute", call))

    for word in SAID:
        assert any(word in line for line in found["problems"]), word
        assert any(word in line for line in stands["problems"]), word
    assert answer["results"] == {"call": {"total": 3}}


async def test_a_file_that_is_no_json_leaves_a_gateway_that_works(gateway: Gateway) -> None:
    (gateway.folder / ".mcp.json").write_text("{not json")
    async with gateway.pipe() as client:
        stands = structured(await client.call_tool("status", {}))
        answer = structured(await client.call_tool("execute", {"tool": "sums:add", "args": {"a": 1, "b": 2}}))

    assert "is not JSON" in stands["problems"][0]
    assert answer["results"] == {"call": 3}


async def test_where_nothing_is_wrong_nothing_is_said(gateway: Gateway) -> None:
    async with gateway.pipe() as client:
        assert "problems" not in structured(await client.call_tool("status", {}))
