"""What the gateway needs of the rest of Penstock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from penstock.ids import RunId
from penstock.run.commands import Command
from penstock.run.state import Run
from penstock.store.base import Store
from penstock.tools.base import Catalog
from penstock.workflow.read import Source


class Live(Protocol):
    """A run that goes on in this process."""

    @property
    def id(self) -> RunId: ...

    @property
    def state(self) -> Run: ...

    def observe(self, observer: Callable[[Any], None]) -> None: ...

    async def send(self, command: Command) -> Any: ...


class Runs(Protocol):
    @property
    def store(self) -> Store: ...

    @property
    def tools(self) -> Catalog: ...

    async def start_with(self, flow: Source | Path, inputs: Mapping[str, Any]) -> Live: ...

    async def resume(self, id: str) -> Live: ...

    async def at(self, id: str) -> Run: ...

    def get(self, id: str) -> Live: ...


class Finder(Protocol):
    """Finds tools for an intent, within a budget of tokens."""

    async def find(self, intent: str, *, limit: int, schemas: bool) -> Mapping[str, Any]: ...
