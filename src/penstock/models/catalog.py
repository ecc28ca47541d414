"""Which providers are configured: from the variables that everyone uses already.

Takes the environment as a value and returns values. What was found can be shown, with the names of
the variables and never what is in them. Where nobody says which of a provider's models to use, the
table here does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import Problem
from penstock.models.endpoint import (
    AZURE,
    COMPLETIONS,
    GITHUB,
    KNOWN,
    OLLAMA,
    OPENAI,
    Endpoint,
    Secret,
    compatible,
    dated,
)
from penstock.models.proxies import is_http, proxy_for

AS_OF: Final = "2026-11-16"
"""When the names below were looked up in the providers' documentation. They change; tiers in a
configuration take their place."""

DEFAULTS: Final[Mapping[str, tuple[str, str]]] = {
    "openai": ("gpt-6.1-sol", "gpt-6.1-terra"),
    "anthropic": ("claude-opus-5-5", "claude-sonnet-5-5"),
    "gemini": ("gemini-pro-latest", "gemini-flash-latest"),
    "mistral": ("mistral-large-latest", "mistral-small-latest"),
    "deepseek": ("deepseek-flash", "deepseek-flash"),
    "groq": ("openai/gpt-oss-120b", "openai/gpt-oss-20b"),
    "openrouter": ("openrouter/auto", "openrouter/auto"),
    "github": ("openai/gpt-4.1", "openai/gpt-4.1-mini"),
}
"""The models of each kind of provider for the tiers `best` and `standard`, where no tier is configured."""

LOCAL: Final = "llama3.2"
"""Ollama's, for the tier `local`."""

BEST, STANDARD, NEAR = "best", "standard", "local"

OURS: Final = ("extractive",)
"""Providers that are always there."""

OWN: Final = "PENSTOCK_ENDPOINT_"
"""`PENSTOCK_ENDPOINT_LAB=http://…` and, where needed, `PENSTOCK_ENDPOINT_LAB_KEY`: one more, called `lab`."""


KEYS: Final = {
    "openai": "OPENAI_API_KEY",
    "azure": "AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT",
    "github": "GITHUB_TOKEN",
    "gemini": "GEMINI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "ollama": "OLLAMA_HOST",
    "groq": "GROQ_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "mistral": "MISTRAL_API_KEY",
}
"""What to set for each provider."""


class Found(Struct, frozen=True, kw_only=True):
    """A provider, and where we know it from."""

    endpoint: Endpoint
    variables: tuple[str, ...]

    def shown(self) -> dict[str, Any]:
        to = self.endpoint
        return {
            "provider": to.name,
            "kind": to.kind,
            "url": shown_url(to.base),
            "key": bool(to.key),
            "local": to.local,
            "embeddings": bool(to.embed),
            "from": list(self.variables),
        }


