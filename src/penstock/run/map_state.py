"""A `for_each` step that is open: which of its items are where. Part of the run."""

from __future__ import annotations

from typing import Any

NUMBERED = ("asking", "running", "backoff", "errors", "prints")
"""Fields of a map by item."""


class MapState:
    """A `for_each` step that is open: which items are where."""

    __slots__ = (
        "asking", "backoff", "base", "count", "done", "errors", "failed", "fired", "highest", "kind", "next",
        "outputs", "prints", "running", "seq",
    )  # fmt: skip

    def __init__(self, base: int = 0) -> None:
        self.base = self.highest = base
        """Attempts that items had before a `retry_step`, and the highest there is now: ids stay unique."""
        self.count = -1
        """-1 until the list has been evaluated."""
        self.next = 0
        """The first item that has not been started."""
        self.running: dict[int, int] = {}
        """Item to attempt."""
        self.backoff: dict[int, int] = {}
        """Item to the attempt that failed."""
        self.asking: dict[int, int] = {}
        """Item to attempt, for items that wait for a decision."""
        self.seq = 0
        """The event that holds the list of items."""
        self.done = 0
        self.errors: dict[int, str] = {}
        """Items that failed for good."""
        self.failed: int | None = None
        """The first of them, when one failure fails the step."""
        self.kind = ""
        """The kind of that failure."""
        self.outputs: list[Any] | None = None
        """Only kept when a control expression or `set` reads the step's output."""
        self.prints: dict[int, str] = {}
        """Fingerprints of items, in loops."""
        self.fired: list[int] = []
        """Scratch: items whose backoff has elapsed."""

    def snapshot(self) -> dict[str, Any]:
        whole = {name: getattr(self, name) for name in self.__slots__ if name != "fired"}
        for name in NUMBERED:
            whole[name] = {str(item): value for item, value in sorted(whole[name].items())}
        return whole
