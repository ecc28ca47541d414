"""Encryption at rest: AES-GCM over payloads, when there is a key.

The key itself never goes into the store, only a check that tells a wrong one at once. A
payload carries the number of the key that sealed it, so that keys can be rotated while
old payloads still open.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence

from penstock.errors import WrongKey

_MARK = b"\x00ps1"
"""No JSON begins with it: sealed and plain payloads tell themselves apart."""

_NONCE = 12


class Seal:
    """Seals with the first key, opens with any."""

    def __init__(self, keys: Sequence[str]) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._keys = {_name(key): AESGCM(_bytes(key)) for key in keys}
        self._first = _name(keys[0])

    @property
    def current(self) -> bytes:
        return self._first

    def seal(self, data: bytes) -> bytes:
        nonce = os.urandom(_NONCE)
        return _MARK + self._first + nonce + self._keys[self._first].encrypt(nonce, data, _MARK)

    def open(self, data: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        if not is_sealed(data):
            return data
        name, nonce, body = data[4:12], data[12 : 12 + _NONCE], data[12 + _NONCE :]
        key = self._keys.get(name)
        if key is None:
            raise WrongKey
        try:
            return key.decrypt(nonce, body, _MARK)
        except InvalidTag:
            raise WrongKey from None


class NoSeal:
    """No key: payloads are stored as they are, and sealed ones cannot be opened."""

    current = b""

    def seal(self, data: bytes) -> bytes:
        return data

    def open(self, data: bytes) -> bytes:
        if is_sealed(data):
            raise WrongKey
        return data


def is_sealed(data: bytes) -> bool:
    return data.startswith(_MARK)


def sealed_by(data: bytes) -> bytes:
    """The name of the key that sealed a payload; empty for a plain one."""
    return data[4:12] if is_sealed(data) else b""


def _bytes(key: str) -> bytes:
    """32 bytes from what a person can keep in an environment variable."""
    try:
        raw = base64.urlsafe_b64decode(key + "=" * (-len(key) % 4))
    except ValueError:
        raw = b""
    return (
        raw if len(raw) == 32 else hashlib.scrypt(key.encode(), salt=b"penstock", n=2**14, r=8, p=1, dklen=32)
    )


def _name(key: str) -> bytes:
    """A short name for a key that gives nothing away about it."""
    return hashlib.sha256(b"penstock key name" + _bytes(key)).digest()[:8]
