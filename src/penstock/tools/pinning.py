"""A tool is what it was when it was approved, or it is not called.

A server may show a harmless description until it is trusted, and another one afterwards. So the
definition of every tool is remembered when it is first seen; one that differs later waits until
a person has read the difference.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import unified_diff
from hashlib import sha256
from typing import Any, Final

from penstock.tools.keep import Keep
from penstock.tools.mcp.base import Definition

LARGEST: Final = 64 * 1024
"""Bytes of a definition that are kept to show a difference; of larger ones only the hash is."""


@dataclass(frozen=True, slots=True)
class Change:
    """A tool that is not what was approved."""

    id: str
    difference: str
    """As a unified diff of the two definitions."""


class Pins:
    """What was approved. Not approving anything new, it only ever refuses."""

    def __init__(self, keep: Keep, *, trusting: bool = False) -> None:
        self._keep = keep
        self._trusting = trusting
        """Take every tool as it is, and only remember what it was."""
        self._pins: dict[str, dict[str, Any]] | None = None
        self._changed: dict[str, tuple[Change, Definition]] = {}
        self.version = 0
        """Counts the times that what waits for approval has become something else."""

    @property
    def changes(self) -> list[Change]:
        """What waits for approval."""
        return [change for change, _ in self._changed.values()]

    def change(self, id: str) -> Change | None:
        found = self._changed.get(id)
        return found[0] if found else None

    def see(self, tools: Mapping[str, Definition]) -> list[Change]:
        """Compare tools with what was approved; those never seen before are approved as they are."""
        pins = self._load()
        fresh = False
        found = []
        before = {id: change.difference for id, (change, _) in self._changed.items()}
        for id, tool in tools.items():
            pin = pins.get(id)
            text = _text(tool)
            if pin is None or (self._trusting and pin.get("hash") != _hash(text)):
                pins[id] = _pin(text)
                fresh = True
            elif pin.get("hash") != _hash(text):
                change = Change(id, _difference(id, pin.get("definition", ""), text))
                self._changed[id] = (change, tool)
                found.append(change)
                continue
            self._changed.pop(id, None)
        if fresh:
            self._save()
        if before != {id: change.difference for id, (change, _) in self._changed.items()}:
            self.version += 1
        return found

    def approve(self, id: str) -> bool:
        """Take a tool as it is now. False when nothing was waiting."""
        found = self._changed.pop(id, None)
        if found is None:
            return False
        self._load()[id] = _pin(_text(found[1]))
        self.version += 1
        self._save()
        return True

    def _load(self) -> dict[str, dict[str, Any]]:
        if self._pins is None:
            kept = self._keep.load().get("tools", {})
            self._pins = {id: pin for id, pin in kept.items() if isinstance(pin, dict)}
        return self._pins

    def _save(self) -> None:
        self._keep.save({"version": 1, "tools": dict(sorted(self._load().items()))})


def _text(tool: Definition) -> str:
    """A definition in one order of keys, so that only what matters differs."""
    shown = {
        "description": tool.description,
        "input": tool.input_schema,
        "output": tool.output_schema,
        "annotations": tool.annotations,
    }
    return json.dumps(shown, indent=1, sort_keys=True, ensure_ascii=False)


def _pin(text: str) -> dict[str, Any]:
    return {"hash": _hash(text), "definition": text if len(text) <= LARGEST else ""}


def _hash(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def _difference(id: str, old: str, new: str) -> str:
    if not old or len(new) > LARGEST:
        return f"{id}: the definition is too large to show what changed in it"
    lines = unified_diff(
        old.splitlines(), new.splitlines(), f"{id} as approved", f"{id} now", lineterm="", n=1
    )
    return "\n".join(lines)
