"""A day of MCP servers in a minute: calls, crashes, restarts, and what is left afterwards.

    python benchmarks/mcp_soak.py --calls 10000 --servers 5 --chance 0.01

Every call must end with its own result or a clear error; no process, file descriptor or memory may
leak. Prints one JSON object; exits with 1 when something leaked.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import penstock
from penstock.errors import ToolError
from penstock.tools.mcp.config import Server
from penstock.tools.mcp.pool import Pool
from penstock.tools.mcp.watchdog import marked

FAULTS = str(Path(penstock.__file__).parent / "testing" / "mcp_faults.py")
WARM = 500
"""Calls before the first measurement."""


def handles() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def memory() -> float:
    """MB in use now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


async def soak(given: argparse.Namespace) -> dict[str, Any]:
    servers = {
        f"s{n}": Server(name=f"s{n}", command=sys.executable, args=("-S", FAULTS))
        for n in range(given.servers)
    }
    ends: Counter[str] = Counter()
    times: list[float] = []
    todo = iter(range(given.calls))
    first: dict[str, float] = {}
    async with Pool(servers, variables=dict(os.environ)) as pool:

        async def caller() -> None:
            for n in todo:
                if n == WARM:
                    first.update(memory=memory(), handles=handles())
                began = time.perf_counter()
                try:
                    args = {"chance": given.chance, "text": f"t{n}"}
                    found = await pool.call(f"s{n % given.servers}", "flaky", args, effect="read")
                    ends["ok" if found == f"t{n}" else "swapped"] += 1
                except ToolError as error:
                    ends[type(error).__name__] += 1
                times.append(time.perf_counter() - began)

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(given.parallel):
                group.create_task(caller())
        seconds = time.perf_counter() - began
        last = {"memory": memory(), "handles": handles()}
        processes = len(marked(pool._watchdog.mark))  # noqa: SLF001 - to be counted
    times.sort()
    left = len(marked(pool._watchdog.mark))  # noqa: SLF001
    return {
        "calls": given.calls, "ended": dict(ends), "seconds": round(seconds, 1),
        "p50_ms": round(times[len(times) // 2] * 1e3, 2),
        "p99_ms": round(times[len(times) * 99 // 100] * 1e3, 2),
        "memory_mb": [round(first.get("memory", 0), 1), round(last["memory"], 1)],
        "handles": [first.get("handles", 0), last["handles"]], "processes": processes, "left": left,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--servers", type=int, default=5)
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--chance", type=float, default=0.01, help="of a crash in mid-call")
    given = parser.parse_args()
    found = asyncio.run(soak(given))
    print(json.dumps(found))
    leaked = found["left"] or found["handles"][1] > found["handles"][0] + 4 * given.servers
    grown = found["memory_mb"][1] > found["memory_mb"][0] + 30
    wrong = sum(found["ended"].values()) != given.calls or found["ended"].get("swapped")
    sys.exit(1 if leaked or grown or wrong else 0)


if __name__ == "__main__":
    main()
