"""What a provider's language is: how a request is said, and what an answer means.

A dialect is pure: values in, bytes out, and back. Connections, clocks and keys are not its concern,
so each can be read beside the provider's reference and tested without a server.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from penstock.models.base import Chunk, Finish, Request, ToolCall, Usage
from penstock.models.endpoint import Endpoint


class Post(Struct, frozen=True):
    """Something to be posted."""

    url: str
    body: bytes


class Said(Struct, frozen=True, kw_only=True):
    """What a response says, in our words."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    finish: Finish = "stop"
    model: str = ""
    refused: str = ""
    """The provider's word for why it would not say more."""


class InBand(Exception):
    """An error that arrived as if it were an answer."""

    def __init__(self, error: Any) -> None:
        super().__init__("an error in the place of an answer")
        self.error = error


class Listener(Protocol):
    """Follows one stream."""

    @property
    def complete(self) -> bool:
        """Whether the provider has said that this was all; its account of tokens may follow."""
        ...

    @property
    def over(self) -> bool:
        """Whether nothing at all will follow."""
        ...

    @property
    def usage(self) -> Usage:
        """The account of tokens, as far as it has been given."""
        ...

    def hear(self, message: bytes) -> Sequence[Chunk]: ...

    def said(self) -> Said: ...


class Dialect(Protocol):
    @property
    def events(self) -> bool:
        """Streams are server-sent events; otherwise a JSON value a line."""
        ...

    def ask(self, to: Endpoint, model: str, request: Request, *, stream: bool) -> Post: ...

    def answer(self, body: bytes) -> Said:
        """What a response says. Raises `InBand`, or `msgspec.DecodeError` where it is no answer at all."""
        ...

    def listener(self) -> Listener: ...

    def embed(self, to: Endpoint, model: str, texts: Sequence[str]) -> Post: ...

    def vectors(self, body: bytes) -> tuple[Sequence[Sequence[float]], Usage]: ...


def post(to: Endpoint, path: str, model: str, body: Mapping[str, Any], **query: str) -> Post:
    return Post(place(to, path, model, **query), msgspec.json.encode(body))


def place(to: Endpoint, path: str, model: str = "", **query: str) -> str:
    asked = {**to.query, **query}
    tail = "?" + urlencode(asked) if asked else ""
    return to.base.rstrip("/") + path.replace("{model}", quote(model, safe="")) + tail


def names_in(body: bytes) -> list[str]:
    """The models in a list of models, whoever lists them; nothing where it is no such list."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return []
    if isinstance(found, dict):
        found = found.get("data") or found.get("models")
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    names = [row.get("id") or row.get("name") for row in rows]
    return [name.removeprefix("models/") for name in names if isinstance(name, str)]


def new_id() -> str:
    """An id for a tool call whose provider gives none: no two in a conversation may be the same."""
    return f"call_{secrets.token_hex(6)}"
