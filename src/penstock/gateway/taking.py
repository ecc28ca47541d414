"""Runs that nobody drives are taken up once, however many callers want to go on with them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from penstock.errors import PenstockError, UnknownRun
from penstock.gateway import adhoc
from penstock.gateway.ports import Live, Runs
from penstock.ids import RunId
from penstock.run.state import Run
from penstock.store.base import Store
from penstock.tools.base import Catalog
from penstock.workflow.read import Source

UNFINISHED: Final = ("pending", "running", "paused")
MOST: Final = 10_000


class Taken:
    """The runs of a gateway."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def store(self) -> Store:
        return self._runs.store

    @property
    def tools(self) -> Catalog:
        return self._runs.tools

    async def start_with(self, flow: Source | Path, inputs: Mapping[str, Any]) -> Live:
        return await self._runs.start_with(flow, inputs)

    async def at(self, id: str) -> Run:
        return await self._runs.at(id)

    def get(self, id: str) -> Live:
        return self._runs.get(id)

    async def resume(self, id: str) -> Live:
        turn = self._turns.setdefault(id, asyncio.Lock())
        async with turn:
            try:
                return self._runs.get(id)  # whoever was first has taken it up
            except UnknownRun:
                return await self._runs.resume(id)

    async def take_up(self) -> None:
        """Go on with runs of callers that stopped with the process that drove them."""
        for status in UNFINISHED:
            for record in await self.store.runs(status=status, workflow=adhoc.NAME, limit=MOST):
                if not record.owner and record.parent is None:
                    await self._try(record.run)

    async def _try(self, run: RunId) -> None:
        try:
            await self.resume(run)
        except PenstockError:
            return  # another process is quicker, or its tools are not here
