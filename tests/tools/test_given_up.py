"""A call that nobody waits for any more: its server is told, by the number of the call, and may stop."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from serving import VARIABLES, settled, wait

from penstock.errors import LostCall
from penstock.tools.mcp.config import Server
from penstock.tools.mcp.pool import Pool

SERVER = """
import json
import sys

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

with open(sys.argv[1], "a", buffering=1) as heard:
    for line in sys.stdin:
        heard.write(line)
        message = json.loads(line)
        number, method = message.get("id"), message["method"]
        if method == "initialize":
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "deaf", "version": "1"}}
            say(id=number, result={"protocolVersion": "2025-06-18", **about})
        elif method == "tools/list":
            say(id=number, result={"tools": [{"name": "wait", "inputSchema": {"type": "object"}}]})
        elif method == "server/discover":
            say(id=number, error={"code": -32601, "message": "no such method"})
"""


@pytest.mark.parametrize("how", ["it takes too long", "it is cancelled"])
def test_the_server_is_told_which_call_it_was(tmp_path: Path, how: str) -> None:
    script, heard = tmp_path / "server.py", tmp_path / "heard.jsonl"
    script.write_text(SERVER)

    def said(method: str) -> list[dict[str, Any]]:
        lines = heard.read_text().splitlines() if heard.exists() else []
        return [message for line in lines if (message := json.loads(line))["method"] == method]

    async def main() -> None:
        limit = 0.3 if how == "it takes too long" else 50.0
        server = Server(name="deaf", command=sys.executable, args=(str(script), str(heard)), timeout=limit)
        async with Pool({"deaf": server}, variables=VARIABLES) as pool:
            call = asyncio.ensure_future(pool.call("deaf", "wait", {}, effect="read"))
            assert await settled(lambda: bool(said("tools/call")))
            if how == "it is cancelled":
                call.cancel()
            with pytest.raises((LostCall, asyncio.CancelledError)):
                await call
            assert await settled(lambda: bool(said("notifications/cancelled")))

    wait(main())
    (call,), (given_up,) = said("tools/call"), said("notifications/cancelled")
    assert given_up["params"]["requestId"] == call["id"]
