"""Small files of ours in `.penstock/`: read whole, written whole, never half.

A file that cannot be read counts as empty: everything kept here can be found out again or
asked for again. Two processes that write at the same time leave one of the two versions.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Any, Protocol

import msgspec


class Keep(Protocol):
    """Where a value of JSON is kept."""

    def load(self) -> dict[str, Any]: ...

    def save(self, value: dict[str, Any]) -> None: ...


class MemoryKeep:
    def __init__(self) -> None:
        self._value: dict[str, Any] = {}

    def load(self) -> dict[str, Any]:
        return self._value

    def save(self, value: dict[str, Any]) -> None:
        self._value = value


class FileKeep:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] = ()
        self._found: dict[str, Any] = {}

    def load(self) -> dict[str, Any]:
        """What is there now. Asking again costs nothing while nobody has written."""
        try:
            seen = _stamp(self.path.stat())
            if seen != self._seen:
                found = msgspec.json.decode(self.path.read_bytes())
                self._found, self._seen = found if isinstance(found, dict) else {}, seen
        except (OSError, msgspec.DecodeError, RecursionError):
            self._found, self._seen = {}, ()
        return self._found

    def save(self, value: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        try:
            with draft.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(value), indent=1))
                file.flush()
                os.fsync(file.fileno())
                stamp = _stamp(os.fstat(file.fileno()))
            draft.replace(self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
        self._found, self._seen = value, stamp


def _stamp(about: os.stat_result) -> tuple[int, ...]:
    return about.st_ino, about.st_size, about.st_mtime_ns
