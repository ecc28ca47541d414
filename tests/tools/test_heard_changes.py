"""A server that says that its tools have changed is asked for them, by us and once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from serving import wait

from penstock.errors import ToolFailed
from penstock.tools.base import Task
from penstock.tools.mcp.base import Definition, Listing
from penstock.tools.mcp.config import Server
from penstock.tools.mcp.upstream import Upstream


class Link:
    """A connection to nobody, whose listings are counted and may be held back."""

    alive = True
    busy = False

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.listings = 0
        self.fails = False
        self.go = asyncio.Event()
        self.go.set()
        self.changed: Callable[[], None]

    async def listing(self) -> Listing:
        self.listings += 1
        number = self.listings
        await self.go.wait()
        if self.fails:
            raise ToolFailed("s", "not now")
        return Listing((Definition(f"tool{number}", "", {}, None, {}),), "", "", "")

    async def call(
        self, tool: str, args: Mapping[str, Any], *, task: Task | None = None, waiting: Any = None
    ) -> Any:
        raise NotImplementedError

    async def broken(self) -> None:
        await self.over.wait()


@asynccontextmanager
async def running(heard: list[str]) -> AsyncIterator[tuple[Upstream, Link]]:
    link = Link()

    @asynccontextmanager
    async def connect(changed: Callable[[], None]) -> AsyncIterator[Link]:
        link.changed = changed
        yield link

    def listed(_server: Server, listing: Listing) -> None:
        heard.extend(tool.name for tool in listing.tools)

    upstream = Upstream(Server(name="s", command="s"), connect, listed=listed)
    await upstream.tools()
    try:
        yield upstream, link
    finally:
        link.go.set()
        await upstream.close()


async def turns() -> None:
    """Everything that can happen without time passing has happened."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_it_is_asked_at_once_and_not_again_for_every_word() -> None:
    heard: list[str] = []

    async def main() -> None:
        async with running(heard) as (_, link):
            link.changed()
            await turns()
            assert heard == ["tool1", "tool2"]
            for _ in range(20):
                link.changed()
                await turns()
            assert link.listings == 2  # it has just been asked
            async with asyncio.timeout(10):
                while link.listings < 3:  # noqa: ASYNC110 - but it is not forgotten
                    await asyncio.sleep(0.01)

    wait(main())
    assert heard == ["tool1", "tool2", "tool3"]


def test_whoever_wants_to_know_what_it_offers_while_it_is_being_asked_waits_for_the_answer() -> None:
    async def main() -> None:
        async with running([]) as (upstream, link):
            link.go.clear()
            link.changed()
            await turns()
            asking = [asyncio.ensure_future(upstream.tools()) for _ in range(3)]
            await turns()
            assert not any(one.done() for one in asking)
            link.go.set()
            assert {one.tools[0].name for one in await asyncio.gather(*asking)} == {"tool2"}
            assert link.listings == 2

    wait(main())


def test_one_that_cannot_say_what_has_changed_is_asked_again_by_whoever_calls_it() -> None:
    async def main() -> None:
        async with running([]) as (upstream, link):
            link.fails = True
            link.changed()
            await turns()
            assert (link.listings, upstream.running) == (2, True)
            link.fails = False
            assert (await upstream.tools()).tools[0].name == "tool3"

    wait(main())
