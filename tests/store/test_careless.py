"""What may be lost is not waited for: a commit of nothing else does not keep the disk busy."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.store.sqlite.jobs import Job
from penstock.store.sqlite.writer import Writer

OFF, NORMAL, FULL = 0, 1, 2


class Watched(sqlite3.Connection):
    """Notes how far each commit waits for the disk."""

    commits: list[int]

    def commit(self) -> None:
        self.commits.append(self.execute("PRAGMA synchronous").fetchone()[0])
        super().commit()


class Desk:
    """A writer, and how it has committed."""

    def __init__(self, path: Path, level: int) -> None:
        self.commits: list[int] = []
        self._path = path
        self._level = level
        self.writer = Writer(
            self._connect,
            name="a file",
            seal=lambda data, *_: data,
            beat=lambda: None,
            stalled=lambda _: None,
        )

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, factory=Watched, isolation_level=None, check_same_thread=False)
        db.commits = self.commits
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {self._level}")
        db.execute("CREATE TABLE IF NOT EXISTS said (word TEXT)")
        return db

    def write(self, *jobs: tuple[str, bool]) -> None:
        """Words that are committed together: each with whether it may be lost."""
        written = threading.Event()
        for word, optional in jobs:
            self.writer.leave(Job([("INSERT INTO said VALUES (?)", (word,))], optional=optional))
        self.writer.put(Job([], lambda _: written.set()))
        assert written.wait(10)


@pytest.fixture(params=[FULL, NORMAL, OFF])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    one = Desk(tmp_path / "words.db", request.param)
    yield one
    one.writer.close()


def test_only_a_commit_of_what_may_be_lost_does_not_wait_for_the_disk(
    desk: Desk, request: pytest.FixtureRequest
) -> None:
    asked = request.node.callspec.params["desk"]

    desk.write(("it counts", False))
    desk.write(("it does not", True), ("nor does this", True))
    desk.write(("it does not", True), ("it counts", False))
    desk.write(("it does not", True))
    desk.write(("it counts", False))

    careless = min(asked, NORMAL)
    assert desk.commits == [asked, careless, asked, careless, asked]
