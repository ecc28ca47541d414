"""What an approval is bound to: the exact call, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec


def digest(
    *, run: str, step: str, iteration: int, item: int | None, uses: str, args: Mapping[str, Any]
) -> str:
    """A call as a fingerprint: another argument, another item or another round is another call."""
    call = [run, step, iteration, item, uses, args]
    return sha256(msgspec.json.encode(call, order="deterministic")).hexdigest()
