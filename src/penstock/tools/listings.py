"""What servers offered when they were last asked, and what their results looked like.

A memory only: a workflow can be checked and a catalog searched before any server runs. Whatever a
server says when it is started replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.tools.keep import Keep
from penstock.tools.learning import SEEN, learned
from penstock.tools.mcp.base import Listing
from penstock.tools.mcp.config import Server


class Listings:
    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._kept: dict[str, dict[str, Any]] | None = None

    def get(self, server: Server) -> Listing | None:
        """What this server offered, if it is still the same program that would answer."""
        found = self._load("servers").get(server.name)
        if not isinstance(found, dict) or found.get("fingerprint") != server.fingerprint:
            return None
        try:
            return msgspec.convert(found.get("listing"), Listing)
        except msgspec.ValidationError:
            return None

    def put(self, server: Server, listing: Listing) -> None:
        entry = {"fingerprint": server.fingerprint, "listing": msgspec.to_builtins(listing)}
        servers = self._load("servers")
        if servers.get(server.name) != entry:
            servers[server.name] = entry
            self._save()

    def learned(self, id: str) -> Mapping[str, Any]:
        """The schema that the results of a tool seem to follow; empty when none was seen."""
        found = self._load("learned").get(id, {})
        return found if isinstance(found, dict) else {}

    def learn(self, id: str, output: Any) -> bool:
        """Fit the schema to one more result. Says whether it is another one now."""
        old = self.learned(id)
        new = learned(old, output)
        self._load("learned")[id] = new
        changed = {**old, SEEN: 0} != {**new, SEEN: 0}
        if changed:  # the count alone is not worth a write
            self._save()
        return changed

    def _load(self, part: str) -> dict[str, Any]:
        if self._kept is None:
            kept = self._keep.load()
            self._kept = {
                name: found if isinstance(found := kept.get(name), dict) else {}
                for name in ("servers", "learned")
            }
        return self._kept[part]

    def _save(self) -> None:
        self._keep.save({"version": 1, **(self._kept or {})})
