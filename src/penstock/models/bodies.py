"""The fields of an error body, whatever its shape. Nothing is concluded here.

Providers wrap the same few fields in different ways: an object, an array with one object, a bare
sentence, an error encoded as the message of another. A body that is none of these is a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

LARGEST: Final = 256 * 1024
"""Bytes. No error is longer; what is longer is read as text, and only its beginning."""

LONGEST: Final = 2_000
"""Characters of a message that are looked at."""

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
    if isinstance(whole, list):
        whole = next((part for part in whole if isinstance(part, dict)), None)
    if isinstance(whole, str):
        return ErrorBody(message=whole.strip()[:LONGEST])
    if not isinstance(whole, dict):
        return EMPTY
    error = whole.get("error")
    if isinstance(error, str) and error:
        return ErrorBody(codes=_codes(whole), message=error.strip()[:LONGEST])
    if not isinstance(error, dict):
        error = whole
    inner = _inner(error, depth - 1) if depth else EMPTY
    details = error.get("details")
    parts = [details] if isinstance(details, dict) else details if isinstance(details, list) else []
    codes = (*inner.codes, *_codes(error), *(_codes(whole) if error is not whole else ()))
    return ErrorBody(
        codes=tuple(dict.fromkeys(codes)),
        message=inner.message or _message(error),
        status=inner.status or _status(error),
        details=(*inner.details, *(part for part in parts if isinstance(part, dict))),
    )


def _inner(error: Mapping[str, Any], depth: int) -> ErrorBody:
    """The error inside this one: as a message that is JSON, or as what a gateway's provider said."""
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    for text in (raw, error.get("message")):
        if isinstance(text, str) and text.lstrip().startswith(("{", "[")):
            try:
                return _read(msgspec.json.decode(text), depth)
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
    inner = error.get("innererror")
    if isinstance(inner, dict):
        yield from _named(inner, "code")
    yield from _named(error, "code", "reason", "status", "__type", "type")


def _named(part: Mapping[str, Any], *names: str) -> Iterator[str]:
    for name in names:
        value = part.get(name)
        if isinstance(value, str) and value and value != "error":
            yield value.rpartition("#")[2]


def _message(error: Mapping[str, Any]) -> str:
    for name in ("message", "detail", "error_message"):
        value = error.get(name)
        if isinstance(value, str) and value:
            return value.strip()[:LONGEST]
    return ""


def _status(error: Mapping[str, Any]) -> int:
    code = error.get("code")
    if isinstance(code, str) and code.isascii() and code.isdecimal() and len(code) == 3:
        code = int(code)
    return code if isinstance(code, int) and 400 <= code < 600 else 0
