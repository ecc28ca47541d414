"""A tool is what it was when it was approved, or it is not called.

A server may show a harmless description until it is trusted, and another one afterwards. So the
definition of every tool is remembered when it is first seen; one that differs later waits until
a person has read the difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from hashlib import sha256
from typing import Any, Final

import msgspec

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


@dataclass(frozen=True, slots=True)
class _Waiting:
    change: Change
    tool: Definition
    hash: str


class Pins:
    """What was approved. Not approving anything new, it only ever refuses."""

    def __init__(self, keep: Keep, *, trusting: bool = False) -> None:
        self._keep = keep
        self._trusting = trusting
        """Take every tool as it is, and only remember what it was."""
        self._pins: dict[str, dict[str, Any]] | None = None
        self._changed: dict[str, _Waiting] = {}
        self._version = 0

    @property
    def changes(self) -> list[Change]:
        """What waits for approval."""
        return [change for id in list(self._changed) if (change := self.change(id)) is not None]

    @property
    def version(self) -> int:
        """Counts the times that what waits for approval has become something else."""
        if self._changed:
            _ = self.changes  # approved in another process meanwhile, perhaps
        return self._version

    def change(self, id: str) -> Change | None:
        """What became of a tool; None also when somebody has approved it meanwhile, in another process."""
        found = self._changed.get(id)
        if found is None:
            return None
        pin = self._kept().get(id)
        if not isinstance(pin, dict) or pin.get("hash") != found.hash:
            return found.change
        self._load()[id] = pin
        self._changed.pop(id, None)
        self._version += 1
        return None

    def see(self, tools: Mapping[str, Definition]) -> list[Change]:
        """Compare tools with what was approved; those never seen before are approved as they are."""
        pins = self._load()
        fresh: list[str] = []
        found = []
        before = {id: waiting.hash for id, waiting in self._changed.items()}
        for id, tool in tools.items():
            pin = pins.get(id)
            if not _is(tool, pin):
                text = _text(tool)
                if pin is not None and not self._trusting:
                    change = Change(id, _difference(id, pin.get("definition", ""), text))
                    self._changed[id] = _Waiting(change, tool, _hash(text))
                    found.append(change)
                    continue
                pins[id] = _pin(text)
                fresh.append(id)
            self._changed.pop(id, None)
        if fresh:
            self._save(fresh)
        if before != {id: waiting.hash for id, waiting in self._changed.items()}:
            self._version += 1
        return found

    def approve(self, id: str) -> bool:
        """Take a tool as it is now. False when nothing was waiting."""
        found = self._changed.pop(id, None)
        if found is None:
            return False
        self._load()[id] = _pin(_text(found.tool))
        self._version += 1
        self._save([id])
        return True

    def _load(self) -> dict[str, dict[str, Any]]:
        if self._pins is None:
            self._pins = self._read()
        return self._pins

    def _read(self) -> dict[str, dict[str, Any]]:
        return {id: pin for id, pin in self._kept().items() if isinstance(pin, dict)}

    def _kept(self) -> dict[str, Any]:
        kept = self._keep.load().get("tools")
        return kept if isinstance(kept, dict) else {}

    def _save(self, ids: Iterable[str]) -> None:
        """Write down some pins, and leave the others as they are there: another process may know better."""
        pins = self._load()
        kept = {**self._read(), **{id: pins[id] for id in ids}}
        self._keep.save({"version": 1, "tools": dict(sorted(kept.items()))})


def _is(tool: Definition, pin: Any) -> bool:
    """Whether a tool is what a pin says."""
    known = pin.get("hash") if isinstance(pin, dict) else None
    return known is not None and (known == _quick_hash(tool) or known == _hash(_text(tool)))


def _quick_hash(tool: Definition) -> str:
    """The hash of `_text`, eight times as fast; another one where the two write a number differently."""
    try:
        plain = msgspec.json.encode(_shown(tool), order="sorted")
    except (TypeError, ValueError, RecursionError):
        return ""
    return sha256(msgspec.json.format(plain, indent=1)).hexdigest()


def _text(tool: Definition) -> str:
    """A definition in one order of keys, so that only what matters differs."""
    return json.dumps(_shown(tool), indent=1, sort_keys=True, ensure_ascii=False)


def _shown(tool: Definition) -> dict[str, Any]:
    return {
        "description": tool.description,
        "input": tool.input_schema,
        "output": tool.output_schema,
        "annotations": tool.annotations,
    }


def _pin(text: str) -> dict[str, Any]:
    return {"hash": _hash(text), "definition": text if len(text) <= LARGEST else ""}


def _hash(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def _difference(id: str, old: str, new: str) -> str:
    if not old or len(new) > LARGEST:
        # Whoever agrees agrees to this one: another that is too large is another text here, too.
        return f"{id}: the definition is too large to show what changed in it (it is {_hash(new)[:16]} now)"
    lines = unified_diff(
        old.splitlines(), new.splitlines(), f"{id} as approved", f"{id} now", lineterm="", n=1
    )
    return "\n".join(lines)
