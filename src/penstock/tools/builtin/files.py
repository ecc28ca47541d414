"""`files:*`: read, write and look for files within the allowed folders."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal

from penstock.tools.builtin.places import Outside, Places
from penstock.tools.functions import tool

MOST: Final = 10_000
"""Entries of one answer."""

_LINE: Final = 500


class Files:
    """Its methods are the tools."""

    def __init__(self, places: Places) -> None:
        self._places = places

    @tool(effect="read")
    def read(self, path: str, encoding: Literal["utf-8", "base64"] = "utf-8") -> dict[str, Any]:
        """Read a file: its text, or any bytes in base 64."""
        data = self._places.read(path)
        text = base64.b64encode(data).decode() if encoding == "base64" else self._places.read_text(path)
        return {"path": path, "bytes": len(data), "text": text}

    @tool(effect="idempotent")
    def write(
        self, path: str, content: str, encoding: Literal["utf-8", "base64"] = "utf-8"
    ) -> dict[str, Any]:
        """Write a file, replacing what was there; missing folders are made."""
        data = base64.b64decode(content, validate=True) if encoding == "base64" else content.encode()
        return {"path": str(self._places.write(path, data)), "bytes": len(data)}

    @tool(effect="write")
    def append(self, path: str, content: str) -> dict[str, Any]:
        """Add text to the end of a file."""
        place = self._places.resolve(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(place, flags, 0o666), "ab") as file:
            file.write(content.encode())
            size = file.tell()
        return {"path": str(place), "bytes": size}

    @tool(effect="destructive")
    def delete(self, path: str) -> dict[str, Any]:
        """Delete a file."""
        place = self._places.resolve(path)
        if not place.is_file():
            raise Outside(f"{path} is not a file")
        place.unlink()
        return {"path": path, "deleted": True}

    @tool(effect="read")
    def list_directory(self, path: str = ".") -> dict[str, Any]:
        """What is in a folder: the paths of its files and of its folders."""
        files: list[str] = []
        folders: list[str] = []
        for entry in sorted(self._places.resolve(path).iterdir()):
            shown = (Path(path) / entry.name).as_posix()
            try:
                self._places.resolve(shown)
            except Outside:
                continue  # a link that leads away
            (folders if entry.is_dir() else files).append(shown)
        return {"path": path, "files": files[:MOST], "folders": folders[:MOST]}

    @tool(effect="read")
    def search(
        self, path: str = ".", pattern: str = "*", text: str = "", limit: int = 1_000
    ) -> dict[str, Any]:
        """Find files by name (`*.md`), and lines in them that hold a text. Links are not followed."""
        limit = max(1, min(limit, MOST))
        found: list[dict[str, Any]] = []
        for shown in self._walk(path, pattern):
            found.extend(self._lines(shown, text) if text else [{"path": shown}])
            if len(found) > limit:
                break
        return {"matches": found[:limit], "more": len(found) > limit}

    def _walk(self, path: str, pattern: str) -> Iterator[str]:
        base = self._places.resolve(path)
        for folder, folders, names in os.walk(base):
            folders.sort()
            for name in sorted(names):
                inner = Path(folder, name).relative_to(base).as_posix()
                link = Path(folder, name).is_symlink()
                if not link and (fnmatchcase(name, pattern) or fnmatchcase(inner, pattern)):
                    yield (Path(path) / inner).as_posix()

    def _lines(self, path: str, text: str) -> Iterator[dict[str, Any]]:
        try:
            lines = self._places.read_text(path).splitlines()
        except (OSError, ValueError):
            return  # not a text, or not ours to read
        for n, line in enumerate(lines, start=1):
            if text in line:
                yield {"path": path, "line": n, "text": line[:_LINE]}