class Catalog(Struct, frozen=True, kw_only=True):
    found: tuple[Found, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Variables that were set and could not be used."""

    def endpoints(self) -> dict[str, Endpoint]:
        return {each.endpoint.name: each.endpoint for each in self.found}


def default_tiers(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Tiers of the models that are known for the providers found; no tier is empty.

    There is nothing to know about a server of one's own or about Azure, whose models are called as their
    owner pleases. `GITHUB_TOKEN` is for many things: only `GITHUB_MODELS_TOKEN` says that models are meant.
    """
    tiers: dict[str, list[str]] = {BEST: [], STANDARD: [], NEAR: []}
    for found in catalog.found:
        to = found.endpoint
        if to.kind == "ollama":
            tiers[NEAR].append(f"{to.name}/{LOCAL}")
        elif to.kind in DEFAULTS and to.name == to.kind and _meant(found):
            best, standard = DEFAULTS[to.kind]
            tiers[BEST].append(f"{to.name}/{best}")
            tiers[STANDARD].append(f"{to.name}/{standard}")
    return {name: tuple(models) for name, models in tiers.items() if models}


def _meant(found: Found) -> bool:
    to = found.endpoint
    if to.kind == "github":
        return "GITHUB_MODELS_TOKEN" in found.variables
    return to.kind != "openai" or urlsplit(to.base).hostname == urlsplit(OPENAI.base).hostname


def configured(environment: Mapping[str, str]) -> Catalog:
    """Everything that the environment says about providers."""
    look = _Look(environment)
    for kind, keys, urls in _USUAL:
        look.usual(kind, keys, urls)
    look.azure()
    look.github()
    look.ollama()
    for name in sorted(environment):
        if name.startswith(OWN) and not name.endswith("_KEY"):
            look.own(name)
    return Catalog(found=tuple(look.found), problems=tuple(look.problems))


_USUAL: Final = (
    ("openai", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL", "OPENAI_API_BASE")),
    ("gemini", ("GEMINI_API_KEY", "GOOGLE_API_KEY"), ("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL")),
    ("anthropic", ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), ("ANTHROPIC_BASE_URL",)),
    ("groq", ("GROQ_API_KEY",), ("GROQ_BASE_URL",)),
    ("openrouter", ("OPENROUTER_API_KEY",), ("OPENROUTER_BASE_URL",)),
    ("deepseek", ("DEEPSEEK_API_KEY",), ("DEEPSEEK_BASE_URL",)),
    ("mistral", ("MISTRAL_API_KEY",), ("MISTRAL_BASE_URL",)),
)
"""Kind, variables with the key, variables with the URL; the first that is set counts."""

_BEARER = frozenset({"ANTHROPIC_AUTH_TOKEN", "AZURE_OPENAI_AD_TOKEN"})
"""Tokens that go into `authorization`, wherever the provider's keys go."""

_PRINTABLE = re.compile(r"[!-~]+")
_VERSIONED = re.compile(r"/v\d+\w*$")
_NAMED = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class _Look:
    """One reading of an environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._env = environment
        self.found: list[Found] = []
        self.problems: list[Problem] = []

    def usual(self, kind: str, keys: tuple[str, ...], urls: tuple[str, ...]) -> None:
        key, url = self._first(*keys), self._first(*urls)
        if not key and not (url and kind == "openai"):  # a server of one's own often wants no key
            return
        to = KNOWN[kind]
        if url:
            base = self._url(url)
            if not base:
                return
            if kind == "gemini" and not _VERSIONED.search(base):
                base += "/v1beta"
            if kind == "anthropic":
                base = base.removesuffix("/v1")  # its paths begin with that
            own = kind == "openai" and urlsplit(base).hostname != urlsplit(OPENAI.base).hostname
            to = replace(COMPLETIONS, base=base, max_tokens="max_tokens") if own else replace(to, base=base)
        if kind == "openai":
            to = replace(to, headers=self._headers(OPENAI_HEADERS))
        self._add(to, key, url)

    def azure(self) -> None:
        key = self._first("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_KEY", "AZURE_OPENAI_AD_TOKEN")
        url = self._first("AZURE_OPENAI_ENDPOINT")
        if not (key and url):
            if key or url:
                missing = "AZURE_OPENAI_ENDPOINT" if key else "AZURE_OPENAI_API_KEY"
                self.problems.append(Problem(f"{key or url} is set and {missing} is not"))
            return
        base = self._url(url)
        if not base:
            return
        to = replace(AZURE, base=re.sub(r"/openai(/v1)?$", "", base))
        version = self._first("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION")
        if version and self._value(version) not in ("v1", "preview", "latest"):
            to = dated(to, self._value(version))
        self._add(to, key, url, version)

    def github(self) -> None:
        key = self._first("GITHUB_MODELS_TOKEN", "GITHUB_TOKEN")
        if not key:
            return
        url, org = self._first("GITHUB_MODELS_ENDPOINT"), self._first("GITHUB_MODELS_ORG")
        to = GITHUB
        if url:
            base = self._url(url)
            if not base:
                return
            to = replace(to, base=base.removesuffix("/inference"))
        if org:
            to = replace(
                to, chat=f"/orgs/{self._value(org)}{to.chat}", embed=f"/orgs/{self._value(org)}{to.embed}"
            )
        self._add(to, key, url, org)

    def ollama(self) -> None:
        url, key = self._first("OLLAMA_HOST"), self._first("OLLAMA_API_KEY")
        if url:
            base = self._url(url, text=_ollama_url(self._value(url)))
            if base:
                self._add(replace(OLLAMA, base=base, local=not base.startswith("https://")), key, url)
        elif key:
            self._add(replace(OLLAMA, base="https://ollama.com", local=False), key)

    def own(self, variable: str) -> None:
        name = variable.removeprefix(OWN).lower()
        if not _NAMED.fullmatch(name):
            self.problems.append(Problem(f"{variable} does not name a provider", "use letters and digits"))
        elif name in KNOWN or name in OURS:
            self.problems.append(
                Problem(f"{variable}: there is a provider {name} already", "give it another name")
            )
        elif base := self._url(variable):
            to = compatible(name, base, local=base.startswith("http://"))
            self._add(to, self._first(f"{variable}_KEY"), variable)

    def _add(self, to: Endpoint, key: str, *others: str) -> None:
        value = self._value(key) if key else ""
        if value and not _PRINTABLE.fullmatch(value):
            self.problems.append(Problem(f"{key} is not a key: it has spaces or other odd characters"))
            return
        if key in _BEARER:
            to = replace(to, auth="authorization", scheme="Bearer ")
        by, proxy = proxy_for(to.base, self._env)
        if proxy and not is_http(proxy):
            self.problems.append(Problem(f"{by} is not used for {to.name}: it is no HTTP proxy"))
            by = proxy = ""
        variables = tuple(name for name in (key, *others, by) if name)
        to = replace(to, key=Secret(value), proxy=Secret(proxy))
        self.found.append(Found(endpoint=to, variables=variables))

    def _first(self, *names: str) -> str:
        return next((name for name in names if self._env.get(name, "").strip()), "")

    def _value(self, name: str) -> str:
        return self._env[name].strip()

    def _headers(self, names: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
        found = {header: self._first(*variables) for header, variables in names.items()}
        return {header: self._value(name) for header, name in found.items() if name}

    def _url(self, name: str, text: str = "") -> str:
        """The URL in a variable without a slash at its end, or nothing and a problem."""
        url = (text or self._value(name)).rstrip("/")
        try:
            parts = urlsplit(url)
            fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
            fine = fine and "@" not in parts.netloc  # a key belongs where it can be kept secret
            fine = fine and not (parts.query or parts.fragment)  # paths are put behind it
        except ValueError:
            fine = False
        if not fine or not _PRINTABLE.fullmatch(url):
            self.problems.append(
                Problem(
                    f"{name} is not a URL to put paths behind",
                    "it begins with http:// or https://, and has no password and no ? in it",
                )
            )
            return ""
        return url


OPENAI_HEADERS: Final = {
    "openai-organization": ("OPENAI_ORG_ID", "OPENAI_ORGANIZATION"),
    "openai-project": ("OPENAI_PROJECT_ID", "OPENAI_PROJECT"),
}


def _ollama_url(host: str) -> str:
    """What Ollama itself takes: a host, a port, both, or a URL; an address to listen on is this machine."""
    scheme, given, rest = host.rpartition("://")
    place, _, path = rest.partition("/")
    if place.count(":") > 1 and not place.startswith("["):
        place = f"[{place}]"
    try:
        parts = urlsplit(f"{scheme or 'http'}://{place}")
        name, port = parts.hostname or "127.0.0.1", parts.port
    except ValueError:
        return host
    if "@" in place:
        return host
    if name in ("0.0.0.0", "::"):  # noqa: S104 - nobody listens here, and nobody can be called there
        name = "127.0.0.1"
    port = port if given or port is not None else 11434  # a URL has the port of its scheme
    where = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{where}{'' if port is None else f':{port}'}{'/' if path else ''}{path}"


def shown_url(url: str) -> str:
    """A URL without credentials or a query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"
