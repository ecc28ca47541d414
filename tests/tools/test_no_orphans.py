"""Nothing that a server has started is left, however it hides, and however it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from serving import VARIABLES, alive, eventually, settled, wait

from penstock.errors import LostCall, ServerDown
from penstock.tools.mcp.config import Server
from penstock.tools.mcp.pool import Pool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only there can it be promised")

HIDING = r"""
import json, os, subprocess, sys

started = []

def say(**m): print(json.dumps({"jsonrpc": "2.0", **m}), flush=True)

def hidden(*line):
    started.append(subprocess.Popen([*line, "sh", "-c", "echo $$; exec sleep 986"], stdout=subprocess.PIPE))
    return int(started[-1].stdout.readline())

def orphan():  # its parent is gone, it has a session of its own, and no variable of ours
    script = "setsid env -i sh -c 'echo $$; exec sleep 986 >&2' & exit"
    return int(subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE).stdout)

for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    if m["method"] == "initialize":
        r = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
             "serverInfo": {"name": "h", "version": "1"}}
    elif m["method"] == "tools/list":
        r = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("hide", "die")]}
    elif m["method"] == "tools/call" and m["params"]["name"] == "die":
        os.kill(os.getpid(), m["params"]["arguments"]["signal"])
    elif m["method"] == "tools/call":
        pids = [os.getpid(), hidden(), hidden("setsid"), hidden("setsid", "env", "-i"), orphan()]
        r = {"content": [{"type": "text", "text": json.dumps(pids)}]}
    else:
        say(id=m["id"], error={"code": -32601, "message": "no"}); continue
    say(id=m["id"], result=r)
"""


@pytest.fixture
def server(tmp_path: Path) -> Server:
    (tmp_path / "hiding.py").write_text(HIDING)
    return Server(name="hides", command=sys.executable, args=("-S", str(tmp_path / "hiding.py")))


def test_what_hides_does_not_outlive_the_pool(server: Server) -> None:
    async def main() -> list[int]:
        async with Pool({"hides": server}, variables=VARIABLES) as pool:
            pids: list[int] = await pool.call("hides", "hide", {})
            assert all(map(alive, pids))
        return pids

    pids = wait(main())
    assert len(set(pids)) == 5
    assert not any(map(alive, pids))  # at once: the pool waits for it


def test_what_hides_does_not_outlive_its_server_which_ends_as_it_did(server: Server) -> None:
    async def main() -> None:
        async with Pool({"hides": server}, variables=VARIABLES) as pool:
            pids = await pool.call("hides", "hide", {})
            with pytest.raises(LostCall, match="it was ended by SIGSEGV"):
                await pool.call("hides", "die", {"signal": int(signal.SIGSEGV)})
            assert await settled(lambda: not any(map(alive, pids)))

    wait(main())


def test_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\0\0\0\0")
    program.chmod(0o755)

    async def main() -> None:
        async with Pool({"bad": Server(name="bad", command=str(program))}, variables=VARIABLES) as pool:
            with pytest.raises(ServerDown, match="it cannot be started: Exec format error"):
                await pool.call("bad", "x", {})

    wait(main())


OWNER = """
import asyncio, sys
from penstock.tools.mcp.config import Server
from penstock.tools.mcp.pool import Pool

async def main():
    server = Server(name="hides", command=sys.executable, args=("-S", sys.argv[1]))
    async with Pool({"hides": server}) as pool:
        print(await pool.call("hides", "hide", {}), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_hides_does_not_outlive_us_when_we_are_killed(server: Server, number: signal.Signals) -> None:
    line = [sys.executable, "-c", OWNER, server.args[1]]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(one) for one in owner.stdout.readline().strip("[]\n").split(",")]
        assert all(map(alive, pids))
        os.kill(owner.pid, number)

    assert len(pids) == 5
    assert eventually(lambda: not any(map(alive, pids)))


def test_a_server_sees_no_variable_that_only_our_own_interpreter_needs(tmp_path: Path) -> None:
    (tmp_path / "seen").write_text("")
    script = f'echo "[$LD_LIBRARY_PATH]" > {tmp_path}/seen'
    server = Server(name="bad", command="sh", args=("-c", script))

    async def main() -> None:
        variables = {**VARIABLES, "LD_LIBRARY_PATH": "/nowhere"}
        async with Pool({"bad": server}, variables=variables) as pool:
            with pytest.raises(ServerDown):
                await asyncio.wait_for(pool.call("bad", "x", {}), 20)

    wait(main())
    assert (tmp_path / "seen").read_text() == "[]\n"
