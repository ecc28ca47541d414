"""The workflow files of the folder that is served: those that callers may run by name.

Looked for when they are needed, so that a file which was just written is there. A file that is
not a workflow is not one of them, and nobody's trouble.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.errors import DefinitionError, PenstockError
from penstock.workflow.findings import did_you_mean
from penstock.workflow.read import load
from penstock.workflow.spec import Workflow

PLACES: Final = ("", "workflows")
"""Folders that are looked into, below the one that is served."""

MOST: Final = 500
LARGEST: Final = 1_000_000
"""Bytes of a file that is looked at."""


class Flow:
    """A workflow and the file it is in."""

    def __init__(self, path: Path, workflow: Workflow) -> None:
        self.path = path
        self.workflow = workflow

    @property
    def missing(self) -> list[str]:
        """Inputs that have to be given."""
        return [name for name, one in self.workflow.inputs.items() if one.required]


class Flows:
    def __init__(self, folder: Path | None) -> None:
        """Without a folder there are none."""
        self._folder = folder
        self._known: dict[Path, tuple[tuple[int, int], Flow | None]] = {}

    def all(self) -> list[Flow]:
        """In the order of their names."""
        found = {flow.workflow.name: flow for flow in self._look()}
        return [found[name] for name in sorted(found)]

    def path(self, name: str) -> Path:
        """The file of a workflow, or `PenstockError` with what there is instead."""
        flows = {flow.workflow.name: flow.path for flow in self.all()}
        if name in flows:
            return flows[name]
        hint = did_you_mean(name, flows)
        if not hint:
            hint = f"there are {', '.join(sorted(flows)[:20])}" if flows else "there are none here"
        raise PenstockError(f"there is no workflow {name!r}; {hint}")

    def _look(self) -> Iterator[Flow]:
        if self._folder is None:
            return
        left = MOST
        for place in PLACES:
            folder = self._folder / place
            for path in sorted(folder.glob("*.y*ml")) if folder.is_dir() else ():
                flow = self._read(path)
                if flow is not None:
                    yield flow
                left -= 1
                if not left:
                    return

    def _read(self, path: Path) -> Flow | None:
        try:
            stat = path.stat()
        except OSError:
            return None
        version = (stat.st_mtime_ns, stat.st_size)
        known = self._known.get(path)
        if known is None or known[0] != version:
            known = self._known[path] = (version, _flow(path) if stat.st_size <= LARGEST else None)
        return known[1]


def _flow(path: Path) -> Flow | None:
    try:
        return Flow(path, load(path).workflow)
    except DefinitionError:
        return None
