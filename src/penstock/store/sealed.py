"""Encryption at rest: AES-GCM over payloads, when there is a key.

The key itself never goes into the store. A payload carries the name of the key that sealed
it, so that a wrong key is told from damage, and keys can be rotated while old payloads
still open. What is sealed for one place (the row of a table that a key identifies) opens in no
other, and where there is a key, nothing opens that is not sealed: whoever can write to the
store, and has no key, can neither move payloads about nor slip in some of his own.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from penstock.errors import StoreError, WrongKey

MARK: Final = b"\x00ps1"
"""No JSON begins with it: sealed and plain payloads tell themselves apart."""

_NAME = 8
_NONCE = 12
"""Drawn at random, which stays safe for four thousand million payloads of one key."""

_HEAD = len(MARK) + _NAME
_RAW = re.compile(r"[A-Za-z0-9_\-]{43}=?|[A-Za-z0-9+/]{43}=?")
_HEX = re.compile(r"[0-9A-Fa-f]{64}")


class Seal:
    """Seals with the first key, opens with any."""

    def __init__(self, keys: Sequence[str], *, plain: bool = False) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        raw = [_bytes(key) for key in keys]
        self._keys = {_name(key): AESGCM(key) for key in raw}
        self.current = _name(raw[0])
        """The name of the key that seals."""
        self.names = frozenset({b"", *self._keys})
        """Of keys that open; the empty one stands for payloads that are not sealed."""
        self.plain = plain
        """Whether those may be read as well: while a store is being sealed."""
        self._damaged = (InvalidTag, ValueError)

    def seal(self, data: bytes, table: str, *row: object) -> bytes:
        nonce, place = os.urandom(_NONCE), _place(table, row)
        return MARK + self.current + nonce + self._keys[self.current].encrypt(nonce, data, place)

    def open(self, data: bytes, table: str, *row: object) -> bytes:
        if not is_sealed(data):
            if self.plain:
                return data
            raise StoreError(
                f"something in {table} is not sealed, so it was not written with this key; "
                "if sealing the store was cut short, `penstock rotate-key` goes on with it"
            )
        key = self._keys.get(sealed_by(data))
        if key is None:
            raise WrongKey
        nonce, body = data[_HEAD : _HEAD + _NONCE], data[_HEAD + _NONCE :]
        try:
            return key.decrypt(nonce, body, _place(table, row))
        except self._damaged:
            raise StoreError("a sealed payload is damaged, or is not where it was written") from None


class NoSeal:
    """No key: payloads are stored as they are, and sealed ones cannot be opened."""

    current = b""
    names = frozenset({b""})
    plain = True

    def seal(self, data: bytes, table: str, *row: object) -> bytes:  # noqa: ARG002 - a place says nothing here
        return data

    def open(self, data: bytes, table: str, *row: object) -> bytes:  # noqa: ARG002 - the same
        if is_sealed(data):
            raise WrongKey(given=False)
        return data


def seal_of(keys: Sequence[str], *, plain: bool = False) -> Seal | NoSeal:
    return Seal(keys, plain=plain) if keys else NoSeal()


def is_sealed(data: bytes) -> bool:
    return data.startswith(MARK)


def sealed_by(data: bytes) -> bytes:
    """The name of the key that sealed a payload; empty for a plain one."""
    return data[len(MARK) : _HEAD] if is_sealed(data) else b""


CHECK: Final = b"penstock"
CHECKED: Final = ("meta", "seal")
"""What a store keeps, and where, so that a wrong key is told before anything is written with it."""


def checked(seal: Seal | NoSeal, found: bytes) -> bool:
    """Whether what a store keeps may stay as it is. Raises when this key must not open the store."""
    if not (seal.plain or is_sealed(found)):
        raise StoreError(
            "the store is not sealed, and there is a key: seal it with `penstock rotate-key`, "
            "or leave PENSTOCK_KEY out"
        )
    if seal.open(found, *CHECKED) != CHECK:
        raise WrongKey
    return seal.plain or sealed_by(found) == seal.current


ONLY: Final = "key"
"""Where a store keeps the name of the one key that may seal, from the time on when it replaces all others."""


def admitted(seal: Seal | NoSeal, only: bytes) -> bool:
    """Whether that may stay as it is: who knows that key and seals with a newer one makes a new beginning."""
    if only != seal.current and (only not in seal.names or not (only or seal.plain)):
        raise rekeyed()
    return only == seal.current


def rekeyed() -> StoreError:
    return StoreError(
        "the key of the store was changed, or is being changed; set PENSTOCK_KEY to the new one, and restart"
    )


def _place(table: str, row: Sequence[object]) -> bytes:
    """Each part with its length: no two places look the same, whatever the names in them are."""
    parts = [str(part).encode("utf-8", "surrogatepass") for part in (table, *row)]
    return MARK + b"".join(b"%d:%b" % (len(part), part) for part in parts)


def new_key() -> str:
    """A key worth having: 32 random bytes, as text."""
    return base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")


def _read(path: str) -> str:
    return Path(path).expanduser().read_text(encoding="utf-8")


def keys_from(text: str, read: Callable[[str], str] = _read) -> tuple[str, ...]:
    """The keys that a setting names, the one that seals first.

    `KEY`, `KEY,OLDER,OLDEST`, or `file:PATH` in place of any of them: a file holds one key a
    line, and may hold comments (`#`).
    """
    keys: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        keys += _in_file(part.removeprefix("file:"), read) if part.startswith("file:") else [part]
    if text.strip() and not any(keys):
        raise StoreError(f"{text!r} names no key")  # better than storing everything unsealed
    return tuple(dict.fromkeys(key for key in keys if key))


def _in_file(path: str, read: Callable[[str], str]) -> list[str]:
    try:
        lines = [line.strip() for line in read(path).splitlines()]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise StoreError(f"the key file {path} cannot be read: {reason}") from None
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise StoreError(f"the key file {path} holds no key")
    return keys


@lru_cache(maxsize=16)
def _bytes(key: str) -> bytes:
    """32 bytes from what a person can keep in an environment variable.

    A key of `new_key` (or 64 hexadecimal digits) is taken as it is. Anything else is a passphrase
    and is stretched, which is slow on purpose: hence once in a process.
    """
    if _RAW.fullmatch(key):
        return base64.b64decode(key.rstrip("=").translate(_SAFE) + "=")
    if _HEX.fullmatch(key):
        return bytes.fromhex(key)
    return hashlib.scrypt(key.encode(errors="surrogateescape"), salt=b"penstock", n=2**14, r=8, p=1, dklen=32)


_SAFE = str.maketrans("-_", "+/")


def _name(key: bytes) -> bytes:
    """A short name for a key that gives nothing away about it."""
    return hashlib.sha256(b"penstock key name" + key).digest()[:_NAME]
