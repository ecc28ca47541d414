"""`http:get`: fetch something from the public internet, and from nowhere else.

A name is resolved once and the connection goes to the address that was judged, so no second
answer of a name server can lead elsewhere; redirects are judged anew. Addresses of this machine
and of private networks are refused unless they are on a list.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

from penstock.tools.functions import tool

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from aiohttp.abc import ResolveResult

LARGEST: Final = 5 * 1024 * 1024
REDIRECTS: Final = 5
TIMEOUT: Final = 20.0

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/javascript")


class Forbidden(ValueError):
    """This address is not to be reached from here."""


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet, also when it wraps another."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner: ipaddress.IPv4Address | None = None
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
    if inner is not None:
        return is_public(str(inner))
    return found.is_global and not found.is_multicast and not found.is_reserved


class Http:
    """Its method is the tool."""

    def __init__(self, allow: Collection[str] = ()) -> None:
        self._allow = frozenset(one.lower() for one in allow)
        """`host` or `host:port` that may be reached although they are not public."""

    @tool(effect="read")
    async def get(self, url: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """Fetch a page: its status, headers and text (other bytes in base 64)."""
        import aiohttp

        connector = aiohttp.TCPConnector(resolver=_judging(self), use_dns_cache=False)
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
        for _ in range(REDIRECTS + 1):
            self._judge(url)
            async with session.get(url, headers=headers, allow_redirects=False) as response:
                target = response.headers.get("Location")
                if response.status not in (301, 302, 303, 307, 308) or not target:
                    return await _answer(response, url)
            following = urljoin(url, target)
            if urlsplit(following).netloc != urlsplit(url).netloc:
                headers = {}  # what was meant for one host is not told to another
            url = following
        raise ValueError(f"more than {REDIRECTS} redirects")

    def _judge(self, url: str) -> None:
        """What can be said of an address before it is resolved."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise Forbidden(f"{url!r} is not an address: {error}") from None
        if parts.scheme not in ("http", "https") or not host:
            raise Forbidden(f"{url!r} is not an address of http or https")
        if parts.username is not None:
            raise Forbidden("an address with a password in it is not fetched")
        literal = host.replace(".", "").isdigit() or ":" in host
        if literal and not self.permitted(host, port or 0) and not is_public(host):
            raise Forbidden(f"{host} is not an address of the public internet")

    def permitted(self, host: str, port: int) -> bool:
        return host.lower() in self._allow or f"{host.lower()}:{port}" in self._allow


def _judging(http: Http) -> Any:
    """A resolver that gives only addresses one may connect to."""
    from aiohttp.abc import AbstractResolver

    class Resolver(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
            results: list[ResolveResult] = []
            for kind, _, proto, _, where in found:
                address = str(where[0])
                if not http.permitted(host, port) and not is_public(address):
                    raise Forbidden(f"{host} is {address}, which is not an address of the public internet")
                results.append(
                    {
                        "hostname": host, "host": address, "port": port, "family": kind, "proto": proto,
                        "flags": socket.AI_NUMERICHOST,
                    }
                )  # fmt: skip
            return results

        async def close(self) -> None:
            pass

    return Resolver()


async def _answer(response: ClientResponse, url: str) -> dict[str, Any]:
    body = bytearray()
    async for chunk in response.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > LARGEST:
            raise ValueError(f"{url} is larger than {LARGEST:,} bytes")
    kind = response.headers.get("Content-Type", "")
    result: dict[str, Any] = {"url": url, "status": response.status, "headers": dict(response.headers)}
    if kind.startswith(_TEXTS) or "+json" in kind or "+xml" in kind:
        return {**result, "text": body.decode(response.charset or "utf-8", errors="replace")}
    return {**result, "base64": base64.b64encode(body).decode()}
