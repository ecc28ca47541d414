"""What a Postgres store is asked to write, and by whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.ids import RunId

Statement = tuple[str, Sequence[Any]]


class Author(Protocol):
    """Whose events they are."""

    run: RunId
    claim: str
    """On the lease of the run."""
    key: int
    gone: bool
    """Another process drives the run: nothing more of it may be written."""

    def arrived(self, last: int) -> None: ...

    def lost(self) -> None: ...


class Segment:
    """A batch of one run. All that one commit adds to a run becomes one row."""

    __slots__ = ("blobs", "first", "journal", "last", "line", "status")

    def __init__(
        self,
        journal: Author,
        first: int,
        last: int,
        line: bytes,
        blobs: Sequence[tuple[str, bytes]],
        status: tuple[str, str] | None,
    ) -> None:
        self.journal = journal
        self.first = first
        self.last = last
        self.line = line
        self.blobs = blobs
        self.status = status
        """How the run stands from this batch on, and why; None when that has not changed."""

    @property
    def size(self) -> int:
        return len(self.line) + sum(len(body) for _, body in self.blobs)


class Job:
    """Statements that belong together and may be given twice, and who wants to know."""

    __slots__ = ("done", "failed", "optional", "sent", "statements")

    def __init__(
        self,
        statements: Sequence[Statement],
        done: Callable[[list[list[Any]]], None] | None = None,
        failed: Callable[[Exception], None] | None = None,
        *,
        optional: bool = False,
    ) -> None:
        self.statements = statements
        self.done = done
        self.failed = failed
        """Told when the statements themselves are wrong; trouble with the server is waited for instead."""
        self.optional = optional
        """Whether a process may end without it: it saves time, or happens by itself after a while."""
        self.sent = False
        """Whether the server may have got it."""

    def withdraw(self) -> None:
        """Nobody wants it any more. It may have been written, and its answer lost."""
        self.statements, self.done, self.failed = (), None, None
