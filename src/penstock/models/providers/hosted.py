"""A provider over HTTP: a dialect, spoken to an endpoint.

All that providers have in common is here and nowhere else: what is sent, what a response's status and
headers mean, streams that break, output in a given form, what it cost. No message that leaves this
file has a key in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec
from msgspec.structs import replace

from penstock.models.base import Answer, Chunk, Embedding, ModelError, Request, Usage
from penstock.models.endpoint import Endpoint, Speech
from penstock.models.errors import Fault, classify, refused, unreachable
from penstock.models.headers import Hints, hints
from penstock.models.prices import Prices, cost, price_of
from penstock.models.providers.anthropic import Anthropic
from penstock.models.providers.dialect import Dialect, InBand, Post, Said, names_in, place
from penstock.models.providers.framing import Overlong
from penstock.models.providers.gemini import Gemini
from penstock.models.providers.http import Broken, Http, Reply, Timing
from penstock.models.providers.listening import hear
from penstock.models.providers.ollama import Ollama
from penstock.models.providers.openai import OpenAI
from penstock.models.providers.responses import Responses
from penstock.models.structured import ask, check_schema, settle
from penstock.policy.masking import GONE, mask

DIALECTS: Final[Mapping[Speech, Dialect]] = {
    "responses": Responses(),
    "openai": OpenAI(),
    "gemini": Gemini(),
    "anthropic": Anthropic(),
    "ollama": Ollama(),
}

BATCH: Final = 96
"""Texts in one request for embeddings: every provider takes as many."""

FILTERED: Final = Fault(kind="content_filter", action="other_once", status=200)
"""For a reason that is new to us."""

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Overlong)


class Hosted:
    def __init__(self, endpoint: Endpoint, http: Http, *, prices: Prices | None = None) -> None:
        self.name = endpoint.name
        self.endpoint = endpoint
        self._http = http
        self._prices = prices or {}
        self._dialect = DIALECTS[endpoint.speech]
        key = endpoint.key.reveal()
        self._secrets = frozenset((key, quote(key, safe=""))) if key else frozenset()
        self._proxy = endpoint.proxy.reveal()
        if password := urlsplit(self._proxy).password:
            self._secrets |= {password}

    def __repr__(self) -> str:
        return f"Hosted({self.name!r})"

    async def chat(self, model: str, request: Request) -> Answer:
        async def once(asked: Request) -> Answer:
            return await self._once(model, asked)

        return await ask(once, request, provider=self.name, model=model)

    async def stream(self, model: str, request: Request) -> AsyncGenerator[Chunk, None]:
        if request.output is not None:
            check_schema(request.output, provider=self.name, model=model)
        deadline = asyncio.get_running_loop().time() + request.timeout

        async def once(asked: Request) -> Answer:
            return await self._once(model, asked)

        async with aclosing(self._stream(model, request)) as chunks:
            async for chunk in chunks:
                if chunk.answer is None:
                    yield chunk
                else:
                    yield Chunk(answer=await settle(chunk.answer, once, request, deadline=deadline))

    async def embed(self, model: str, texts: Sequence[str], *, within: float = 60.0) -> Embedding:
        if not self.endpoint.embed:
            raise self._error(_refusal("this provider offers no embeddings"), model)
        vectors: list[tuple[float, ...]] = []
        usage, timing = Usage(), self._http.timing(total=within)
        for start in range(0, len(texts), BATCH):
            batch = texts[start : start + BATCH]
            asked = self._written(model, partial(self._dialect.embed, self.endpoint, model, batch))
            raw, headers = await self._exchange(model, asked, timing)
            try:
                found, used = self._dialect.vectors(raw)
            except (InBand, *_UNREADABLE) as error:
                raise self._misunderstood(error, model, headers) from None
            if len(found) != len(batch):
                raise self._error(_broken(f"{len(found)} vectors for {len(batch)} texts"), model, status=200)
            vectors += map(tuple, found)
            usage += used
        return Embedding(
            vectors=tuple(vectors),
            usage=usage,
            cost=self._cost(model, usage),
            served_by=f"{self.name}/{model}",
        )

    async def probe(self, *, within: float = 5.0) -> None:
        await self._looked(self._http.timing(total=within), all_of_it=False)

    async def offered(self, *, within: float = 10.0) -> Sequence[str]:
        """The models that it lists; nothing where it does not say."""
        return names_in(await self._looked(self._http.timing(total=within), all_of_it=True))

    async def _looked(self, timing: Timing, *, all_of_it: bool) -> bytes:
        url = place(self.endpoint, self.endpoint.probe)
        try:
            async with self._http.send(
                "GET", url, headers=self._headers(), body=None, timing=timing, proxy=self._proxy
            ) as reply:
                if reply.status >= 300:
                    raise await self._failed("", reply)
                return await reply.body() if all_of_it else b""
        except Broken as error:
            raise self._error(error.fault, "") from None

    # --- one exchange ---

    async def _once(self, model: str, request: Request) -> Answer:
        if request.stream:
            async with aclosing(self._stream(model, request)) as chunks:
                return [chunk.answer async for chunk in chunks if chunk.answer is not None][-1]
        timing = self._http.timing(total=request.timeout, first=request.first_byte)
        asked = self._asked(model, request, stream=False)
        raw, headers = await self._exchange(model, asked, timing)
        try:
            said = self._dialect.answer(raw)
        except (InBand, *_UNREADABLE) as error:
            raise self._misunderstood(error, model, headers) from None
        return self._answer(model, said, headers, timing)

    async def _exchange(self, model: str, asked: Post, timing: Timing) -> tuple[bytes, Mapping[str, str]]:
        try:
            async with self._posting(asked, timing) as reply:
                if reply.status >= 300:
                    raise await self._failed(model, reply)
                return await reply.body(), reply.headers
        except Broken as error:
            raise self._error(error.fault, model) from None

    def _asked(self, model: str, request: Request, *, stream: bool) -> Post:
        ask = partial(self._dialect.ask, self.endpoint, model, request, stream=stream)
        return self._written(model, ask)

    def _written(self, model: str, write: Callable[[], Post]) -> Post:
        try:
            return write()
        except (TypeError, ValueError, RecursionError) as error:  # no JSON: a lone surrogate, an object
            raise self._error(_refusal(f"the request cannot be written as JSON: {error}"), model) from None

    def _posting(self, asked: Post, timing: Timing) -> AbstractAsyncContextManager[Reply]:
        headers = {**self._headers(), "content-type": "application/json"}
        return self._http.send(
            "POST", asked.url, headers=headers, body=asked.body, timing=timing, proxy=self._proxy
        )

    def _headers(self) -> dict[str, str]:
        return {**self.endpoint.headers, **self.endpoint.credentials()}

    async def _stream(self, model: str, request: Request) -> AsyncGenerator[Chunk, None]:
        timing = self._http.timing(total=request.timeout, first=request.first_byte, idle=request.idle)
        asked = self._asked(model, request, stream=True)
        listener = self._dialect.listener()
        spoken: list[str] = []
        headers: Mapping[str, str] = {}
        try:
            async with self._posting(asked, timing) as reply:
                headers = reply.headers
                if reply.status >= 300:
                    raise await self._failed(model, reply)
                said = None
                async with aclosing(hear(self._dialect, listener, reply)) as heard:
                    async for piece in heard:
                        if isinstance(piece, Said):
                            said = piece
                        else:
                            spoken.append(piece.text)
                            yield piece
        except Broken as error:
            failure = self._error(error.fault, model, said="".join(spoken))
            raise self._paid(failure, request, listener.usage) from None
        except (InBand, *_UNREADABLE) as error:
            failure = self._misunderstood(error, model, headers, said="".join(spoken))
            raise self._paid(failure, request, listener.usage) from None
        if said is None:
            fault = unreachable("the stream ended before the answer did")
            failure = self._error(fault, model, status=200, said="".join(spoken))
            raise self._paid(failure, request, listener.usage)
        yield Chunk(answer=self._answer(model, said, headers, timing))

    # --- what it comes to ---

    def _answer(self, model: str, said: Said, headers: Mapping[str, str], timing: Timing) -> Answer:
        address = f"{self.name}/{model}"
        answer = Answer(
            text=said.text,
            tool_calls=said.tool_calls,
            usage=said.usage,
            cost=self._cost(model, said.usage),
            finish=said.finish,
            served_by=address,
            requested=address,
            model=said.model or model,
            took=timing.took,
            first_byte=timing.first_byte,
            hints=self._hints(headers, b"", 200),
        )
        if said.refused:
            fault = refused(said.refused) or replace(FILTERED, code=said.refused.lower())
            error = self._error(fault, model, status=200, limits=answer.hints, said=said.text)
            error.spent = answer
            raise error
        return answer

    def _paid(self, error: ModelError, request: Request, told: Usage) -> ModelError:
        """The same error with what the broken answer has cost: as the provider counts it, else about that."""
        if not (error.partial or told.output):
            return error  # nobody knows whether it had begun
        size = sum(len(each.content) for each in request.messages)
        usage = Usage(told.input or size // 4, max(told.output, len(error.partial) // 4), told.cached)
        address = f"{self.name}/{error.model}"
        error.spent = Answer(
            text=error.partial, usage=usage, cost=self._cost(error.model, usage), served_by=address
        )
        return error

    def _clean(self, body: bytes) -> bytes:
        """Without the key, which some echo: before anything is cut, or half of it would stay."""
        for secret in self._secrets:
            body = body.replace(secret.encode(), GONE.encode())
        return body

    def _cost(self, model: str, usage: Usage) -> float | None:
        return cost(price_of(self._prices, self.name, model, local=self.endpoint.local), usage)

    def _hints(self, headers: Mapping[str, str], body: bytes, status: int) -> Hints:
        return hints(self.endpoint.kind, headers, body, time.time(), status=status)

    async def _failed(self, model: str, reply: Reply) -> ModelError:
        status, headers, body = reply.status, reply.headers, self._clean(await reply.start())
        if status < 400:
            message = f"it redirects to {_host(headers.get('location', ''))}; give that as its URL"
            return self._error(_refusal(message), model, status=status)
        fault = classify(self.endpoint.kind, status, headers, body, now=time.time())
        return self._error(fault, model, status=status, limits=self._hints(headers, body, status))

    def _misunderstood(
        self, error: Exception, model: str, headers: Mapping[str, str], *, said: str = ""
    ) -> ModelError:
        """What to make of a response with status 200 that is not an answer."""
        if not isinstance(error, InBand):
            fault = _broken(f"the response is not what it should be: {error}")
            return self._error(fault, model, status=200, said=said)
        body = self._clean(msgspec.json.encode({"error": error.error}))
        fault = classify(self.endpoint.kind, 200, headers, body, now=time.time())
        limits = self._hints(headers, body, max(fault.status, 400))
        return self._error(fault, model, status=200, limits=limits, said=said)

    def _error(
        self, fault: Fault, model: str, *, status: int = 0, limits: Hints | None = None, said: str = ""
    ) -> ModelError:
        fault = replace(fault, message=mask(fault.message, self._secrets))
        return ModelError(fault, provider=self.name, model=model, status=status, hints=limits, partial=said)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "elsewhere"
    except ValueError:
        return "elsewhere"


def _broken(message: str) -> Fault:
    return Fault(kind="server_error", action="fail_over", message=message)


def _refusal(message: str) -> Fault:
    return Fault(kind="bad_request", action="fail", message=message)
