"""One configured server: started when it is needed, kept while it is used, started again when it broke.

Many callers share one connection. A call that was lost is repeated once if repeating does no harm;
a `write` of which nobody knows whether it happened is reported as just that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from typing import Any, Final, Protocol

from penstock.errors import LostCall, ServerDown, ToolFailed
from penstock.tools.base import Task
from penstock.tools.mcp import health
from penstock.tools.mcp.base import Listing, Lost, Unreached, Waiting
from penstock.tools.mcp.config import Server
from penstock.tools.mcp.health import Health
from penstock.workflow.spec import Effect

PATIENCE: Final = 2.0
"""Seconds that a call waits for a server that rests after a failure; a longer rest is an error at once."""

QUIET: Final = 0.5
"""Seconds between two times that a server is asked what it offers because it says that this has changed."""

HARMLESS: Final = ("read", "idempotent")


class Link(Protocol):
    """A connection, as far as it matters here."""

    over: asyncio.Event

    @property
    def alive(self) -> bool: ...

    @property
    def busy(self) -> bool: ...

    async def listing(self) -> Listing: ...

    async def call(
        self, tool: str, args: Mapping[str, Any], *, task: Task | None = None, waiting: Waiting = ...
    ) -> Any: ...

    async def broken(self) -> None: ...


Connect = Callable[[Callable[[], None]], AbstractAsyncContextManager[Link]]
"""Opens a connection; the function it is given is to be called when the server's tools change."""


