"""Listening for HTTP: at which address, for whom, until when. Knows nothing of what is served.

Pages of other sites are kept out by the checks of `Host` and `Origin`, other users of the machine
by the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
PATIENCE: Final = 3
"""Seconds that open requests have to end when the server is to stop."""

UNREAD: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods whose requests have no body that anyone reads."""

_Paths = Callable[[str], bool]


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
    token = new_token()
    try:
        place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return kept_token(path)  # another process was quicker
    with os.fdopen(place, "w", encoding="ascii") as file:
        file.write(token)
    return token


def new_token() -> str:
    return secrets.token_urlsafe(24)


class Hosts:
    """The names by which we may be called. A name that somebody else points at us is none of them."""

    def __init__(self, host: str = LOOPBACK[0]) -> None:
        self._names = frozenset({*LOOPBACK, host.lower()})
        self._beyond = host not in LOOPBACK
        """Whether others may come, by any address that this machine has; no address is somebody's name."""
        if self._beyond:
            self._names |= {socket.gethostname().lower()}

    def ours(self, host: str) -> bool:
        """Whether this `Host`, with its port or without, is ours."""
        return self._known(f"//{host}")

    def ours_or_none(self, origin: str) -> bool:
        """The same for an `Origin`; programs send none."""
        return not origin or (origin.startswith(("http://", "https://")) and self._known(origin))

    def _known(self, url: str) -> bool:
        try:
            name = urlsplit(url).hostname or ""
            return name in self._names or (self._beyond and bool(ip_address(name)))
        except ValueError:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Who is let in."""

    token: str
    hosts: Hosts
    said_by: str
    """The command that printed the token."""
    is_open: _Paths = lambda _path: False
    """Paths that need no token."""
    in_query: _Paths = lambda _path: False
    """Paths where the token may stand in the address: for browsers, whose streams send no headers."""
    most: int | None = None
    """Bytes of a body; None: whoever is served looks after it."""


class Guarded:
    """Lets through only requests that are meant for us, from our own pages or programs, with the token."""

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self._app = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        wrong = self._refusal(scope, headers)
        if wrong is None and self._admission.most is not None and scope["method"] not in UNREAD:
            body = await _body(receive, headers, self._admission.most)
            wrong = _too_large(self._admission.most) if body is None else None
            receive = _again(body or b"", receive)
        if wrong is not None:
            await _refuse(send, *wrong)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Mapping[bytes, bytes]) -> tuple[int, dict[str, str]] | None:
        admission = self._admission
        if not admission.hosts.ours(headers.get(b"host", b"").decode("latin-1")):
            return 421, problem("wrong_host", "this is not the host that was asked for")
        if not admission.hosts.ours_or_none(headers.get(b"origin", b"").decode("latin-1")):
            return 403, problem("wrong_origin", "pages of other sites may not ask here")
        if not admission.is_open(scope["path"]) and not self._has_token(scope, headers):
            hint = f"Authorization: Bearer TOKEN, with the token that `{admission.said_by}` printed"
            return 401, problem("no_token", "the token is needed", hint)
        return None

    def _has_token(self, scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
        wanted = self._admission.token.encode()
        given = headers.get(b"authorization", b"")
        if hmac.compare_digest(given, b"Bearer " + wanted):
            return True
        if given or not self._admission.in_query(scope["path"]):
            return False
        query = parse_qs(scope["query_string"].decode("latin-1"))
        return hmac.compare_digest(query.get("token", [""])[0].encode(), wanted)


def problem(type: str, message: str, hint: str = "") -> dict[str, str]:
    """What is wrong with a request, as every answer says it."""
    return {"type": type, "message": message, "hint": hint}


def _too_large(most: int) -> tuple[int, dict[str, str]]:
    return 413, problem("too_large", f"the body is too large; {most:,} bytes are allowed")


async def _body(receive: Receive, headers: Mapping[bytes, bytes], most: int) -> bytes | None:
    """All of the body; None when it is too large, which is found out without reading it all."""
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and int(length) > most:
        return None
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            return None
        if message["type"] != "http.request" or not message.get("more_body", False):
            return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """A body that was read, to be read by whoever is served."""
    given = False

    async def once() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once


async def _refuse(send: Send, status: int, wrong: Mapping[str, str]) -> None:
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"error": wrong}).encode()})


def bound(host: str, port: int) -> socket.socket:
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


def url_of(host: str, place: socket.socket) -> str:
    """Where a socket is reached."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{place.getsockname()[1]}"


async def serve(app: Any, *, at: socket.socket, stop: asyncio.Event) -> None:
    """Serve an application until `stop` is set."""
    import uvicorn

    class Server(uvicorn.Server):
        """Leaves signals to those who hear them already."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    server = Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=PATIENCE,
        )
    )

    async def end() -> None:
        await stop.wait()
        server.should_exit = True

    async with asyncio.TaskGroup() as group:
        ending = group.create_task(end(), name="penstock-stop-http")
        await server.serve(sockets=[at])
        ending.cancel()
