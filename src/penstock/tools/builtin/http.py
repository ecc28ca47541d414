"""`http:get`: fetch something from the public internet, and from nowhere else.

A name is resolved once and the connection goes to the address that was judged, so no second
answer of a name server can lead elsewhere; redirects are judged anew. Addresses of this machine
and of private networks are refused unless they are on a list. An address is taken apart by the
same code that will connect to it: two readers may disagree about where a host ends.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from penstock.tools.functions import tool

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from aiohttp.abc import ResolveResult
    from yarl import URL

LARGEST: Final = 5 * 1024 * 1024
REDIRECTS: Final = 5
TIMEOUT: Final = 20.0

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_LOCAL_NAT64: Final = ipaddress.ip_network("64:ff9b:1::/48")
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/javascript")


class Forbidden(ValueError):
    """This address is not to be reached from here."""


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet, also when it wraps another."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = _wrapped(found)
        if inner is not None:
            return is_public(str(inner))
        if found in _LOCAL_NAT64 or found.is_site_local:
            return False
    return found.is_global and not found.is_multicast and not found.is_reserved


def _wrapped(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The address of the older kind that this one leads to, if it does."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


def _spellings(address: str) -> tuple[str, ...]:
    """An address, and the one that it wraps: what is denied is denied in either."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return (address,)
    inner = _wrapped(found) if isinstance(found, ipaddress.IPv6Address) else None
    return (address, str(found)) if inner is None else (address, str(found), str(inner))


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """Which hosts may be asked for. Patterns such as `*.example.org`, with or without a port."""

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    """Names and addresses; outweighs the rest."""
    private: tuple[str, ...] = ()
    """`host`, `host:port`, an address or a network that may be reached although it is not public."""

    def judge_name(self, host: str, port: int) -> None:
        if _fits(host, port, self.deny) or not _fits(host, port, self.allow):
            raise Forbidden(f"{host} is not a host that http:get may ask for; see [tools.http]")

    def judge_address(self, host: str, port: int, address: str) -> None:
        """Whether one may connect to this address, under this name."""
        if any(_fits(one, port, self.deny) for one in _spellings(address)):
            raise Forbidden(f"{host} is {address}, which http:get may not ask; see [tools.http]")
        if is_public(address) or _fits(host, port, self.private) or self._excepted(address):
            return
        called = f"{host} is {address}, which" if host != address else host
        hint = "an exception can be made in [tools.http] private"
        raise Forbidden(f"{called} is not an address of the public internet ({hint})")

    def _excepted(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False  # written in a way that only the system understands
        return any(found in network for one in self.private if (network := _network(one)) is not None)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def _fits(host: str, port: int, patterns: Sequence[str]) -> bool:
    names = (host, f"{host}:{port}")
    return any(fnmatchcase(name, pattern.lower()) for name in names for pattern in patterns)


LookUp = Callable[[str, int, socket.AddressFamily], Awaitable[Sequence[Any]]]
"""Finds the addresses of a name, as `getaddrinfo` gives them."""


async def _look_up(host: str, port: int, family: socket.AddressFamily) -> Sequence[Any]:
    loop = asyncio.get_running_loop()
    return await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)


class Http:
    """Its method is the tool."""

    def __init__(self, hosts: Hosts | None = None, *, look_up: LookUp = _look_up) -> None:
        self._hosts = hosts or Hosts()
        self._look_up = look_up

    @tool(effect="read")
    async def get(self, url: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """Fetch a page: its status, headers and text (other bytes in base 64)."""
        import aiohttp

        connector = aiohttp.TCPConnector(resolver=self._resolver(), use_dns_cache=False)
        limits = aiohttp.ClientTimeout(total=TIMEOUT)
        try:
            async with aiohttp.ClientSession(
                connector=connector, timeout=limits, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()
            ) as session:
                return await self._follow(session, url, headers or {})
        except TimeoutError:
            raise ValueError(f"{url} did not answer within {TIMEOUT:g} s") from None
        except aiohttp.ClientError as error:
            cause = error.__cause__ or error
            raise (cause if isinstance(cause, Forbidden) else ValueError(f"{url}: {error}")) from None

    async def _follow(self, session: ClientSession, url: str, headers: dict[str, str]) -> dict[str, Any]:
        here = self._judged(url)
        for _ in range(REDIRECTS + 1):
            async with session.get(here, headers=headers, allow_redirects=False) as response:
                target = response.headers.get("Location")
                if response.status not in (301, 302, 303, 307, 308) or not target:
                    return await _answer(response, str(here))
            following = self._judged(target, here)
            if following.origin() != here.origin():
                headers = {}  # what was meant for one host is not told to another
            here = following
        raise ValueError(f"more than {REDIRECTS} redirects")

    def _judged(self, text: str, base: URL | None = None) -> URL:
        """An address, after what can be said of it before its name is resolved."""
        from yarl import URL

        try:
            url = URL(text) if base is None else base.join(URL(text))
            host, port = _plain(url.raw_host), url.port or 0
        except ValueError as error:
            raise Forbidden(f"{text!r} is not an address: {error}") from None
        if url.scheme not in ("http", "https") or not host:
            raise Forbidden(f"{text!r} is not an address of http or https")
        if url.user is not None or url.password is not None:
            raise Forbidden("an address with a password in it is not fetched")
        self._hosts.judge_name(host, port)
        if _is_literal(host):
            self._hosts.judge_address(host, port, host)
        return url

    def _resolver(self) -> Any:
        """Gives only addresses that one may connect to; the connection is made to them, not to a name."""
        from aiohttp.abc import AbstractResolver

        http = self

        class Resolver(AbstractResolver):
            async def resolve(
                self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
            ) -> list[ResolveResult]:
                return [http._result(host, port, one) for one in await http._look_up(host, port, family)]

            async def close(self) -> None:
                pass

        return Resolver()

    def _result(self, host: str, port: int, found: Any) -> ResolveResult:
        family, _, proto, _, where = found
        address = str(where[0])
        self._hosts.judge_address(_plain(host), port, address)
        return {
            "hostname": host, "host": address, "port": port, "family": family, "proto": proto,
            "flags": socket.AI_NUMERICHOST,
        }  # fmt: skip


def _plain(host: str | None) -> str:
    """A host in the one spelling that rules are compared with."""
    return (host or "").lower().rstrip(".")


def _is_literal(host: str) -> bool:
    """Whether no name server is asked; everything that only looks like an address counts, too."""
    return ":" in host or host.replace(".", "").isdigit()


async def _answer(response: ClientResponse, url: str) -> dict[str, Any]:
    body = bytearray()
    async for chunk in response.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > LARGEST:
            raise ValueError(f"{url} is larger than {LARGEST:,} bytes")
    kind = response.headers.get("Content-Type", "")
    result: dict[str, Any] = {"url": url, "status": response.status, "headers": dict(response.headers)}
    if kind.startswith(_TEXTS) or "+json" in kind or "+xml" in kind:
        return {**result, "text": _text(body, response.charset or "utf-8")}
    return {**result, "base64": base64.b64encode(body).decode()}


def _text(body: bytearray, charset: str) -> str:
    try:
        return body.decode(charset, errors="replace")
    except LookupError:  # a page may call its letters what it likes
        return body.decode(errors="replace")
