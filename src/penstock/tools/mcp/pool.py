"""All the servers of a configuration, shared by everyone in this process.

Nothing is started before it is needed, nothing is left when the pool is closed or the process is
killed, and a server that does not work is one that does not work: the others do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Self

from penstock.errors import PenstockError, ToolError, UnknownTool
from penstock.tools.base import Task
from penstock.tools.mcp.base import Listing, Progress, Watch
from penstock.tools.mcp.config import Server
from penstock.tools.mcp.upstream import Link, Upstream
from penstock.tools.mcp.watchdog import Watchdog
from penstock.workflow.findings import did_you_mean
from penstock.workflow.spec import Effect

TOGETHER: Final = 10
"""Servers that are started at the same time; each may be a whole runtime that wants a processor."""


class Pool:
    """Use it as `async with Pool(servers) as pool`, or `close` it yourself."""

    def __init__(
        self,
        servers: Mapping[str, Server],
        *,
        variables: Mapping[str, str] | None = None,
        listed: Callable[[Server, Listing], None] = lambda _server, _listing: None,
    ) -> None:
        """`variables` are those a server may inherit a few of; `listed` hears what each server offers."""
        self._watchdog = Watchdog()
        self._variables = variables or {}
        self.upstreams: dict[str, Upstream] = {
            name: Upstream(server, partial(self._connect, server), listed=listed)
            for name, server in servers.items()
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def upstream(self, server: str) -> Upstream:
        try:
            return self.upstreams[server]
        except KeyError:
            raise UnknownTool(f"{server}:", did_you_mean(server, self.upstreams)) from None

    async def start(
        self, servers: Iterable[str] | None = None, *, watch: Watch | None = None
    ) -> list[Progress]:
        """Start servers side by side, and ask what they offer. One that fails is reported, not raised."""
        names = list(self.upstreams if servers is None else servers)
        room = asyncio.Semaphore(TOGETHER)
        tell = watch or (lambda _progress: None)

        async def one(name: str) -> Progress:
            async with room:
                tell(Progress(name, "starting"))
                began = time.monotonic()
                try:
                    listing = await self.upstream(name).tools()
                except PenstockError as error:
                    said = error.message if isinstance(error, ToolError) else str(error)
                    end = Progress(name, "failed", seconds=time.monotonic() - began, error=said)
                else:
                    end = Progress(name, "ready", len(listing.tools), time.monotonic() - began)
                tell(end)
                return end

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(name), name=name) for name in names]
        return [task.result() for task in tasks]

    async def call(
        self,
        server: str,
        tool: str,
        args: Mapping[str, Any],
        *,
        effect: Effect = "write",
        task: Task | None = None,
    ) -> Any:
        return await self.upstream(server).call(tool, args, effect=effect, task=task)

    async def close(self) -> None:
        """Stop everything. No process is left afterwards."""
        await asyncio.gather(*(upstream.close() for upstream in self.upstreams.values()))
        await asyncio.to_thread(self._watchdog.close)

    @asynccontextmanager
    async def _connect(self, server: Server, changed: Callable[[], None]) -> AsyncIterator[Link]:
        # The SDK takes a second to load; meanwhile others have things to do.
        session = await asyncio.to_thread(import_module, "penstock.tools.mcp.session")
        connecting = session.connect(server, self._variables, self._watchdog, changed=changed)
        async with connecting as link:
            yield link
