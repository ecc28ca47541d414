"""Our stdin and stdout as the pipe to a client, read and written by the event loop itself.

The SDK's own transport reads and writes with threads; each message then waits for three of them.
While we serve, file descriptor 0 is empty and 1 is our stderr, so that nothing that tools or
their children print gets between the messages.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, cast

from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import ServerRunner, aclose_shielded
from mcp.server.stdio import stdio_server
from mcp.shared.dispatcher import DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp.shared.transport_context import TransportContext
from mcp_types import PROTOCOL_VERSION_META_KEY

from penstock.tools.mcp.lines import Cut, Lines
from penstock.tools.mcp.peer import Peer, decode

LARGEST: Final = 64 * 1024 * 1024
"""Bytes of one message."""

Asked = DispatchContext[TransportContext]
Params = Mapping[str, Any] | None


async def serve_pipe(server: Server[Any]) -> None:
    """Serve the client at the other end of our pipes until it leaves."""
    if not all(_is_pipe(fd) for fd in (0, 1)) or sys.platform == "win32":
        async with stdio_server() as (read, write):  # files and terminals are for threads to wait for
            await server.run(read, write, server.create_initialization_options())
        return
    async with _piped() as peer, server.lifespan(server) as state:
        eras = Eras(server, state, peer)
        try:
            await peer.run(eras.answer, eras.note)
        finally:
            await eras.close()


class Eras:
    """The SDK's server, in the era of the protocol that a client's first request speaks."""

    def __init__(self, server: Server[Any], state: Any, peer: Peer) -> None:
        self._server = server
        self._state = state
        self._peer = peer
        self._modern: bool | None = None
        self._said: tuple[Any, ...] = ()
        """The client of the newer protocol, as it says with each request who it is and what it can do."""
        self._runner = ServerRunner(
            server, Connection.for_loop(peer), state, init_options=server.create_initialization_options()
        )

    async def answer(self, asked: Asked, method: str, params: Params) -> dict[str, Any]:
        if self._modern is None:
            self._modern = method != "initialize" and _enveloped(params)
            self._peer.may_ask = not self._modern
        if self._modern:
            self._meet(method, params)
        return await self._runner.on_request(asked, method, params)

    async def note(self, asked: Asked, method: str, params: Params) -> None:
        if not self._modern:  # in the newer protocol they change nothing
            await self._runner.on_notify(asked, method, params)

    def _meet(self, method: str, params: Params) -> None:
        """Know who asks. It is the same client all the time, and seldom says anything else."""
        route = classify_inbound_request({"method": method, "params": params})
        if isinstance(route, InboundLadderRejection):
            raise MCPError(code=route.code, message=route.message, data=route.data)
        said = (route.protocol_version, route.client_info, route.client_capabilities)
        if said != self._said:
            self._said = said
            self._runner = ServerRunner(self._server, Connection.from_envelope(*said), self._state)

    async def close(self) -> None:
        await aclose_shielded(self._runner.connection)


def _enveloped(params: Params) -> bool:
    meta = (params or {}).get("_meta")
    return isinstance(meta, Mapping) and PROTOCOL_VERSION_META_KEY in meta


# --- the pipes ---


def _is_pipe(fd: int) -> bool:
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@asynccontextmanager
async def _piped() -> AsyncIterator[Peer]:
    loop = asyncio.get_running_loop()
    with _taken(0, os.open(os.devnull, os.O_RDONLY)) as source, _taken(1, os.dup(2)) as target:
        said = Said()
        outgoing, _ = await loop.connect_write_pipe(lambda: said, os.fdopen(target, "wb", 0))
        peer = Peer(said)
        incoming, _ = await loop.connect_read_pipe(lambda: Heard(peer), os.fdopen(source, "rb", 0))
        try:
            yield peer
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


class Heard(asyncio.Protocol):
    """What the client says."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._lines = Lines(LARGEST)

    def data_received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if isinstance(line, Cut):
                continue
            try:
                message = decode(line)
            except (ValueError, RecursionError):
                continue  # nobody could say what it was meant to be
            self._peer.hear(message)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._peer.end()


class Said(asyncio.BaseProtocol):
    """What we say to it."""

    def __init__(self) -> None:
        self._pipe: asyncio.WriteTransport
        self._flows = asyncio.Event()
        self._flows.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipe = cast("asyncio.WriteTransport", transport)

    def pause_writing(self) -> None:
        self._flows.clear()

    def resume_writing(self) -> None:
        self._flows.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._flows.set()

    def write(self, line: bytes) -> None:
        if self._pipe.is_closing():
            raise BrokenPipeError
        self._pipe.write(line)

    async def drained(self) -> None:
        await self._flows.wait()
