"""Which HTTP proxy stands between us and a provider: from the variables that other programs read, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

_HERE: Final = ("localhost", "::1")


def proxy_for(url: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """The variable that names a proxy for this URL, and the proxy; nothing where it is reached directly.

    This machine is never reached by way of another.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in _HERE or host.startswith("127."):
        return "", ""
    variable = _first(environment, f"{parts.scheme}_proxy", "all_proxy")
    if not variable or _excepted(host, parts.port, environment):
        return "", ""
    proxy = environment[variable].strip()
    return variable, proxy if "://" in proxy else f"http://{proxy}"


def is_http(proxy: str) -> bool:
    """Whether it is a proxy that can be used."""
    try:
        parts = urlsplit(proxy)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def _first(environment: Mapping[str, str], *names: str) -> str:
    spellings = (spelling for name in names for spelling in (name, name.upper()))
    return next((name for name in spellings if environment.get(name, "").strip()), "")


def _excepted(host: str, port: int | None, environment: Mapping[str, str]) -> bool:
    """Whether `no_proxy` names the host: itself, a domain that it is in, or everybody."""
    listed = environment.get(_first(environment, "no_proxy"), "")
    for one in filter(None, (each.strip().lower() for each in listed.split(","))):
        name, _, number = one.rpartition(":") if one.count(":") == 1 else (one, "", "")
        name = name.strip("[]").removeprefix("*").lstrip(".")
        if number and number != str(port):
            continue
        if one == "*" or host == name or (name and host.endswith(f".{name}")):
            return True
    return False
