"""What the router adds to a call of a model, in CPU time: alone, and sharing its state in a file.

    python benchmarks/model_calls.py [cost] [--small]

A provider on loopback, in a process of its own. Rounds of calls take turns in one process: aiohttp
alone (a post, its body read as JSON), the router by itself, and the router with its state in SQLite. The
least of the rounds counts, so that a busy machine changes little. Two processes write the file in
the last row: what the other one writes is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from report import Figure, figure, main

from penstock.models.base import Request, user
from penstock.models.clocks import BootClock
from penstock.models.endpoint import compatible
from penstock.models.providers.hosted import Hosted
from penstock.models.providers.http import Http
from penstock.models.router import Router
from penstock.models.shared_sqlite import SqliteShared
from penstock.models.tiers import Seat, Tiers

LIMIT = 0.3
"""Milliseconds above the HTTP client."""

ANSWER = {
    "id": "1", "object": "chat.completion", "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3},
}  # fmt: skip
HELLO = Request(messages=(user("hi"),), timeout=10.0)

Ask = Callable[[], Awaitable[Any]]


def serve(ready: Any) -> None:
    """A provider that answers at once and whole, also where a stream is asked for."""
    from aiohttp import web

    raw = json.dumps(ANSWER).encode()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=raw, content_type="application/json")

    async def run() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ready.put(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


def tiers() -> Tiers:
    seats = {f"{name}/m": Seat(provider=name, model="m") for name in ("a", "b")}
    return Tiers(seats=seats, order=(("one", ("a/m",)), ("two", ("b/m",))), last_resort="")


@contextlib.asynccontextmanager
async def routed(url: str, path: Path | None) -> AsyncIterator[Ask]:
    clock = BootClock()
    async with Http() as http:
        providers = {name: Hosted(compatible(name, url, "x"), http) for name in ("a", "b")}
        shared = SqliteShared(path, clock) if path else None
        async with Router(tiers(), providers, shared=shared, clock=clock) as router:
            yield lambda: router.chat(HELLO)


@contextlib.asynccontextmanager
async def bare(url: str) -> AsyncIterator[Ask]:
    from aiohttp import ClientSession, ClientTimeout, TCPConnector

    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    async with ClientSession(connector=TCPConnector(limit=0)) as session:

        async def ask() -> Any:
            async with session.post(
                f"{url}/chat/completions",
                json=asked,
                headers={"authorization": "Bearer x"},
                timeout=ClientTimeout(total=10.0),
            ) as response:
                return json.loads(await response.read())

        yield ask


def beside(url: str, path: str) -> None:
    """Another process that uses the same file, a few calls a second."""

    async def run() -> None:
        async with routed(url, Path(path)) as ask:
            while True:
                await ask()
                await asyncio.sleep(0.1)

    asyncio.run(run())


async def spent(ask: Ask, calls: int) -> float:
    began = time.process_time()
    for _ in range(calls):
        await ask()
    return (time.process_time() - began) / calls * 1000


async def rounds(url: str, folder: Path, *, calls: int, repeats: int, other: bool) -> dict[str, float]:
    found: dict[str, list[float]] = {"bare": [], "alone": [], "shared": []}
    process = multiprocessing.Process(target=beside, args=(url, str(folder / "models.db")), daemon=True)
    if other:
        process.start()
    async with bare(url) as plain, routed(url, None) as alone, routed(url, folder / "models.db") as shared:
        asks = {"bare": plain, "alone": alone, "shared": shared}
        for ask in asks.values():
            await spent(ask, calls // 4)
        for _ in range(repeats):
            for name, ask in asks.items():
                found[name].append(await spent(ask, calls))
    if other:
        process.kill()
        process.join()
    return {name: min(times) for name, times in found.items()}


async def cost(*, small: bool) -> list[Figure]:
    calls, repeats = (20, 2) if small else (500, 9)
    ready: Any = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(ready,), daemon=True)
    server.start()
    try:
        url = f"http://127.0.0.1:{ready.get(timeout=30)}/v1"
        with tempfile.TemporaryDirectory() as name:
            quiet = await rounds(url, Path(name), calls=calls, repeats=repeats, other=False)
            busy = await rounds(url, Path(name), calls=calls, repeats=repeats, other=True)
    finally:
        server.kill()
        server.join()
    base = {"bare_ms": quiet["bare"], "limit": LIMIT}
    return [
        figure("router", quiet["alone"] - quiet["bare"], "ms CPU above aiohttp", **base),
        figure("router, sharing", quiet["shared"] - quiet["bare"], "ms CPU above aiohttp", **base),
        figure(
            "router, sharing with another process", busy["shared"] - busy["bare"], "ms CPU above aiohttp",
            bare_ms=busy["bare"], limit=LIMIT,
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(__doc__, {"cost": cost})
