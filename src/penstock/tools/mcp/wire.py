"""The HTTP beneath a server that is reached by an address.

One request that fails must not take the others with it, and whoever sent it needs to know whether
the server can have got it. So a failure becomes an answer with a code of ours, and an answer that
is too large ends in words.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from penstock.tools.mcp.config import Server

UNREACHED: Final = -32_090
"""The request never arrived."""

LOST: Final = -32_091
"""The request may have arrived; the answer did not."""

GONE: Final = -32_093
"""The server does not know our session, and did nothing with the request."""

REFUSED: Final = -32_092
"""The server wants us to log in, or does not let us in at all."""

_SHORT: Final = 64 * 1024
"""Bytes of an error that is read to see what it is about."""

_TIMEOUT: Final = httpx2.Timeout(30.0, read=None)
"""How long an answer may take is the caller's business."""


class TooLarge(httpx2.StreamError):
    pass


class Wire(httpx2.AsyncHTTPTransport):
    """Sends requests; a failure comes back as a JSON-RPC error."""

    def __init__(self, largest: int) -> None:
        super().__init__()
        self._largest = largest

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await super().handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _said(request, UNREACHED, f"cannot be reached: {error or type(error).__name__}")
        except httpx2.TransportError as error:
            return _said(request, LOST, f"{type(error).__name__}: {error}")
        if response.status_code in (401, 403):
            await response.aclose()
            return _said(request, REFUSED, f"does not let us in (HTTP {response.status_code})")
        if response.status_code in (502, 503, 504):
            await response.aclose()
            return _said(request, LOST, f"HTTP {response.status_code}")
        if response.status_code in (400, 404) and "mcp-session-id" in request.headers:
            return await _without_session(request, response)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _Capped(response.stream, self._largest)  # events have a limit of their own
        return response


class _Capped(httpx2.AsyncByteStream):
    def __init__(self, stream: object, largest: int) -> None:
        self._stream = stream
        self._left = largest
        self._largest = largest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._stream, httpx2.AsyncByteStream)  # noqa: S101 - of an asynchronous transport
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise TooLarge(f"the answer is larger than {self._largest:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        if isinstance(self._stream, httpx2.AsyncByteStream):
            await self._stream.aclose()


async def _without_session(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Servers say in many ways that they do not know a session; few as the protocol has it."""
    response.stream = _Capped(response.stream, _SHORT)
    try:
        body = await response.aread()
    except httpx2.HTTPError as error:
        return _said(request, LOST, f"{type(error).__name__}: {error}")
    except TooLarge:
        body = b""
    forgotten = b"session" in body.lower() or (response.status_code == 404 and b"jsonrpc" not in body)
    if forgotten:
        return _said(request, GONE, "it no longer knows our session")
    headers = {"content-type": response.headers.get("content-type", "")}
    return httpx2.Response(response.status_code, content=body, headers=headers, request=request)


def _said(request: httpx2.Request, code: int, message: str) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(500, json=body, request=request)


@asynccontextmanager
async def open_wire(server: Server) -> AsyncIterator[tuple[Any, Any]]:
    """The streams of messages from and to a server at an address."""
    headers, wire = dict(server.headers), Wire(server.max_bytes)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT, transport=wire) as client,
        streamable_http_client(
            server.url, http_client=client, max_sse_event_size=server.max_bytes
        ) as streams,
    ):
        yield streams
