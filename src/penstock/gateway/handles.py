"""Handles: what a caller needs in order to see a run again.

A run's id is no secret: it is in logs, in lists, in other people's events. So a handle is the id and
a mark that only this gateway can make, and a caller who was never given it cannot guess it.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from penstock.errors import PenstockError
from penstock.ids import RunId

MARK = "~"
"""Between the id of a run and its mark."""

_LENGTH = 16


class Handles:
    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, run: RunId) -> str:
        return f"{run}{MARK}{self._mark(run)}"

    def run(self, handle: str) -> RunId:
        """The run that a handle stands for. `PenstockError` when it is not one of ours."""
        id, _, mark = handle.rpartition(MARK)
        if not id or not hmac.compare_digest(mark.encode(), self._mark(RunId(id)).encode()):
            raise PenstockError(f"no run has the handle {handle!r}; use the one that `execute` gave you")
        return RunId(id)

    def _mark(self, run: RunId) -> str:
        return hmac.digest(self._key, run.encode(), "sha256").hex()[:_LENGTH]


def kept(path: Path) -> Handles:
    """Handles that are good after a restart, too: the key is kept in a file that only we can read."""
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        key = secrets.token_bytes(32)
        try:
            place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return kept(path)  # another process was quicker
        with os.fdopen(place, "wb") as file:
            file.write(key)
    return Handles(key)
