"""The streams of messages that the SDK reads from and writes to, with nothing in between.

Its own are queues with a task at the other end; every message then waits several turns of the
event loop. Here who reads a message reads the pipe, and who writes one writes it.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import anyio
from mcp.shared.message import SessionMessage


class Stream:
    """What both directions have in common."""

    closed = False

    async def aclose(self) -> None:
        self.closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Incoming(Stream):
    """Read by one task."""

    async def receive(self) -> SessionMessage | Exception:
        """The next message. `EndOfStream` when there will be none."""
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class Outgoing(Stream):
    """Written to by any number of tasks."""

    async def send(self, item: SessionMessage) -> None:
        if self.closed:
            raise anyio.ClosedResourceError
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            await self.write(text.encode() + b"\n")
        except OSError:
            raise anyio.BrokenResourceError from None

    async def write(self, line: bytes) -> None:
        raise NotImplementedError
