"""Where tools may read and write: folders that were allowed, and nothing that a path leads out of them.

A path is judged by where it ends after every link is followed. What is opened is opened by that
final path, never through a link, and only if it is an ordinary file.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a file that is read into a result."""


class Outside(ValueError):
    """The path leads out of the allowed folders."""


class Places:
    """The allowed folders. A relative path starts in the first."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self.roots = tuple(Path(root).resolve() for root in roots)

    def resolve(self, path: str) -> Path:
        """The place that a path means, or `Outside`."""
        if "\0" in path:
            raise Outside("a path has no zero bytes")
        if not self.roots:
            raise Outside("no folder is allowed")
        try:
            found = (self.roots[0] / path).resolve()
        except (OSError, RuntimeError) as error:  # a circle of links
            raise Outside(f"{path}: {error}") from None
        if not any(found.is_relative_to(root) for root in self.roots):
            raise Outside(f"{path} is outside of the allowed folders")
        return found

    def read(self, path: str) -> bytes:
        """The contents of an ordinary file."""
        place = self.resolve(path)
        handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise Outside(f"{path} is not a file")
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ValueError(f"{path} is larger than {LARGEST:,} bytes")
        return data

    def read_text(self, path: str) -> str:
        try:
            return self.read(path).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 (byte {error.start})") from None

    def write(self, path: str, data: bytes) -> Path:
        """Put a whole file in its place at once; nobody ever sees half of it."""
        place = self.resolve(path)
        if place.exists() and not place.is_file():
            raise Outside(f"{path} is not a file")
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(f".{secrets.token_hex(6)}.part")
        try:
            draft.write_bytes(data)
            draft.replace(place)
        finally:
            draft.unlink(missing_ok=True)
        return place