class Upstream:
    """Use it from any task; `close` it in the end."""

    def __init__(
        self,
        server: Server,
        connect: Connect,
        *,
        listed: Callable[[Server, Listing], None] = lambda _server, _listing: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.server = server
        self.health = Health()
        self.listing: Listing | None = None
        """What it offered when it was last started or said that something changed."""
        self._connect = connect
        self._listed = listed
        self._now = now
        self._link: Link | None = None
        self._starting: asyncio.Future[Link] | None = None
        self._keepers: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._news = asyncio.Event()
        """Set when it says that its tools have changed."""
        self._stale = False
        """Whether it has said so since it was last asked."""
        self._asking = asyncio.Lock()
        self._used = 0.0
        self._mourned: Link | None = None
        """The last connection that broke."""

    @property
    def running(self) -> bool:
        return self._link is not None and self._link.alive

    async def tools(self) -> Listing:
        """What it offers now. Starts it if need be."""
        link = await self._linked()
        if self._stale or self._asking.locked():
            try:
                await self._ask(link)
            except (Lost, Unreached) as error:  # asking changes nothing: whoever is started next is asked
                self._broke(link, str(error))
                await self._linked()
        assert self.listing is not None  # noqa: S101 - one that was started was listed
        return self.listing

    async def call(
        self, tool: str, args: Mapping[str, Any], *, effect: Effect = "write", task: Task | None = None
    ) -> Any:
        """The output of a tool. `ToolFailed`, `ServerDown`, or `LostCall` when nobody can tell."""
        name = f"{self.server.name}:{tool}"
        for last in (False, True):
            link = await self._linked()
            try:
                async with asyncio.timeout(self.server.timeout) as limit:
                    output = await link.call(tool, args, task=task, waiting=_Clocks(limit, task).waiting)
            except ToolFailed:
                self._succeeded()
                raise
            except Unreached as error:  # it did nothing: anything may be sent again
                self._broke(link, str(error))
                if last:
                    raise ServerDown(self.server.name, str(error)) from None
            except Lost as error:
                self._broke(link, str(error))
                if last or effect not in HARMLESS:
                    hint = "whether it happened is not known" if effect not in HARMLESS else "twice in a row"
                    raise LostCall(name, f"no answer came back, {hint}: {error}") from None
            except TimeoutError:
                said = f"no answer within {self.server.timeout:g} s"
                self.health = health.unanswered(self.health, said, now=self._now())
                raise LostCall(name, said) from None
            except asyncio.CancelledError:
                self.health = health.unanswered(self.health, "the last call was given up", now=self._now())
                raise
            else:
                self._succeeded()
                return output
        raise AssertionError  # the second round returns or raises

    async def close(self) -> None:
        """Stop it, and wait until nothing of it is left."""
        self._stop.set()
        if self._keepers:
            await asyncio.wait(self._keepers)

    # --- keeping a connection ---

    async def _linked(self) -> Link:
        """The connection, opened if there is none. Everyone who comes meanwhile waits for the same one."""
        self._used = self._now()
        if self._link is not None and self._link.alive:
            return self._link
        if self._stop.is_set():
            raise ServerDown(self.server.name, "it was stopped")
        if self._starting is None:
            await self._rest()
            if self._starting is None:
                self._start()
        assert self._starting is not None  # noqa: S101 - just started, by us or by someone else
        try:
            return await asyncio.shield(self._starting)
        except Unreached as error:
            raise ServerDown(self.server.name, str(error)) from None

    async def _rest(self) -> None:
        wait = health.rest(self.health, now=self._now())
        if wait > PATIENCE:
            said = f"{self.health.error}; the next start is in {wait:.0f} s"
            raise ServerDown(self.server.name, said, retry_after=wait)
        await asyncio.sleep(wait)

    def _start(self) -> None:
        self._starting = asyncio.get_running_loop().create_future()
        keeper = asyncio.ensure_future(self._keep(self._starting))
        self._keepers.add(keeper)
        keeper.add_done_callback(self._keepers.discard)

    async def _keep(self, started: asyncio.Future[Link]) -> None:
        """Hold one connection from its beginning to its end, in one task as the SDK wants it."""
        link: Link | None = None
        try:
            async with self._connect(self._changed) as link:
                await self._list(link)
                self._link, self._starting = link, None
                if not started.cancelled():
                    started.set_result(link)
                await self._until_over(link)
                if not link.alive:
                    self._broke(link, "it went away by itself")
                self._link = None if self._link is link else self._link
        except (Unreached, Lost, ToolFailed) as error:
            if not started.done():
                self._failed(str(error), started)
        except BaseException as error:
            if not started.done():
                self._failed(f"{type(error).__name__}: {error}", started)
            raise
        finally:
            if link is not None:
                link.over.set()

    def _failed(self, why: str, started: asyncio.Future[Link]) -> None:
        self.health = health.failed(self.health, why, now=self._now())
        self._starting = None
        started.set_exception(Unreached(why))
        started.exception()  # heard here: whoever waited may have gone

    async def _until_over(self, link: Link) -> None:
        """Until it broke, was stopped, or has not been used for long."""
        ends = [asyncio.ensure_future(link.broken()), asyncio.ensure_future(self._stop.wait())]
        hearing = asyncio.ensure_future(self._hear(link))
        try:
            while True:
                left = self._used + self.server.idle - self._now()
                done, _ = await asyncio.wait(
                    ends, timeout=max(left, 0.05), return_when=asyncio.FIRST_COMPLETED
                )
                idle = not link.busy and self._now() - self._used >= self.server.idle
                if done or idle:
                    return
        finally:
            for one in (*ends, hearing):
                one.cancel()
            await asyncio.gather(*ends, hearing, return_exceptions=True)

    async def _hear(self, link: Link) -> None:
        """Ask again when it says that something changed, also if nobody calls it; but not all the time."""
        while True:
            await self._news.wait()
            self._news.clear()
            with suppress(Lost, Unreached, ToolFailed):  # whoever calls it next asks again, and is told
                await self._ask(link)
            await asyncio.sleep(QUIET)

    async def _ask(self, link: Link) -> None:
        """Learn what it offers now; however many want to know it, it is asked once."""
        async with self._asking:
            if self._stale:
                await self._list(link)

    async def _list(self, link: Link) -> None:
        self._stale = False  # before it is asked: it may change again while it answers
        limit = self.server.start_timeout
        try:
            async with asyncio.timeout(limit):
                listing = await link.listing()
        except TimeoutError:
            self._stale = True
            raise Lost(f"it did not say what it offers within {limit:g} s") from None
        except (Lost, Unreached, ToolFailed):
            self._stale = True
            raise
        self.listing = listing
        self._listed(self.server, listing)

    def _changed(self) -> None:
        self._stale = True
        self._news.set()

    def _succeeded(self) -> None:
        self._used = self._now()
        self.health = health.succeeded(now=self._used)

    def _broke(self, link: Link, why: str) -> None:
        """Note it once, however many calls were lost with the connection."""
        if self._mourned is not link:
            self._mourned = link
            self.health = health.failed(self.health, why, now=self._now())
        if self._link is link:
            self._link = None
        link.over.set()


class _Clocks:
    """Of one call: our limit, and the time of its task."""

    def __init__(self, limit: asyncio.Timeout, task: Task | None) -> None:
        self._limit = limit
        self._task = task
        self._waits = 0
        self._left: float | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Neither clock runs while a person is waited for, however many questions there are at once."""
        limit, loop = self._limit, asyncio.get_running_loop()
        if not self._waits:
            due = limit.when()
            self._left = None if due is None else due - loop.time()
            limit.reschedule(None)
        self._waits += 1
        try:
            with self._task.waiting() if self._task is not None else nullcontext():
                yield
        finally:
            self._waits -= 1
            if not self._waits and self._left is not None and not limit.expired():
                with suppress(RuntimeError):  # the call may have ended before its question did
                    limit.reschedule(loop.time() + self._left)
