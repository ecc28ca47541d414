"""Tests that talk to providers over real HTTP, on this machine."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any

from penstock.models.base import Answer, Chunk, Request, user
from penstock.models.prices import Price, Prices
from penstock.models.providers.hosted import Hosted
from penstock.models.providers.http import Http
from penstock.testing.models import ModelServer
from penstock.testing.wires import Says

PROVIDERS = ("openai", "azure", "github", "groq", "gemini", "anthropic", "ollama", "lab")
"""Every kind; `lab` is someone who speaks like OpenAI and is not known by name."""

MODEL = "model-1"
PRICES: Prices = {MODEL: Price(input=2.0, output=10.0, cached=0.5)}
GREETING = Says().text
"""What a provider says that has no script."""

HELLO = Request(messages=(user("Hello?"),), timeout=20.0)


class There:
    """A server with every provider on it, and us."""

    def __init__(self, server: ModelServer, http: Http) -> None:
        self.server = server
        self.http = http

    def provider(self, kind: str) -> Hosted:
        return Hosted(self.server.endpoint(kind), self.http, prices=PRICES)


def on_loopback(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test that takes a `There` first, and see that nothing of it is left when it ends."""

    async def main(*args: Any, **kwargs: Any) -> None:
        async with ModelServer() as server, Http() as http:
            await test(There(server, http), *args, **kwargs)

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(main(*args, **kwargs))

    signature = inspect.signature(test)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
    return run


async def heard(provider: Any, request: Request, model: str = MODEL) -> tuple[list[Chunk], Answer]:
    """All chunks of a stream, and the answer in the last."""
    async with aclosing(provider.stream(model, request)) as stream:
        chunks = [chunk async for chunk in stream]
    assert [chunk.answer is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    answer = chunks[-1].answer
    assert answer is not None
    return chunks, answer
