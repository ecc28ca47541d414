"""The fields of an error body, whatever its shape. Nothing is concluded here.

Providers wrap the same few fields in different ways: an object, an array with one object, a bare
sentence, an error encoded as the message of another, what a gateway passes on. A body that is none
of these is a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

LARGEST: Final = 256 * 1024
"""Bytes. No error is longer; what is longer is read as text, and only its beginning."""

LONGEST: Final = 2_000
"""Characters of a message that are looked at."""

_FIGURE: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)

_DEPTH = 3
"""Errors inside errors: a gateway's, its provider's, and no more."""


class ErrorBody(Struct, frozen=True, kw_only=True):
    """What a provider said, field by field."""

    codes: tuple[str, ...] = ()
    """In small letters, the most specific first: `error_code`, `reason`, `code`, `status`, `type`."""
    message: str = ""
    status: int = 0
    """A number of HTTP inside the body: gateways answer 200 and say it here."""
    details: tuple[Mapping[str, Any], ...] = ()
    """`google.rpc` details and their likes."""
    wait: float | None = None
    """Seconds to stay away, where a field says so."""
    headers: Mapping[str, str] = {}
    """Headers of the provider behind a gateway, which passes them on in the body."""


EMPTY: Final = ErrorBody()


def read(body: bytes) -> ErrorBody:
    """Never raises: a body that makes no sense is one without fields."""
    if len(body) > LARGEST:
        return ErrorBody(message=_text(body[: 4 * LONGEST]))
    try:
        whole = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ErrorBody(message=_text(body[: 4 * LONGEST]))
    return _read(whole, _DEPTH)


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace").strip()[:LONGEST]


def _read(whole: Any, depth: int) -> ErrorBody:
    whole = _first(whole)
    if isinstance(whole, str):
        return ErrorBody(message=whole.strip()[:LONGEST])
    if not isinstance(whole, dict):
        return EMPTY
    error = next((_first(whole[name]) for name in ("error", "errors", "detail") if whole.get(name)), None)
    if isinstance(error, str):
        return ErrorBody(codes=_codes(whole), message=error.strip()[:LONGEST], status=_status(whole))
    if not isinstance(error, dict):
        error = whole
    inner = _inner(error, depth - 1) if depth else EMPTY
    metadata = error.get("metadata")
    details = error.get("details")
    parts = [details] if isinstance(details, dict) else details if isinstance(details, list) else []
    codes = (*inner.codes, *_codes(error), *(_codes(whole) if error is not whole else ()))
    return ErrorBody(
        codes=tuple(dict.fromkeys(codes)),
        message=inner.message or _message(error),
        status=inner.status or _status(error),
        details=(*inner.details, *(part for part in parts if isinstance(part, dict))),
        wait=inner.wait or _wait(error) or _wait(whole),
        headers={**_headers(metadata), **inner.headers},
    )


def _first(value: Any) -> Any:
    """The value, or the first of a list that is something to read."""
    if isinstance(value, list):
        return next((part for part in value if isinstance(part, dict | str)), None)
    return value


def _inner(error: Mapping[str, Any], depth: int) -> ErrorBody:
    """The error inside this one: as what a gateway's provider said, or as a message that is JSON."""
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    for said in (raw, error.get("error"), error.get("message")):
        if isinstance(said, dict):
            return _read(said, depth)
        if isinstance(said, str) and said.lstrip().startswith(("{", "[")):
            try:
                return _read(msgspec.json.decode(said), depth)
            except (msgspec.DecodeError, RecursionError):
                continue
    return EMPTY


def _codes(error: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(code.lower() for code in _strings(error) if len(code) <= 100)


def _strings(error: Mapping[str, Any]) -> Iterator[str]:
    """Every field that names what went wrong, the most specific first."""
    details = error.get("details")
    for part in details if isinstance(details, list) else [details]:
        if isinstance(part, dict):
            yield from _named(part, "error_code", "reason")
    for name in ("innererror", "inner_error"):
        if isinstance(inner := error.get(name), dict):
            yield from _named(inner, "code")
    if isinstance(metadata := error.get("metadata"), dict):
        yield from _named(metadata, "limit_source", "error_type")
        if metadata.get("flagged_input") is not None:
            yield "flagged_input"
    yield from _named(error, "code", "reason", "status", "__type", "type")


def _named(part: Mapping[str, Any], *names: str) -> Iterator[str]:
    for name in names:
        value = part.get(name)
        if isinstance(value, str) and value and value != "error":
            yield value.rpartition("#")[2]


def _message(error: Mapping[str, Any]) -> str:
    for name in ("message", "detail", "error_message", "msg"):
        value = error.get(name)
        if isinstance(value, str) and value:
            return value.strip()[:LONGEST]
    return ""


def _status(error: Mapping[str, Any]) -> int:
    for name in ("code", "status", "status_code", "statusCode"):
        code = error.get(name)
        if isinstance(code, str) and code.isascii() and code.isdecimal() and len(code) == 3:
            code = int(code)
        if isinstance(code, int) and 400 <= code < 600:
            return code
    return 0


_WAITS: Final = (
    ("retry_after_ms", 1_000.0),
    ("retryAfterMs", 1_000.0),
    ("retry_after", 1.0),
    ("retryAfter", 1.0),
)


def _wait(error: Mapping[str, Any]) -> float | None:
    """A field with a length of time. Nothing, or less than nothing, means that nobody knows."""
    for name, parts in _WAITS:
        value = error.get(name)
        if isinstance(value, str) and _FIGURE.fullmatch(value.strip()):
            value = float(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9:
            return value / parts
    return None


def _headers(metadata: Any) -> dict[str, str]:
    found = metadata.get("headers") if isinstance(metadata, dict) else None
    if not isinstance(found, dict):
        return {}
    return {name.lower(): str(value) for name, value in found.items() if isinstance(value, str | int | float)}
