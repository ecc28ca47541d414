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

    def load(self) -> dict[str, Any]:
        try:
            found = msgspec.json.decode(self.path.read_bytes())
        except (OSError, msgspec.DecodeError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def save(self, value: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        try:
            with draft.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(value), indent=1))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
