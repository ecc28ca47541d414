"""Answers `discover`: the tools that fit an intent, as many as fit the budget.

Keeps its index current with the catalog by itself. The first question pays for opening it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.knowledge.entries import Entry, Evidence, Found, entry_of
from penstock.planner.context import Budget, Count, cost_of, counter, described, fill
from penstock.tools.base import Catalog, Tool

if TYPE_CHECKING:
    from penstock.knowledge.embed import Embedder
    from penstock.knowledge.search import Search

FRESH: Final = 2.0
"""Seconds for which the catalog is taken to be as it was."""

_BRIEF: Final = 160
"""Characters of a description where only names are wanted."""


async def _nothing() -> None:
    """Nothing to wait for."""


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
        about: Callable[[str], str] = lambda _server: "",
        before: Callable[[], Awaitable[None]] = _nothing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.budget = budget or Budget()
        self._catalog = catalog
        self._embedder = embedder
        """Called once, in a worker thread, by the first question. None: words have to do."""
        self._kept = kept
        self._evidence = evidence
        self._about = about
        """What a server is for, by its name."""
        self._before = before
        """Waited for before each search: servers may just be starting."""
        self._clock = clock
        self._search: Search | None = None
        self._seen: dict[str, tuple[Tool, Entry]] = {}
        self._checked = float("-inf")
        self._turn = asyncio.Lock()

    async def find(
        self, intent: str, *, limit: int, schemas: bool, context: Sequence[str] = ()
    ) -> Mapping[str, Any]:
        found = await self.ranked(intent, limit=limit, context=context)
        count, exact = counter()
        shown = [self._shown(one, schemas=schemas) for one in found]
        filled = fill(shown, lambda plain: cost_of(plain, count), self.budget.available)
        answer: dict[str, Any] = {
            "status": "complete",
            "tools": filled.chosen,
            "of": len(self._seen),
            "tokens": filled.tokens,
            "budget": {**self.budget.shown(), "exact": exact},
        }
        if filled.left_out:
            answer["left_out"] = [plain["id"] for plain in filled.left_out]
            answer["hint"] = "`left_out` did not fit; ask for names only, or for less at once"
        return answer

    async def ranked(self, intent: str, *, limit: int, context: Sequence[str] = ()) -> list[Found]:
        """The best tools first, whatever they cost."""
        await self._before()
        async with self._turn:
            if self._clock() - self._checked >= FRESH:
                await asyncio.to_thread(self._refresh)
                self._checked = self._clock()
            assert self._search is not None  # noqa: S101 - made by the first refresh
            return await asyncio.to_thread(self._search.find, intent, limit=limit, context=context)

    def costs(self, count: Count) -> dict[str, int]:
        """What every tool would cost if clients were shown all of them."""
        self._look()
        return {id: cost_of(described(tool), count) for id, (tool, _) in self._seen.items()}

    def _refresh(self) -> None:
        if self._search is None:
            from penstock.knowledge.search import Search

            self._search = Search(self._embedder(), kept=self._kept, evidence=self._evidence)
        self._look()
        self._search.update(entry for _, entry in self._seen.values())

    def _look(self) -> None:
        """See which tools there are; one that is the same as before costs nothing."""
        now: dict[str, tuple[Tool, Entry]] = {}
        for id in self._catalog.ids():
            try:
                tool = self._catalog.find(id)
            except PenstockError:
                continue  # refused until somebody approves it: nothing to offer
            about = self._about(id.partition(":")[0])
            before = self._seen.get(id)
            if before is not None and before[0] is tool and before[1].about == about:
                now[id] = before
            else:
                now[id] = (tool, entry_of(tool, about))
        self._seen = now

    def _shown(self, found: Found, *, schemas: bool) -> dict[str, Any]:
        tool = self._seen[found.id][0]
        if not schemas:
            return {"id": tool.id, "description": _first(tool.description), "score": found.score}
        return {**described(tool), "effect": tool.effect, "score": found.score}


def _first(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _BRIEF else f"{line[: _BRIEF - 1]}…"
