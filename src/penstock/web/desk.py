"""What the routes share: the runs, who drives them, and how answers are written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute

from penstock.engines.base import Handle, Runs
from penstock.engines.pickup import PickUp
from penstock.errors import UnknownRun
from penstock.store.base import RunRecord
from penstock.store.listing import found
from penstock.tools.base import Catalog
from penstock.web.library import Library
from penstock.workflow.read import Source

_encode = msgspec.json.Encoder().encode


class Startable(Runs, Protocol):
    """Runs, and a way to begin one."""

    @property
    def tools(self) -> Catalog: ...

    async def start_with(self, flow: Source, inputs: Mapping[str, Any]) -> Handle: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    runs: Startable
    pick_up: PickUp
    """Drives what is started, answered or steered here."""
    library: Library
    stop: asyncio.Event
    """Set when the server is to stop; streams end then."""
    version: str = ""

    async def record(self, run: str) -> RunRecord:
        """The run of this id. What cannot be an id is not looked for."""
        if not run.isprintable():
            raise UnknownRun(run)
        return await found(self.runs.store, run)


def written(data: Any, status: int = 200) -> Response:
    """An answer. What is ours needs no checking, and may be large."""
    return Response(encoded(data), status, media_type="application/json")


def encoded(data: Any) -> bytes:
    try:
        return _encode(data)
    except (ValueError, OverflowError):  # text that is no Unicode, or a number that does not fit
        return json.dumps(msgspec.to_builtins(data)).encode()


class _Read(Request):
    """A request whose JSON is exactly that: no `NaN`, no halves of characters, nothing bottomless."""

    async def json(self) -> Any:
        text = await self.body()
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise json.JSONDecodeError(str(error), "", 0) from None


class Route(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Any]:
        handle = super().get_route_handler()

        async def read(request: Request) -> Response:
            response: Response = await handle(_Read(request.scope, request.receive))
            return response

        return read
