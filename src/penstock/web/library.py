"""The workflow files of a folder: which there are, and what each takes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.errors import DefinitionError, PenstockError, UnknownWorkflow
from penstock.workflow import read
from penstock.workflow.findings import did_you_mean

SUFFIXES: Final = (".yaml", ".yml")
LARGEST: Final = 1_000_000
MOST: Final = 1_000
"""Files that are listed."""

DEEPEST: Final = 6
PASSED_OVER: Final = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})
_STEPS: Final = re.compile(rb"^steps[ \t]*:", re.MULTILINE)
"""What tells a workflow from other files of the kind."""


class Library:
    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._known: dict[Path, tuple[tuple[int, int], dict[str, Any] | None]] = {}
        """By file: when it was changed and its size, and what it says; None when it is no workflow."""

    def lines(self) -> list[dict[str, Any]]:
        """Every workflow file, also those with mistakes in them, which are told."""
        found = [line for path in self._files() if (line := self._line(path)) is not None]
        return sorted(found, key=lambda line: line["file"])[:MOST]

    def path(self, name: str) -> Path:
        """The file that is meant: its path below the folder, with its ending or without."""
        files = {line["file"] for line in self.lines()}
        for given in (name, *(f"{name}{suffix}" for suffix in SUFFIXES)):
            if given in files:
                return self._folder / given
        raise UnknownWorkflow(name, did_you_mean(name, files) or "/api/workflows lists those that are served")

    def _files(self) -> Iterator[Path]:
        for place, folders, names in os.walk(self._folder):
            depth = len(Path(place).relative_to(self._folder).parts)
            folders[:] = [
                one for one in sorted(folders)
                if depth < DEEPEST and not one.startswith(".") and one not in PASSED_OVER
            ]  # fmt: skip
            for name in sorted(names):
                path = Path(place) / name
                if path.suffix in SUFFIXES and path.resolve().is_relative_to(self._folder):
                    yield path

    def _line(self, path: Path) -> dict[str, Any] | None:
        try:
            about = path.stat()
            mark = (about.st_mtime_ns, about.st_size)
            known = self._known.get(path)
            if known is None or known[0] != mark:
                known = self._known[path] = (mark, self._looked_at(path, about.st_size))
        except OSError:
            return None  # it went while we looked
        return known[1]

    def _looked_at(self, path: Path, size: int) -> dict[str, Any] | None:
        if size > LARGEST or not _STEPS.search(path.read_bytes()):
            return None
        file = str(path.relative_to(self._folder))
        line: dict[str, Any] = {"file": file, "name": path.stem, "description": "", "inputs": {}, "steps": 0}
        try:
            workflow = read.load(path).workflow
        except DefinitionError as error:
            return {
                **line,
                "hash": "",
                "problems": [_within(self._folder, str(one)) for one in error.problems],
            }
        except PenstockError as error:
            return {**line, "hash": "", "problems": [_within(self._folder, str(error))]}
        return {
            "file": file,
            "name": workflow.name,
            "description": workflow.description,
            "inputs": msgspec.to_builtins(dict(workflow.inputs)),
            "steps": len(workflow.steps),
            "hash": workflow.hash,
            "problems": [],
        }


def _within(folder: Path, text: str) -> str:
    """Nobody needs to know where on this machine the folder is."""
    return text.replace(f"{folder}{os.sep}", "")
