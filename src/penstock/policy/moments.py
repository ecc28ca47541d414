"""Moments that outlive a process, a suspend and a reboot.

States hold moments as absolute seconds of a clock that counts from the boot and goes on during
suspend; the caller reads it. Stepping the wall clock moves none of them. Only after a reboot is
the wall clock asked how long the machine was away, and then it can shorten a wait but never
make it longer than it was.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

import msgspec
from msgspec import Struct


class Timed(Struct, frozen=True):
    """A state with moments in it."""

    MOMENTS: ClassVar[frozenset[str]] = frozenset()
    """Fields that hold a moment, or None for never."""


class Saved(Struct, frozen=True):
    """Where the clocks stood when a state was written."""

    boot: str
    now: float
    wall: float


def shift(saved: Saved, *, boot: str, now: float, wall: float) -> float:
    """Seconds by which every moment of a saved state must be moved to mean the same today."""
    if boot == saved.boot:
        return 0.0
    away = max(0.0, wall - saved.wall)
    return now - saved.now - away


_Timed = TypeVar("_Timed", bound=Timed)


def moved(state: _Timed, by: float) -> _Timed:
    """The state with every moment moved, also in the states that it holds."""
    if not by:
        return state
    changes: dict[str, object] = {}
    for name in state.__struct_fields__:
        value = getattr(state, name)
        if name in state.MOMENTS:
            changes[name] = None if value is None else value + by
        elif isinstance(value, Timed):
            changes[name] = moved(value, by)
        elif isinstance(value, tuple):
            changes[name] = tuple(moved(one, by) if isinstance(one, Timed) else one for one in value)
        elif isinstance(value, dict):
            changes[name] = {k: moved(v, by) if isinstance(v, Timed) else v for k, v in value.items()}
    return msgspec.structs.replace(state, **changes)
