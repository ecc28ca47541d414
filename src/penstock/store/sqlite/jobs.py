"""What a SQLite store is asked to write, and by whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.errors import StoreError
from penstock.ids import RunId

Statement = tuple[str, Sequence[Any]]


class Author(Protocol):
    """Whoever wrote a segment. Told on the writer's thread."""

    run: RunId
    key: int
    claim: str
    gone: bool

    def arrived(self, last: int) -> None: ...

    def lost(self) -> None:
        """Someone else drives the run now: the lease is theirs, or the row is there already."""


class Segment:
    """A batch of one run. All that one commit adds to a run becomes one row."""

    __slots__ = ("author", "first", "last", "line", "status")

    def __init__(
        self, author: Author, first: int, last: int, line: bytes, status: tuple[str, str] | None = None
    ) -> None:
        self.author = author
        self.first = first
        self.last = last
        self.line = line
        self.status = status
        """How the run stands from this batch on, and why; None when that has not changed."""


class Job:
    """Statements that belong together, and who wants to know."""

    __slots__ = ("done", "failed", "optional", "patient", "statements")

    def __init__(
        self,
        statements: Sequence[Statement],
        done: Callable[[list[list[Any]]], None] | None = None,
        failed: Callable[[Exception], None] | None = None,
        *,
        patient: bool = True,
        optional: bool = False,
    ) -> None:
        self.statements = statements
        self.done = done
        self.failed = failed
        """Told when the statements themselves are wrong; trouble with the disk is waited for instead."""
        self.patient = patient
        """Whether it waits for a disk that refuses; otherwise it is told at once."""
        self.optional = optional
        """Whether a process may end without it: it saves time, or happens by itself after a while."""


def of_one_run(jobs: Sequence[Segment | Job]) -> list[Segment]:
    """The jobs, when all of them are batches of the same run and nothing else changes; otherwise none."""
    plain = [job for job in jobs if isinstance(job, Segment) and not job.status and not job.author.gone]
    alone = len(plain) == len(jobs) and all(segment.author is plain[0].author for segment in plain)
    return plain if alone else []


def tell_the_impatient(jobs: list[Segment | Job], why: str) -> list[Segment | Job]:
    """Those who would rather know than wait are told; the others stay."""
    left: list[Segment | Job] = []
    for job in jobs:
        if isinstance(job, Job) and not job.patient and job.failed is not None:
            job.failed(StoreError(why))
        else:
            left.append(job)
    return left


def tell_all(jobs: Sequence[Segment | Job], why: str) -> None:
    """Whoever still waits for an answer is told that there will be none."""
    for job in jobs:
        if isinstance(job, Job) and job.failed is not None:
            job.failed(StoreError(why))
