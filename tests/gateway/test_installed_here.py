"""Penstock in a file that it reads itself: it never starts itself, and finds what it took the place of."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from reached import Gateway

from penstock.tools.mcp.config import Server
from penstock.tools.ourselves import starts_us

SERVER = {"command": sys.executable, "args": ["-m", "penstock.testing.mcp_server"]}


def typed(gateway: Gateway, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        cwd=gateway.folder,
        env={**gateway.env, "HOME": str(gateway.folder)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def servers(gateway: Gateway) -> list[str]:
    rows = typed(gateway, "tools", "servers", "--json").stdout.splitlines()
    return [json.loads(row)["name"] for row in rows]


def test_installed_where_there_were_no_servers_it_is_not_its_own(gateway: Gateway) -> None:
    assert typed(gateway, "mcp", "install", "--client", "claude-code", "--write").returncode == 0

    assert "penstock" in json.loads((gateway.folder / ".mcp.json").read_text())["mcpServers"]
    assert servers(gateway) == []


def test_workflows_find_the_servers_that_were_moved(gateway: Gateway) -> None:
    (gateway.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"good": SERVER}}))
    (gateway.folder / "say.yaml").write_text(
        "name: say\nsteps:\n  - {id: say, uses: 'good:echo', with: {text: hi}}\n"
        "outputs: {said: '${ steps.say.output }'}\n"
    )
    typed(gateway, "mcp", "install", "--client", "claude-code", "--write")

    assert servers(gateway) == ["good"]
    done = typed(gateway, "run", "say.yaml", "--quiet")
    assert (done.returncode, "hi" in done.stdout) == (0, True), done.stderr


HERE = Path("/here")


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("/usr/bin/penstock", ["mcp", "--folder", "/here"]),
        ("penstock", ["mcp", "--folder=/here", "--servers", "x.json"]),
        ("penstock", ["mcp", "--folder", "/here/../here"]),
        ("uvx", ["--from", "penstock", "penstock", "mcp", "--folder", "/here"]),
        ("/usr/bin/python", ["-m", "penstock", "mcp", "--folder", "/here"]),
    ],
)
def test_an_entry_for_this_folder_is_us(command: str, args: list[str]) -> None:
    assert starts_us(Server(name="x", command=command, args=tuple(args)), HERE, {})


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "penstock", "args": ("mcp", "--folder", "/there")},
        {"command": "penstock", "args": ("mcp",), "cwd": "/there"},
        {"command": "penstock", "args": ("tools",)},
        {"command": "uvx", "args": ("mcp-server-time",)},
        {"url": "http://127.0.0.1:8321/mcp"},
    ],
)
def test_others_are_not(entry: dict[str, Any]) -> None:
    assert not starts_us(Server(name="x", **entry), HERE, {})


def test_penstock_behind_penstock_starts_no_third_one() -> None:
    there = Server(name="x", command="penstock", args=("mcp", "--folder", "/there"))

    assert starts_us(there, HERE, {"PENSTOCK_POOL": "a mark"})


async def test_a_pinned_tool_of_a_server_that_was_never_asked_is_there_at_once(gateway: Gateway) -> None:
    (gateway.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"good": SERVER}}))

    async with gateway.pipe("legacy", "--pin", "good:echo") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]

    assert names[-1] == "good__echo"


def test_a_search_says_what_did_not_fit_and_what_cannot_be_searched(gateway: Gateway) -> None:
    tight = typed(gateway, "tools", "search", "read a file", "--window", "1000")
    empty = typed(gateway, "tools", "search", "")

    assert "did not fit into 0 tokens: " in tight.stderr
    assert "say in a few words" in empty.stderr
    assert "no tools yet" not in tight.stderr + empty.stderr
    assert tight.stdout + empty.stdout == ""


def test_what_an_editor_calls_its_folder_is_ours(gateway: Gateway) -> None:
    entry = {**SERVER, "env": {"AT": "${workspaceFolder}"}}
    (gateway.folder / "penstock.mcp.json").write_text(json.dumps({"servers": {"good": entry}}))

    listed = typed(gateway, "tools", "servers")

    assert "not set" not in listed.stderr
    assert "good" in listed.stdout
