"""What processes tell each other about candidates: a port, and its form for a process that is alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from penstock.models.clocks import Clock
from penstock.models.state import Change, State


class Dirty(Struct, frozen=True):
    """A state that this process has changed, and how."""

    state: State
    changes: Sequence[Change]


class Shared(Protocol):
    """Never raises and never waits long: what cannot be shared now is shared later, and calls go on."""

    @property
    def alone(self) -> bool:
        """Nobody else can see it: changes need not be kept."""
        ...

    def pull(self) -> Mapping[str, State]:
        """What others have written since the last pull; the first time, everything."""
        ...

    def push(self, dirty: Mapping[str, Dirty]) -> Mapping[str, State] | None:
        """Write, and say how everything stands then. None: not now."""
        ...

    def claim(self, slot: str, holder: str, *, seconds: float) -> bool:
        """Take a slot that only one process at a time may have. Never waits for it."""
        ...

    def release(self, slot: str, holder: str) -> None: ...

    def close(self) -> None: ...


class MemoryShared:
    """For one process, or for several routers in it."""

    alone = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slots: dict[str, tuple[str, float]] = {}

    def pull(self) -> Mapping[str, State]:
        return {}

    def push(self, dirty: Mapping[str, Dirty]) -> Mapping[str, State] | None:
        return {name: one.state for name, one in dirty.items()}

    def claim(self, slot: str, holder: str, *, seconds: float) -> bool:
        now = self._clock.now()
        owner, until = self._slots.get(slot, (holder, now))
        if owner != holder and now < until:
            return False
        self._slots[slot] = (holder, now + seconds)
        return True

    def release(self, slot: str, holder: str) -> None:
        if self._slots.get(slot, ("", 0.0))[0] == holder:
            del self._slots[slot]

    def close(self) -> None:
        """Nothing is held."""
