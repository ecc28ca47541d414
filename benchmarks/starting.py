"""How long somebody waits who has many tools: from the start of a process to its first answer.

    python benchmarks/starting.py [--servers 20] [--tools 500] [--times 5] [--check]

Makes a folder whose `.mcp.json` names so many servers with so many tools each, starts `penstock mcp` there
with the official client, and asks it to `discover`; once cold, when nobody knows what the servers offer,
then warm, when that is remembered. Then the same with `penstock tools search`. One JSON object for each:
seconds from the start of the process to the answer, the median and the longest; the processor time of the
gateway itself until then (on Linux); and what each search after that takes as its client sees it.
`--check` fails when a warm start takes two seconds or more, or a search ten milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

LIMIT_S = 2.0
LIMIT_MS = 10.0
PATIENCE = 120.0
"""Seconds within which all servers have to have been asked."""

SEARCHES = 100
REQUEST = "look up a record of the newest orders"
PENSTOCK = [sys.executable, "-m", "penstock"]


def configured(folder: Path, servers: int, tools: int) -> None:
    def one(number: int) -> dict[str, Any]:
        many = ["-m", "penstock.testing.mcp_many", "--tools", str(tools), "--name", f"shop{number}"]
        return {"command": sys.executable, "args": many}

    named = {f"shop{number}": one(number) for number in range(servers)}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": named}), "utf-8")


def used() -> float:
    """Seconds of processor time of the gateway, which is our only child, with its threads."""
    pids = [pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
    threads = [path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(path.read_text().split()[0]) for path in threads) / 1e9


def quantiles(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return round(statistics.median(ordered), 2), round(ordered[int(0.95 * (len(ordered) - 1))], 2)


async def discovered(client: Client, intent: str) -> dict[str, Any]:
    found: dict[str, Any] = (await client.call_tool("discover", {"intent": intent})).structured_content
    return found


async def searched(client: Client, at: int) -> float:
    began = time.perf_counter()
    await discovered(client, f"{REQUEST} in collection {at}")
    return (time.perf_counter() - began) * 1000


async def served(folder: Path, nowhere: TextIO, every: int, searches: int) -> dict[str, Any]:
    """One life of a gateway: how soon it answers, and how fast after that."""
    began = time.perf_counter()
    given = StdioServerParameters(
        command=PENSTOCK[0], args=[*PENSTOCK[1:], "mcp"], env={**os.environ}, cwd=folder
    )
    async with Client(stdio_client(given, errlog=nowhere)) as client:
        answer = await discovered(client, REQUEST)
        seconds, spent, found = time.perf_counter() - began, used(), answer["of"]
        async with asyncio.timeout(PATIENCE):
            while answer["of"] < every:
                await asyncio.sleep(0.5)
                answer = await discovered(client, REQUEST)
        took = [await searched(client, at) for at in range(searches)]
    return {"seconds": seconds, "cpu_s": spent, "of": found, "took": took}


def asked(folder: Path) -> dict[str, Any]:
    """One `penstock tools search`."""
    began = time.perf_counter()
    line = [*PENSTOCK, "tools", "search", REQUEST]
    subprocess.run(line, cwd=folder, check=True, capture_output=True)
    return {"seconds": time.perf_counter() - began}


def shown(way: str, lives: Sequence[dict[str, Any]]) -> dict[str, Any]:
    seconds = [life["seconds"] for life in lives]
    row = {"way": way, "starts": len(lives), "first_s": round(statistics.median(seconds), 2)}
    row["longest_s"] = round(max(seconds), 2)
    if spent := [life["cpu_s"] for life in lives if life.get("cpu_s")]:
        row["cpu_s"] = round(statistics.median(spent), 2)
    if found := [life["of"] for life in lives if "of" in life]:
        row["of"] = min(found)
    if took := [each for life in lives for each in life.get("took", ())]:
        row["search_p50_ms"], row["search_p95_ms"] = quantiles(took)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--servers", type=int, default=20)
    parser.add_argument("--tools", type=int, default=500)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    every = given.servers * given.tools
    rows = []
    with tempfile.TemporaryDirectory() as made, Path(os.devnull).open("w") as nowhere:
        folder = Path(made)
        configured(folder, given.servers, given.tools)

        def lives(times: int, searches: int) -> list[dict[str, Any]]:
            return [asyncio.run(served(folder, nowhere, every, searches)) for _ in range(times)]

        rows.append(shown("discover, cold", lives(1, 0)))
        rows.append(shown("discover, warm", lives(given.times, SEARCHES // given.times)))
        rows.append(shown("tools search, warm", [asked(folder) for _ in range(given.times)]))
    for row in rows:
        print(json.dumps(row))
    slow = [row for row in rows[1:] if row["first_s"] >= LIMIT_S or row.get("search_p95_ms", 0) >= LIMIT_MS]
    if given.check and slow:
        raise SystemExit(f"too slow: {', '.join(row['way'] for row in slow)}")


if __name__ == "__main__":
    main()
