"""`files:*`: read, write and look for files within the allowed folders."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal

from penstock.tools.builtin.places import Outside, Places, as_text
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
        text = base64.b64encode(data).decode() if encoding == "base64" else as_text(data, path)
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
        return {"path": path, "bytes": self._places.append(path, content.encode())}

    @tool(effect="destructive")
    def delete(self, path: str) -> dict[str, Any]:
        """Delete a file."""
        self._places.delete(path)
        return {"path": path, "deleted": True}

    @tool(effect="read")
    def list_directory(self, path: str = ".") -> dict[str, Any]:
        """What is in a folder: the paths of its files and of its folders."""
        files: list[str] = []
        folders: list[str] = []
        with self._places.opened(path) as handle:
            for entry in sorted(os.scandir(handle), key=lambda one: one.name):
                shown = (Path(path) / entry.name).as_posix()
                try:
                    inside = self._places.resolve(shown)
                except Outside:
                    continue  # a link that leads away
                is_folder = inside.is_dir() if entry.is_symlink() else entry.is_dir()
                (folders if is_folder else files).append(_legible(shown))
        more = len(files) > MOST or len(folders) > MOST
        return {"path": path, "files": files[:MOST], "folders": folders[:MOST], "more": more}

    @tool(effect="read")
    def search(
        self, path: str = ".", pattern: str = "*", text: str = "", limit: int = 1_000
    ) -> dict[str, Any]:
        """Find files by name (`*.md`), and lines in them that hold a text. Links are not followed."""
        limit = max(1, min(limit, MOST))
        found: list[dict[str, Any]] = []
        for shown in self._walk(path, pattern):
            found.extend(self._lines(shown, text) if text else [{"path": _legible(shown)}])
            if len(found) > limit:
                break
        return {"matches": found[:limit], "more": len(found) > limit}

    def _walk(self, path: str, pattern: str) -> Iterator[str]:
        with self._places.opened(path) as handle:
            for folder, folders, names, within in os.fwalk(dir_fd=handle):
                folders.sort()
                for name in sorted(names):
                    inner = Path(folder, name).as_posix()
                    fits = fnmatchcase(name, pattern) or fnmatchcase(inner, pattern)
                    if fits and not _leads_away(name, within):
                        yield (Path(path) / inner).as_posix()

    def _lines(self, path: str, text: str) -> Iterator[dict[str, Any]]:
        try:
            lines = self._places.read_text(path).splitlines()
        except (OSError, ValueError):
            return  # not a text, or not ours to read
        for n, line in enumerate(lines, start=1):
            if text in line:
                yield {"path": _legible(path), "line": n, "text": line[:_LINE]}


def _leads_away(name: str, folder: int) -> bool:
    """Whether it is a link, or has gone meanwhile."""
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
    except FileNotFoundError:
        return True


def _legible(path: str) -> str:
    """A path as text: a name that is none is shown, with marks where it cannot be read."""
    return os.fsencode(path).decode(errors="replace")
