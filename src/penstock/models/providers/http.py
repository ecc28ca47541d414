"""One HTTP session for all providers, opened at first use; the only file that knows aiohttp's client.

Whatever goes wrong on the way comes out as a `Fault`: what cannot be reached is `transport`, what is
late is `timeout`. Nothing is followed elsewhere: a redirect would carry our key to a stranger.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from penstock.models.errors import Fault, late, unreachable

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

LARGEST: Final = 32 * 1024 * 1024
"""Bytes of a response. Whoever sends more is not answering a question."""

CONNECT: Final = 10.0
"""Seconds for a connection to come about."""

PATIENCE: Final = 2.0
"""Seconds for the body of an error whose status is known."""


class Broken(Exception):
    """The exchange came to nothing."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Timing:
    """When an exchange began, by when it must have got somewhere, and when it did."""

    __slots__ = ("begun", "deadline", "first", "first_byte", "idle")

    def __init__(self, *, total: float, first: float | None = None, idle: float | None = None) -> None:
        self.begun = asyncio.get_running_loop().time()
        self.deadline = self.begun + total
        self.first = self.deadline if first is None else min(self.deadline, self.begun + first)
        self.idle = idle
        self.first_byte = 0.0
        """Seconds it took; 0 while there was none."""

    def heard(self) -> None:
        if not self.first_byte:
            self.first_byte = asyncio.get_running_loop().time() - self.begun

    def hurry(self, seconds: float) -> None:
        """Not much longer."""
        self.deadline = min(self.deadline, asyncio.get_running_loop().time() + seconds)
        self.first = min(self.first, self.deadline)

    @property
    def took(self) -> float:
        return asyncio.get_running_loop().time() - self.begun

    @property
    def next(self) -> float:
        """By when the next piece must be there."""
        if not self.first_byte:
            return self.first
        if self.idle is None:
            return self.deadline
        return min(self.deadline, asyncio.get_running_loop().time() + self.idle)

    def complaint(self) -> str:
        if not self.first_byte:
            return f"no answer began within {self.took:.3g} s"
        if asyncio.get_running_loop().time() < self.deadline:
            return f"the answer stalled for {self.idle:.3g} s"
        return f"the answer did not end within {self.deadline - self.begun:.3g} s"


class Reply:
    """A response whose body is still on its way."""

    def __init__(self, response: ClientResponse, timing: Timing) -> None:
        self._response = response
        self._timing = timing
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    async def body(self) -> bytes:
        """All of it; more than `LARGEST` is refused without being read."""
        size = self._response.content_length
        if size is not None and size > LARGEST:
            raise Broken(_too_large())
        parts = [piece async for piece in self.pieces()]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def start(self, most: int = 256 * 1024) -> bytes:
        """Its beginning, for a message: as much as comes soon and before the limit or the end of the line."""
        self._timing.hurry(PATIENCE)
        found = b""
        try:
            async for piece in self.pieces():
                found += piece
                if len(found) >= most:
                    break
        except Broken:
            pass
        return found[:most]

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes."""
        content, timing, size = self._response.content, self._timing, 0
        while True:
            with _translated(timing):
                if content.is_eof():  # all of it is here: mostly so, and then there is nothing to time
                    piece = content.read_nowait()
                else:
                    async with asyncio.timeout_at(timing.next):
                        piece = await content.readany()
            if not piece:
                return
            timing.heard()
            size += len(piece)
            if size > LARGEST:
                raise Broken(_too_large())
            yield piece


class Http:
    """Use it as `async with Http() as http`, or close it at the end."""

    def __init__(self) -> None:
        self._session: ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None and self._loop is asyncio.get_running_loop():
            await session.close()

    def timing(self, *, total: float, first: float | None = None, idle: float | None = None) -> Timing:
        """The times of an exchange that begins now; what the first one imports is not counted in it."""
        self._opened()
        return Timing(total=total, first=first, idle=idle)

    def _opened(self) -> ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

            # How much runs at once is decided by bulkheads, and how long it may take by the request.
            self._session = ClientSession(
                connector=TCPConnector(limit=0, keepalive_timeout=15.0, ttl_dns_cache=60),
                timeout=ClientTimeout(total=None, sock_connect=CONNECT),
                cookie_jar=DummyCookieJar(),
                headers={"user-agent": "penstock"},
            )
            self._loop = loop
        return self._session

    @asynccontextmanager
    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        timing: Timing,
        proxy: str = "",
    ) -> AsyncIterator[Reply]:
        """Send a request, and read the reply while the block lasts."""
        with _translated(timing):
            async with asyncio.timeout_at(timing.first):
                response = await self._opened().request(
                    method, url, headers=headers, data=body, allow_redirects=False, proxy=proxy or None
                )
        try:
            yield Reply(response, timing)
        finally:
            response.close()  # gives the connection back where all was read, and drops it otherwise


@contextmanager
def _translated(timing: Timing) -> Iterator[None]:
    """What aiohttp and the clock raise, as a fault."""
    try:
        yield
    except TimeoutError:
        raise Broken(late(timing.complaint())) from None
    except Exception as error:
        from aiohttp import ClientError

        if isinstance(error, ValueError):  # InvalidURL is one
            message = "it cannot be sent: the URL or a header is not one"
            fault = Fault(kind="bad_request", action="fail", message=message)
        elif isinstance(error, ClientError | OSError):
            fault = unreachable(_words(error, begun=bool(timing.first_byte)))
        else:
            raise
        raise Broken(fault) from None


def _words(error: Exception, *, begun: bool) -> str:
    if begun:
        return "the connection broke in the middle of the answer"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _too_large() -> Fault:
    return Fault(
        kind="server_error",
        action="fail_over",
        message=f"the response is larger than {LARGEST // 1024 // 1024} MB",
    )
