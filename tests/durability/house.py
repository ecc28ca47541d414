"""A store, a door that can be kept shut, and processes that drive the run behind it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import audit
import deeds
from zygote import Victim, Zygote

import penstock as ps
from penstock.ids import RunId
from penstock.run.events import Event


@contextmanager
def shut(path: Path) -> Iterator[Callable[[], None]]:
    """A door that nobody passes until it is opened."""
    with path.open("wb") as file:
        path.chmod(0o644)
        fcntl.flock(file, fcntl.LOCK_EX)
        yield lambda: fcntl.flock(file, fcntl.LOCK_UN)


def until(true: Callable[[], bool], within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        os.sched_yield()


class House:
    def __init__(self, zygote: Zygote, folder: Path, *, store: Path | None = None) -> None:
        self.folder = folder
        self.file = (store or folder) / "store.db"
        self.url = f"sqlite:///{self.file}"
        self.door = folder / "door"
        self.open_door: Callable[[], None]
        self.run = ""
        self._zygote = zygote

    def racer(self, **order: Any) -> Victim:
        """A process that reaches for the run; the first one starts it."""
        order |= {"program": "racer", "folder": str(self.folder), "store": self.url}
        return self._zygote.victim({"door": str(self.door), "run": self.run, **order})

    def owner(self, **order: Any) -> Victim:
        """A process that drives the run."""
        racer = self.racer(**order)
        self.run = racer.hear("driving")["run"]
        return racer

    def journal(self) -> list[Event]:
        async def load() -> list[Event]:
            async with ps.open(self.url) as penstock:
                return list(await penstock.store.load(RunId(self.run)))

        return asyncio.run(load())

    def violations(self, *racers: Victim) -> list[str]:
        """What is wrong with the run, given what these processes were told."""
        found = asyncio.run(audit.histories(self.url, self.run))
        return audit.violations(audit.Case(self.run, found, said=[racer.said for racer in racers]))

    def done(self) -> list[str]:
        """The steps that have been done, by the ledger."""
        return [line["step"] for line in deeds.lines(self.folder / "ledger") if line["what"] == "begin"]

    def expires(self) -> float:
        """When the lease of the run ends."""
        with closing(sqlite3.connect(self.file)) as db:
            found: float = db.execute("SELECT expires FROM leases WHERE run = ?", (self.run,)).fetchone()[0]
        return found
