"""A wire to a Postgres server that can be cut at the worst moment."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from types import TracebackType
from typing import Self

NAME = ".s.PGSQL.5432"

IDLE = b"Z\0\0\0\x05I"
"""How an answer ends that leaves no transaction open."""


class Wire:
    """Sockets in `folder` that lead to the server in `far`. Use it as `async with Wire(...)`."""

    def __init__(self, folder: Path, far: Path) -> None:
        self._near, self._far = folder / NAME, far / NAME
        self.cuts = 0
        self.down = False
        """Nobody gets through any more."""
        self._when = ""
        self._pattern = b""
        self._for_good = False
        self._server: asyncio.Server
        self._calls: set[asyncio.Task[None]] = set()

    def cut(self, when: str, pattern: bytes) -> None:
        """Cut the connection that next sends `pattern`: `before` the server gets it, or `after` it acted."""
        self._when, self._pattern = when, pattern

    def cut_for_good(self, when: str, pattern: bytes) -> None:
        """The same, and nobody gets through until `down` is lifted."""
        self.cut(when, pattern)
        self._for_good = True

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._call, self._near)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        if self.down:
            writer.close()
            self._calls.discard(task)
            return
        call = _Call(writer, *await asyncio.open_unix_connection(self._far))
        back = asyncio.ensure_future(call.carry_back())
        try:
            while data := await reader.read(1 << 20):
                if self._when and self._pattern in data:
                    when, self._when = self._when, ""
                    self.cuts += 1
                    self.down, self._for_good = self._for_good, False
                    if when == "before":
                        break
                    call.deaf = True
                call.far_writer.write(data)
        finally:
            back.cancel()
            call.close()
            self._calls.discard(task)


class _Call:
    """One connection."""

    def __init__(
        self,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        self._writer, self._far_reader, self.far_writer = writer, far_reader, far_writer
        self.deaf = False
        """What the server answers does not come back; once it is done, the connection is cut."""

    async def carry_back(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await self._far_reader.read(1 << 20):
                if not self.deaf:
                    self._writer.write(data)
                elif data.endswith(IDLE):
                    break  # committed, and nobody heard of it
        self.close()

    def close(self) -> None:
        self.far_writer.close()
        self._writer.close()
