"""What the gateway adds to a call of an MCP server: direct and through it, turn by turn, in one run.

    python benchmarks/gateway.py [--calls 300] [--check] [--fastmcp PYTHON]
                                 [--server 'COMMAND …' --tool NAME --args JSON]

The official client calls one server over its pipes, and the same server behind `penstock mcp`, with
a store in memory and with SQLite, for a tool that only reads and for one that writes; and behind
the proxy of `fastmcp`, given a Python that has it. Calls take turns, so that a busy moment is everybody's.
One JSON object for each way; `added_ms` is the median of the differences to the direct call of the
same turn, `cpu_ms` what the process between the client and the server used for one call (on Linux).
`--check` fails when a reading call costs more than 2 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

LIMIT = 2.0
"""Milliseconds that the gateway may add to a call that only reads."""

WARM = 30
"""Calls before those that count."""

OURS = [sys.executable, "-m", "penstock.testing.mcp_server"]
PROXY = """
import sys
from fastmcp.server import create_proxy
behind = {"command": sys.argv[1], "args": sys.argv[2:]}
create_proxy({"mcpServers": {"behind": behind}}).run("stdio", show_banner=False)
"""

Call = Callable[[], Awaitable[Any]]
Way = dict[str, Call]
"""How to make a call, by the kind of it: `read` or `write`."""


class Used:
    """The processor time of processes that we started, with all their threads."""

    def __init__(self) -> None:
        self.pids: dict[str, int] = {}

    @staticmethod
    def children() -> set[int]:
        found: set[int] = set()
        for path in Path("/proc/self/task").glob("*/children"):
            found |= {int(pid) for pid in path.read_text("ascii").split()}
        return found

    def ms(self, name: str) -> float:
        threads = Path(f"/proc/{self.pids.get(name)}/task").glob("*/schedstat")
        return sum(int(path.read_text("ascii").split()[0]) for path in threads) / 1e6


class Kinds:
    """The calls to be made: the tool and its arguments, by kind."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self.command = shlex.split(given.server) if given.server else OURS
        self.calls: dict[str, tuple[str, dict[str, Any]]] = {"read": ("echo", {"text": "hello"})}
        if given.server:
            self.calls = {"read": (given.tool, json.loads(given.args))}
        else:
            self.calls["write"] = ("append", {"path": str(folder / "lines.txt"), "line": "one"})

    def direct(self, client: Client) -> Way:
        def way(tool: str, args: dict[str, Any]) -> Call:
            return lambda: client.call_tool(tool, args)

        return {kind: way(*call) for kind, call in self.calls.items()}

    def behind(self, client: Client) -> Way:
        def way(tool: str, args: dict[str, Any]) -> Call:
            whole = {"tool": f"behind:{tool}", "args": args}

            async def call() -> Any:
                answer = await client.call_tool("execute", whole)
                if answer.structured_content["status"] != "complete":
                    raise SystemExit(f"the gateway says {answer.structured_content}")
                return answer

            return call

        return {kind: way(*call) for kind, call in self.calls.items()}


class Ways:
    """Every way to the server, the direct one first."""

    def __init__(self, stack: AsyncExitStack, kinds: Kinds, folder: Path) -> None:
        self.used = Used()
        self.found: dict[str, Way] = {}
        self._stack = stack
        self._kinds = kinds
        self._folder = folder

    async def open(self, *, fastmcp: str) -> None:
        command = self._kinds.command
        self.found["direct"] = self._kinds.direct(await self._opened("direct", command, self._folder))
        for name, store in (("memory", "memory:"), ("sqlite", "sqlite:///runs.db")):
            own = self._folder / name
            own.mkdir()
            (own / ".mcp.json").write_text(json.dumps(self._config()), "utf-8")
            line = [sys.executable, "-m", "penstock", "mcp", "--store", store]
            self.found[name] = self._kinds.behind(await self._opened(name, line, own))
        if fastmcp:
            line = [fastmcp, "-c", PROXY, *command]
            self.found["fastmcp"] = self._kinds.direct(await self._opened("fastmcp", line, self._folder))

    def _config(self) -> dict[str, Any]:
        command, effects = self._kinds.command, {tool: kind for kind, (tool, _) in self._kinds.calls.items()}
        entry = {"command": command[0], "args": command[1:], "x-penstock": {"effects": effects}}
        return {"mcpServers": {"behind": entry}}

    async def _opened(self, name: str, command: list[str], folder: Path) -> Client:
        before = Used.children()
        started = StdioServerParameters(
            command=command[0], args=command[1:], env=dict(os.environ), cwd=str(folder)
        )
        said = self._stack.enter_context((folder / "said.txt").open("a"))
        client = await self._stack.enter_async_context(Client(stdio_client(started, said)))
        self.used.pids[name] = max(Used.children() - before, default=0)
        return client


async def measured(ways: Ways, kind: str, count: int) -> list[dict[str, Any]]:
    """Calls of one kind, in turns; the order is another one each time."""
    times: dict[str, list[float]] = {name: [] for name in ways.found}
    before: dict[str, float] = {}
    order = list(times)
    for turn in range(WARM + count):
        if turn == WARM:
            before = {name: ways.used.ms(name) for name in times}
        for name in order:
            call = ways.found[name][kind]
            began = time.perf_counter()
            await call()
            if turn >= WARM:
                times[name].append((time.perf_counter() - began) * 1e3)
        order.append(order.pop(0))
    cpu = {name: (ways.used.ms(name) - before[name]) / count for name in times}
    return [row(kind, name, one, times["direct"], cpu[name]) for name, one in times.items()]


def row(kind: str, name: str, times: list[float], direct: list[float], cpu: float) -> dict[str, Any]:
    ordered = sorted(times)
    found: dict[str, Any] = {
        "call": kind,
        "way": name,
        "calls": len(times),
        "p05_ms": round(ordered[len(ordered) * 5 // 100], 2),
        "p50_ms": round(statistics.median(ordered), 2),
        "p95_ms": round(ordered[len(ordered) * 95 // 100], 2),
        "cpu_ms": round(cpu, 2),
    }
    if times is not direct:
        added = sorted(one - other for one, other in zip(times, direct, strict=True))
        found["added_ms"] = round(statistics.median(added), 2)
        found["added_p95_ms"] = round(added[len(added) * 95 // 100], 2)
    return found


async def compared(given: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    kinds = Kinds(given, folder)
    rows = []
    async with AsyncExitStack() as stack:
        ways = Ways(stack, kinds, folder)
        await ways.open(fastmcp=given.fastmcp)
        gc.disable()  # ours only: what is measured runs in processes of its own
        for kind in kinds.calls:
            rows += await measured(ways, kind, given.calls)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--server", default="", help="another server, as it is started")
    parser.add_argument("--tool", default="", help="a tool of it that only reads")
    parser.add_argument("--args", default="{}", help="its arguments, as JSON")
    parser.add_argument("--fastmcp", default="", help="a Python that has fastmcp, to measure its proxy")
    parser.add_argument("--check", action="store_true", help="fail over the limit")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(compared(given, Path(folder)))
    for one in rows:
        print(json.dumps(one))
    over = [
        f"{one['way']}: {one['added_ms']} ms"
        for one in rows
        if one["call"] == "read" and one["way"] in ("memory", "sqlite") and one["added_ms"] > LIMIT
    ]
    if given.check and over:
        sys.exit(f"over {LIMIT} ms: {', '.join(over)}")


if __name__ == "__main__":
    main()
