"""A wire to a Postgres server that can be cut at the worst moment."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from types import TracebackType
from typing import Self

NAME = ".s.PGSQL.5432"


class Wire:
    """Sockets in `folder` that lead to the server in `far`. Use it as `async with Wire(...)`."""

    def __init__(self, folder: Path, far: Path) -> None:
        self._near, self._far = folder / NAME, far / NAME
        self.cuts = 0
        self._when = ""
        self._pattern = b""
        self._server: asyncio.Server
        self._calls: set[asyncio.Task[None]] = set()

    def cut(self, when: str, pattern: bytes) -> None:
        """Cut the connection that next sends `pattern`: `before` the server gets it, or `after` it answered."""
        self._when, self._pattern = when, pattern

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
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(self._far)
            back = asyncio.ensure_future(_carry(far_reader, writer))
            try:
                while data := await reader.read(1 << 20):
                    hit = self._when and self._pattern in data
                    when, self._when = (self._when, "") if hit else ("", self._when)
                    if when == "before":
                        break
                    if when == "after":
                        back.cancel()
                        await asyncio.wait([back])
                    far_writer.write(data)
                    if when == "after":
                        await far_reader.read(1 << 20)  # committed, and nobody heard of it
                        break
            finally:
                self.cuts += bool(when)
                back.cancel()
                far_writer.close()
        finally:
            writer.close()
            self._calls.discard(task)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 20):
            writer.write(data)
    writer.close()
