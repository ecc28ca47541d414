"""What servers said before is enough to search and to answer; they are started when they are needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from serving import VARIABLES, faults

from penstock.tools.catalog import Servers, ToolCatalog
from penstock.tools.keep import MemoryKeep

SERVER = """
import pathlib, sys
with pathlib.Path("starts").open("a") as file:
    file.write("started\\n")
sys.argv[1:] = ["--tools", "2", "--name", "shop"]
from penstock.testing.mcp_many import main
main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a server that notes each of its starts."""
    (tmp_path / "server.py").write_text(SERVER)
    shop = {"command": sys.executable, "args": ["server.py"]}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"shop": shop}}))
    return tmp_path


def typed(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        cwd=folder, env={**VARIABLES, "HOME": str(folder)}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def starts(folder: Path) -> int:
    return len((folder / "starts").read_text().splitlines())


def test_a_search_asks_a_server_once_and_then_knows(folder: Path) -> None:
    first = typed(folder, "tools", "search", "look up a record")
    second = typed(folder, "tools", "search", "look up a record")

    assert "shop:record_0_look_up" in first
    assert second == first
    assert starts(folder) == 1


async def test_the_first_answer_of_a_gateway_does_not_wait_for_a_server_that_is_remembered(
    folder: Path,
) -> None:
    typed(folder, "tools")
    given = StdioServerParameters(
        command=sys.executable,
        args=["-m", "penstock", "mcp"],
        env={**VARIABLES, "HOME": str(folder)},
        cwd=folder,
    )
    async with Client(stdio_client(given)) as client:
        found = (await client.call_tool("discover", {"intent": "look up a record"})).structured_content
        before = starts(folder)
        call = {"tool": "shop:record_1_look_up", "args": {"key": "k"}}
        done = (await client.call_tool("execute", call)).structured_content

    assert found is not None
    assert found["tools"][0]["id"].startswith("shop:record_")
    assert "starting" not in found
    assert before == 1
    assert done is not None
    assert done["results"] == {"call": "shop 1 k"}
    assert starts(folder) == 2


async def test_a_catalog_is_another_one_only_when_a_server_says_something_else() -> None:
    listings = MemoryKeep()
    first = ToolCatalog(servers=Servers({"bad": faults()}, variables=VARIABLES, listings=listings))
    unknown = first.version
    try:
        await first.start()
    finally:
        await first.close()
    later = ToolCatalog(servers=Servers({"bad": faults()}, variables=VARIABLES, listings=listings))
    remembered = later.version
    try:
        await later.start()
    finally:
        await later.close()

    assert first.version != unknown
    assert later.version == remembered
    assert later.unasked() == []
