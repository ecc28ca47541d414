"""Language model providers on loopback: their wire formats, their streams, and every way they fail.

    async with ModelServer() as server:
        server.script("openai", Says(text="Hi."), rate_limited("openai", "ms"))
        provider = Hosted(server.endpoint("openai"), http)

Each provider has a script of its own and goes through it call by call; where it ends, the provider
is well and says hello. What hangs does so until the server closes; only what drips counts time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from aiohttp import web
from msgspec.structs import replace

from penstock.models.endpoint import KNOWN, Endpoint, Secret, compatible
from penstock.testing.faults import Cuts, Drips, Drops, Errs, Fails, Floods, Hangs, Replies, Stalls
from penstock.testing.wires import Says, streamed, texts_in, vectors, whole

Turn = Says | Fails
Operation = Literal["chat", "embed", "probe"]

KEY = "loopback-key-0123456789"

_VERSIONS = {"openai": "/v1", "gemini": "/v1beta", "groq": "/openai/v1"}
_HELLO = Says()


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request that arrived."""

    provider: str
    operation: Operation
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False


class ModelServer:
    """Use it as `async with ModelServer() as server`."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        """Everything that arrived, probes included, in order."""
        self._scripts: defaultdict[str, deque[Turn]] = defaultdict(deque)
        self._probes: defaultdict[str, deque[Turn]] = defaultdict(deque)
        self._closing = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._endpoints: dict[str, Endpoint] = {}
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{provider}/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        if self._runner is not None:
            await self._runner.cleanup()

    def endpoint(self, kind: str, *, name: str = "", key: str = KEY) -> Endpoint:
        """A provider of this kind here. An unknown kind is one that speaks like OpenAI."""
        name = name or kind
        base = f"{self.url}/{name}"
        if kind in KNOWN:
            found = replace(
                KNOWN[kind], name=name, base=base + _VERSIONS.get(kind, ""), key=Secret(key), local=False
            )
        else:
            found = compatible(name, f"{base}/v1", key)
        self._endpoints[name] = found
        return found

    def script(self, name: str, *turns: Turn) -> None:
        """What a provider does with its next calls."""
        self._scripts[name].extend(turns)

    def script_probes(self, name: str, *turns: Turn) -> None:
        self._probes[name].extend(turns)

    def asked(self, name: str) -> list[Call]:
        """The chats and embeddings that a provider was asked for."""
        return [call for call in self.calls if call.provider == name and call.operation != "probe"]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        call = _read(request, await request.read())
        self.calls.append(call)
        endpoint = self._endpoints.get(call.provider)
        if endpoint is None:
            return web.Response(status=404)
        script = (self._probes if call.operation == "probe" else self._scripts)[call.provider]
        turn = script.popleft() if script else _HELLO
        pieces = _pieces(endpoint, call, turn if isinstance(turn, Says) else _HELLO)
        match turn:
            case Replies(status=status, body=body, headers=headers):
                return web.Response(status=status, body=body, headers=_typed(headers))
            case Hangs():
                await self._closing.wait()
                return web.Response(status=503)
            case Drops():
                _abort(request)
                return web.Response()
            case Floods():
                return await self._flood(request, turn)
            case Drips():
                return await self._drip(request, turn)
            case Says() if not call.stream:
                headers = {**turn.headers, "content-type": "application/json"}
                return web.Response(body=b"".join(pieces), headers=headers)
            case _:
                return await self._stream(request, pieces, turn, call)

    async def _stream(
        self, request: web.Request, pieces: list[bytes], turn: Turn, call: Call
    ) -> web.StreamResponse:
        lines = call.body.get("stream") and self._endpoints[call.provider].speech == "ollama"
        kind = "application/x-ndjson" if lines else "text/event-stream" if call.stream else "application/json"
        headers = {**(turn.headers if isinstance(turn, Says) else {}), "content-type": kind}
        response = web.StreamResponse(status=getattr(turn, "status", 200), headers=headers)
        await response.prepare(request)
        for piece in pieces[: getattr(turn, "after", len(pieces))]:
            await response.write(piece)
        if isinstance(turn, Errs):
            body = turn.reply.body
            event = b"event: error\n" if b'"type": "error"' in body else b""
            await response.write(body + b"\n" if lines else event + b"data: " + body + b"\n\n")
        elif isinstance(turn, Stalls):
            await self._closing.wait()
        elif isinstance(turn, Cuts):
            _abort(request)
        return response

    async def _flood(self, request: web.Request, turn: Floods) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json"})
        if turn.announced:
            response.content_length = turn.size
        await response.prepare(request)
        piece = b" " * 65536
        with contextlib.suppress(ConnectionError):
            for _ in range(turn.size // len(piece)):
                if request.transport is None or request.transport.is_closing():
                    break
                await response.write(piece)
        return response

    async def _drip(self, request: web.Request, turn: Drips) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while not self._closing.is_set():
                await response.write(b" ")
                await asyncio.sleep(turn.every)
        return response


def _read(request: web.Request, raw: bytes) -> Call:
    path = "/" + request.match_info["path"]
    body = json.loads(raw) if raw else {}
    operation: Operation = "chat"
    if request.method == "GET":
        operation = "probe"
    elif path.endswith(("/embeddings", "/api/embed", ":batchEmbedContents")):
        operation = "embed"
    return Call(
        provider=request.match_info["provider"],
        operation=operation,
        path=path,
        query=dict(request.query),
        headers={name.lower(): value for name, value in request.headers.items()},
        body=body,
        stream=bool(body.get("stream")) or ":streamGenerateContent" in path,
    )


def _pieces(endpoint: Endpoint, call: Call, says: Says) -> list[bytes]:
    """What a provider in good health would send."""
    if call.operation == "probe":
        return [json.dumps({"object": "list", "data": [], "models": []}).encode()]
    if call.operation == "embed":
        texts = texts_in(endpoint.speech, call.body)
        return _halves(json.dumps(vectors(endpoint.speech, texts)).encode())
    model = str(call.body.get("model") or call.path.rpartition("/")[2].partition(":")[0])
    speech = "openai" if call.path.endswith("/chat/completions") else endpoint.speech
    if call.stream:
        return streamed(speech, says, model)
    return _halves(json.dumps(whole(speech, says, model)).encode())


def _halves(raw: bytes) -> list[bytes]:
    third = len(raw) // 3
    return [raw[:third], raw[third : 2 * third], raw[2 * third :]]


def _typed(headers: Mapping[str, str]) -> dict[str, str]:
    return {"content-type": "application/json", **headers}


def _abort(request: web.Request) -> None:
    transport = request.transport
    if isinstance(transport, asyncio.Transport):
        transport.abort()
