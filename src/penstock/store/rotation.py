"""Sealing a store again with another key: what is the same wherever the payloads are.

A payload says by which key it was sealed: what is done is not done again, so whatever cuts this
short can be followed by the same call. Until the end both keys are needed; then the new one is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from penstock.errors import StoreError

ROWS: Final = 256
BYTES: Final = 4_000_000
"""What one transaction takes on, so that it is short."""

_PASSES = 10


class Progress(NamedTuple):
    done: int
    total: int
    """Payloads that are not sealed with the new key (or not plain) when it begins."""


class Table(NamedTuple):
    """Where payloads are."""

    name: str
    payload: str
    row: str
    """What identifies a row, and in which order they are taken."""
    first: object = ""
    """Comes before every row."""
    key: tuple[str, ...] = ()
    """What its place is made of, when that is not `row` alone."""


STRAYS: Final = "DELETE FROM events WHERE NOT EXISTS (SELECT 1 FROM runs WHERE key = id >> 32)"
"""Of a run that was being forgotten when a crash came: nobody knows any more whose they were."""

RUN: Final = "(SELECT run FROM runs WHERE key = id >> 32)"
FIRST: Final = "id & 4294967295"


def reseal(
    left: Callable[[], int], slices: Callable[[], Iterator[int]], progress: Callable[[Progress], None]
) -> int:
    """Seal everything that is left, some at a time; returns how many payloads were touched."""
    done, total = 0, left()
    progress(Progress(0, total))
    for _ in range(_PASSES):  # more than one only if someone wrote meanwhile
        if total <= done:
            return done
        for some in slices():
            done += some
            progress(Progress(min(done, total), total))
        total = done + left()
    raise StoreError("something goes on writing with another key; close what uses the store, and try again")
