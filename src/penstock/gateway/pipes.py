"""Our stdin and stdout as streams of messages, read and written by the event loop itself.

The SDK's own transport reads and writes with threads; each message then waits for three of them.
While we serve, file descriptor 0 is empty and 1 is our stderr, so that nothing that tools or
their children print gets between the messages.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Final

import anyio
from mcp.server.lowlevel import Server
from mcp.server.runner import modern_on_request, serve_loop
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types import PROTOCOL_VERSION_META_KEY, JSONRPCRequest, jsonrpc_message_adapter

from penstock.tools.mcp.streams import Incoming, Outgoing

LARGEST: Final = 64 * 1024 * 1024
"""Bytes of one message."""


def piped() -> AbstractAsyncContextManager[tuple[Any, Any]]:
    """The streams to and from our client."""
    ours = all(_is_pipe(fd) for fd in (0, 1)) and sys.platform != "win32"
    return _piped() if ours else stdio_server()  # files and terminals are for threads to wait for


def _is_pipe(fd: int) -> bool:
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@asynccontextmanager
async def _piped() -> AsyncIterator[tuple[Any, Any]]:
    loop = asyncio.get_running_loop()
    with _taken(0, os.open(os.devnull, os.O_RDONLY)) as source, _taken(1, os.dup(2)) as target:
        reader = asyncio.StreamReader(limit=LARGEST)
        incoming, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(source, "rb", 0)
        )
        outgoing, flow = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(target, "wb", 0)
        )
        try:
            yield Heard(reader), Said(asyncio.StreamWriter(outgoing, flow, None, loop))
        finally:
            incoming.close()
            outgoing.close()


@contextmanager
def _taken(fd: int, instead: int) -> Iterator[int]:
    """A descriptor for ourselves; whoever uses the old one meanwhile uses another file."""
    private, before = os.dup(fd), os.dup(fd)
    os.dup2(instead, fd)
    os.close(instead)
    try:
        yield private
    finally:
        os.dup2(before, fd)
        os.close(before)


async def serve_pipe(server: Server[Any], read: Incoming, write: Outgoing) -> None:
    """Serve the client at the other end, in the era of the protocol that its first request speaks.

    As the SDK does it by itself, but for the queue that it puts before the messages.
    """
    replayed = Replayed(read)
    first = await replayed.opening()
    async with server.lifespan(server) as state:
        if first is None or first.method == "initialize" or not _enveloped(first.params):
            options = server.create_initialization_options()
            await serve_loop(server, replayed, write, lifespan_state=state, init_options=options)
            return
        handle = modern_on_request(server, state)

        async def on_request(context: Any, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
            route = classify_inbound_request({"method": method, "params": params})
            if isinstance(route, InboundLadderRejection):
                raise MCPError(code=route.code, message=route.message, data=route.data)
            return await handle(context, method, params)

        dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(replayed, write)
        await dispatcher.run(on_request, _ignore)


async def _ignore(_context: Any, _method: str, _params: Mapping[str, Any] | None) -> None:
    """Notifications of clients change nothing here."""


def _enveloped(params: Mapping[str, Any] | None) -> bool:
    meta = (params or {}).get("_meta")
    return isinstance(meta, Mapping) and PROTOCOL_VERSION_META_KEY in meta


class Replayed(Incoming):
    """A stream whose first messages were looked at already."""

    def __init__(self, inner: Incoming) -> None:
        self._inner = inner
        self._seen: deque[SessionMessage | Exception] = deque()

    async def opening(self) -> JSONRPCRequest | None:
        """The first request, which is still to be read; None when there will be none."""
        async for item in self._inner:
            self._seen.append(item)
            if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCRequest):
                return item.message
        return None

    async def receive(self) -> SessionMessage | Exception:
        return self._seen.popleft() if self._seen else await self._inner.receive()


class Heard(Incoming):
    """What the client says."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def receive(self) -> SessionMessage | Exception:
        try:
            line = await self._reader.readline()
        except ValueError as error:  # longer than a message may be
            return error
        if not line:
            raise anyio.EndOfStream
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            return error


class Said(Outgoing):
    """What we say to it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, line: bytes) -> None:
        self._writer.write(line)
        await self._writer.drain()
