"""The application: every route, errors in one shape, and who is let in.

Knows the runs by their ports alone; `penstock serve` gives it the real ones.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, FastAPI, Response
from fastapi.openapi.utils import get_openapi

from penstock.errors import PenstockError
from penstock.listening import Admission, Guarded, Hosts, serve
from penstock.web import decisions, runs
from penstock.web.bodies import Failure, Health, ToolList, WorkflowList
from penstock.web.desk import Desk, Route, written
from penstock.web.problems import answer_every_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

OPEN: Final = frozenset({"/healthz", "/openapi.json"})
"""What anyone on this machine may see."""

LARGEST: Final = 1_000_000
"""Bytes of a request's body."""

Fault = Callable[[Exception], None]
"""Is told of faults of ours, which clients are not."""


def application(desk: Desk) -> FastAPI:
    """Everything that is served, before anyone is kept out."""
    app = FastAPI(
        title="Penstock",
        version=desk.version,
        summary="Runs, their events, commands and decisions.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={"4XX": {"model": Failure, "description": "What is wrong, and what to do about it."}},
    )
    for part in (_rest(desk), runs.routes(desk), decisions.routes(desk)):
        app.include_router(part)
    answer_every_error(app, desk.runs.engine.clean)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]  # FastAPI's own way to do it
    return app


def guarded(desk: Desk, *, token: str, host: str, fault: Fault) -> ASGIApp:
    """The application behind its door."""
    admission = Admission(
        token=token,
        hosts=Hosts(host),
        said_by="penstock serve",
        is_open=OPEN.__contains__,
        in_query=lambda path: path.startswith("/api/runs/") and path.endswith("/events"),
        most=LARGEST,
    )
    return Guarded(_Unbroken(application(desk), fault), admission)


async def serve_api(desk: Desk, *, at: socket.socket, token: str, host: str, fault: Fault) -> None:
    """Serve until the desk's `stop` is set."""
    await serve(guarded(desk, token=token, host=host, fault=fault), at=at, stop=desk.stop)


class _Unbroken:
    """What went wrong was answered; here it is told to who runs the server, and goes no further."""

    def __init__(self, app: ASGIApp, fault: Fault) -> None:
        self._app = app
        self._fault = fault

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except (Exception, asyncio.CancelledError) as error:
            if scope["type"] != "http" or isinstance(error, asyncio.CancelledError):
                raise
            self._fault(error)


def _rest(desk: Desk) -> APIRouter:
    router = APIRouter(route_class=Route)

    @router.get("/healthz", responses={200: {"model": Health}}, tags=["service"])
    async def health() -> Response:
        """Whether the service answers."""
        return written({"status": "ok", "version": desk.version})

    @router.get("/api/workflows", responses={200: {"model": WorkflowList}}, tags=["workflows"])
    async def list_workflows() -> Response:
        """The workflow files of the folder that is served."""
        return written({"workflows": await asyncio.to_thread(desk.library.lines)})

    @router.get("/api/tools", responses={200: {"model": ToolList}}, tags=["tools"])
    async def list_tools() -> Response:
        """The tools that are known so far; servers that nobody has needed yet are not asked."""
        return written({"tools": _tools(desk)})

    return router


def _tools(desk: Desk) -> list[dict[str, Any]]:
    found = []
    for id in sorted(desk.runs.tools.ids()):
        try:
            tool = desk.runs.tools.find(id)
        except PenstockError:
            continue  # refused, or gone
        found.append(
            {
                "id": tool.id,
                "effect": tool.effect,
                "description": tool.description,
                "input_schema": tool.input_schema,
            }
        )
    return found


def _described(app: FastAPI) -> dict[str, Any]:
    """The description of the API, with the token and the commands in it."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes,
        )  # fmt: skip
        parts = schema["components"]
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        parts["schemas"] |= runs.command_schema()
        commands = [{"$ref": f"#/components/schemas/{name}"} for name in runs.command_names()]
        post = schema["paths"]["/api/runs/{run}/commands"]["post"]
        post["requestBody"]["content"]["application/json"]["schema"] = {"oneOf": commands}
        for path, item in schema["paths"].items():
            for operation in item.values():
                operation["security"] = [] if path in OPEN else [{"token": []}]
        app.openapi_schema = schema
    return app.openapi_schema
