"""What may be said of an error to anyone: secrets, credentials and places on disk are taken out.

For messages, errors, traces and summaries; what a workflow computes (inputs, arguments,
outputs) is stored as it is. What helps is kept: file names, line numbers, the rest of the
sentence. Every pattern here runs in time proportional to the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import quote

GONE: Final = "***"
"""Stands where a secret was."""

ELSEWHERE: Final = "…"
"""Stands for the folders of a path."""

SHORTEST: Final = 8
"""Characters of a known secret. A shorter value ("yes", "5432") would be found everywhere."""

_ROUNDS = 8
"""What one round uncovers the next one masks; two are almost always enough."""


def mask(text: str, secrets: Iterable[str] = frozenset()) -> str:
    """The text without what would leak. Masking twice is masking once."""
    for secret in secrets:
        if secret in text:
            text = _without(text, secrets)
            break
    if "/" not in text and "\\" not in text and _plain(text.lower()):
        return text
    for _ in range(_ROUNDS):
        before, text = text, _once(text)
        if text == before:
            break
    return text


def secrets_in(environment: Mapping[str, str]) -> frozenset[str]:
    """The values of variables whose names say that they are secret, in every spelling they may turn up in."""
    values = {
        value.strip()
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and not name.upper().endswith(("_FILE", "_PATH", "_DIR", "_SOCK"))
    }
    long = {value for value in values if len(value) >= SHORTEST}
    return frozenset(spelt for value in long for spelt in (value, quote(value, safe=""), repr(value)[1:-1]))


def _without(text: str, secrets: Iterable[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):  # a secret may be part of another one
        text = text.replace(secret, GONE)
    return text


def _plain(low: str) -> bool:
    """Whether a text (in small letters, no slashes in it) holds nothing that any pattern starts from."""
    return not (
        "key" in low or "token" in low or "pass" in low or "secret" in low or "pwd" in low
        or "auth" in low or "cred" in low or "cookie" in low or "session" in low
        or "bearer" in low or "basic" in low or "eyj" in low or "begin " in low or "end " in low
        or "akia" in low or "asia" in low or "aiza" in low or "sg." in low or "ya29." in low
        or "-" in low or "_" in low
    )  # fmt: skip
