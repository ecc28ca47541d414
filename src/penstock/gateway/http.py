"""The gateway over streamable HTTP: on this machine only, and only for who has the token.

Browsers are kept out by the checks of `Host` and `Origin`, other users of the machine by the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.gateway.handles import Handles
from penstock.gateway.service import Finder, Runs

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from penstock.gateway.server import Direct

PATH: Final = "/mcp"
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
PATIENCE: Final = 3
"""Seconds that open requests have to end when the server is to stop."""


def address_of(text: str) -> tuple[str, int]:
    """`HOST:PORT`, or only a port. Refuses what others could reach."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or LOOPBACK[0]
    if not port.isdecimal() or int(port) > 65_535:
        raise PenstockError(f"{text!r} is not an address; give HOST:PORT, such as 127.0.0.1:8321")
    if host not in LOOPBACK:
        raise PenstockError(f"{host} can be reached from outside; only {', '.join(LOOPBACK)} may be served")
    return host, int(port)


def kept_token(path: Path) -> str:
    """A token that stays the same, so that clients need to be told only once."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_urlsafe(24)
    try:
        place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return kept_token(path)  # another process was quicker
    with os.fdopen(place, "w", encoding="ascii") as file:
        file.write(token)
    return token


class Guarded:
    """Lets through only requests that carry the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._wanted):
                await _refuse(send)
                return
        await self._app(scope, receive, send)


async def _refuse(send: Send) -> None:
    headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    body = b"the token that `penstock mcp --http` printed is needed: Authorization: Bearer TOKEN\n"
    await send({"type": "http.response.body", "body": body})


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise PenstockError(f"{host}:{port} cannot be served: {error.strerror or error}") from None
    return made


async def serve_http(
    penstock: Runs,
    finder: Finder,
    handles: Handles,
    *,
    at: socket.socket,
    token: str,
    stop: asyncio.Event,
    version: str = "",
    direct: Direct | None = None,
) -> None:
    """Serve clients until `stop` is set. Runs go on whoever comes or goes."""
    import uvicorn

    from penstock.gateway.server import Gateway

    gateway = Gateway(penstock, finder, handles, version=version, direct=direct)
    app: Any = gateway.server.streamable_http_app(streamable_http_path=PATH, host="127.0.0.1")
    configuration = uvicorn.Config(
        Guarded(app, token),
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=PATIENCE,
    )

    class Server(uvicorn.Server):
        """Leaves signals to those who hear them already."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    server = Server(configuration)

    async def end() -> None:
        await stop.wait()
        server.should_exit = True

    async with asyncio.TaskGroup() as group:
        ending = group.create_task(end(), name="penstock-stop-http")
        taking = group.create_task(gateway.runs.take_up(), name="penstock-take-up")
        await server.serve(sockets=[at])
        ending.cancel()
        taking.cancel()
