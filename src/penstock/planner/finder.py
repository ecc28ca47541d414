"""Answers `discover`: the tools that fit an intent, as many as fit the budget.

Keeps its index current with the catalog by itself. The first question pays for opening it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.knowledge.entries import Evidence, Found, entry_of
from penstock.knowledge.requests import told, understood
from penstock.planner.context import Budget, Count, cost_of, counter, described, fill, known
from penstock.tools.base import Catalog, Tool

if TYPE_CHECKING:
    from penstock.knowledge.embed import Embedder
    from penstock.knowledge.search import Search

_BRIEF: Final = 160
"""Characters of a description where only names are wanted."""

_FURTHER: Final = 4
"""How many times as many are looked at when too few of the best can be used."""


async def _nothing() -> Sequence[str]:
    """Nothing to wait for."""
    return ()


def _embedded() -> Embedder | None:
    from penstock.knowledge.embed import chosen

    return chosen()


class ToolFinder:
    def __init__(
        self,
        catalog: Catalog,
        *,
        budget: Budget | None = None,
        embedder: Callable[[], Embedder | None] = _embedded,
        kept: Path | None = None,
        evidence: Evidence | None = None,
        before: Callable[[], Awaitable[Sequence[str]]] = _nothing,
    ) -> None:
        self.budget = budget or Budget()
        self._catalog = catalog
        self._embedder = embedder
        """Called once, in a worker thread, by the first question. None: words have to do."""
        self._kept = kept
        self._evidence = evidence
        self._before = before
        """Waited for before each search: servers may just be starting. Names those that still are."""
        self._search: Search | None = None
        self._version: int | None = None
        """Of the catalog, as it is in the index."""
        self._turn = asyncio.Lock()

    async def find(
        self, intent: str, *, limit: int, schemas: bool, context: Sequence[str] = ()
    ) -> Mapping[str, Any]:
        starting = await self._before()
        says_something = bool(told(understood(intent).text))
        search, best = await self._best(intent, limit=limit, context=context)
        found = best if says_something else []
        count, exact = counter()
        shown = [_shown(one, tool, schemas=schemas) for one, tool in found]
        filled = fill(shown, lambda plain: cost_of(plain, count), self.budget.available)
        answer: dict[str, Any] = {
            "status": "complete",
            "tools": filled.chosen,
            "of": len(search),
            "tokens": filled.tokens,
            "budget": {**self.budget.shown(), "exact": exact},
        }
        if starting:
            answer["starting"] = list(starting)
        if filled.left_out:
            answer["left_out"] = [plain["id"] for plain in filled.left_out]
            answer["hint"] = "`left_out` did not fit; ask for names only, or for less at once"
        elif not says_something:
            answer["hint"] = "nothing in it can be looked for; say in a few words what is to be done"
        return answer

    async def ranked(self, intent: str, *, limit: int, context: Sequence[str] = ()) -> list[Found]:
        """The best tools first, whatever they cost."""
        await self._before()
        _, best = await self._best(intent, limit=limit, context=context)
        return [found for found, _ in best]

    def costs(self, count: Count) -> dict[str, int]:
        """What every tool would cost if clients were shown all of them."""
        every = known(self._catalog, self._catalog.ids())
        return {tool.id: cost_of(described(tool), count) for tool in every}

    async def _best(
        self, intent: str, *, limit: int, context: Sequence[str]
    ) -> tuple[Search, list[tuple[Found, Tool]]]:
        async with self._turn:
            search = await self._current()
            wanted = limit
            while True:
                found = await asyncio.to_thread(search.find, intent, limit=wanted, context=context)
                best = self._usable(found)[:limit]
                if len(best) == limit or wanted >= len(search):
                    return search, best
                wanted *= _FURTHER

    async def _current(self) -> Search:
        """The index, of what the catalog holds now."""
        version = self._catalog.version
        if self._search is None or version != self._version:
            self._search = await asyncio.to_thread(self._made)
            self._version = version
        return self._search

    def _made(self) -> Search:
        from penstock.knowledge.search import Search

        search = self._search or Search(self._embedder(), kept=self._kept, evidence=self._evidence)
        search.update(entry_of(one, one.about) for one in self._catalog.sketches())
        return search

    def _usable(self, found: Sequence[Found]) -> list[tuple[Found, Tool]]:
        """Each with its tool. What turns out to be refused is passed over: there is nothing to offer."""
        usable = []
        for one in found:
            try:
                usable.append((one, self._catalog.find(one.id)))
            except PenstockError:
                continue
        return usable


def _shown(found: Found, tool: Tool, *, schemas: bool) -> dict[str, Any]:
    if not schemas:
        return {"id": tool.id, "description": _first(tool.description), "score": found.score}
    return {**described(tool), "effect": tool.effect, "score": found.score}


def _first(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _BRIEF else f"{line[: _BRIEF - 1]}…"
