"""The real command, and real clients of it: over pipes and over HTTP, in both eras of the protocol."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

ERAS = ("2026-07-28", "legacy")

ACTS = '''
import asyncio
import os
from pathlib import Path

import penstock as ps


@ps.tool(effect="read", id="sums:add")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@ps.tool(effect="destructive", id="disk:erase")
async def erase(path: str) -> str:
    """Erase a file for ever."""
    with Path("erased").open("a") as file:
        file.write(path + "\\\\n")
    return f"erased {path}"


@ps.tool(effect="read", id="texts:long")
async def long(size: int) -> str:
    """A text of any length."""
    return "x" * size


@ps.tool(effect="read", id="texts:noisy")
async def noisy() -> str:
    """Print where messages go."""
    print("by the way", flush=True)
    os.system("echo so do my children")
    return f"read {os.read(0, 10)!r}"


@ps.tool(effect="read", id="clocks:held")
async def held(file: str = "go") -> str:
    """Wait until a file is there."""
    with Path("begun").open("a") as begun:
        begun.write("begun\\\\n")
    while not Path(file).exists():
        await asyncio.sleep(0.02)
    return "gone"
'''


def structured(result: Any) -> dict[str, Any]:
    found: dict[str, Any] = result.structured_content
    return found


class Gateway:
    """A folder with tools in it, and ways to reach them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "acts.py").write_text(ACTS.replace("\\\\n", "\\n"))
        self.env = {**os.environ, "PENSTOCK_STORE": "sqlite:///.penstock/penstock.db"}

    @property
    def line(self) -> list[str]:
        return [sys.executable, "-m", "penstock", "mcp", "--tools", "acts.py"]

    @contextlib.asynccontextmanager
    async def pipe(self, mode: str = "2026-07-28", *more: str, **options: Any) -> AsyncIterator[Client]:
        started = StdioServerParameters(
            command=self.line[0], args=[*self.line[1:], *more], env=self.env, cwd=str(self.folder)
        )
        async with Client(stdio_client(started), mode=mode, **options) as client:
            yield client


class Served:
    """A gateway that listens."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token

    @contextlib.asynccontextmanager
    async def client(self, mode: str = "2026-07-28", **options: Any) -> AsyncIterator[Client]:
        async with create_mcp_http_client({"Authorization": f"Bearer {self.token}"}) as http:
            transport = streamable_http_client(self.url, http_client=http)
            async with Client(transport, mode=mode, **options) as client:
                yield client


def answering(action: str, **content: Any) -> tuple[Callable[..., Any], list[str]]:
    """A person who always says the same, and what they were asked."""
    from mcp_types import ElicitResult

    asked: list[str] = []

    async def answer(_context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action=action, content=content or None)

    return answer, asked
