"""Tools by their words: SQLite's FTS5, in memory, and how much of a request its best tool has said."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

FIELDS: Final = ("name", "description", "parameters", "server")
_WEIGHTS: Final = "2.0, 1.0, 0.5, 1.0"
MOST: Final = 200
"""Tools that a search by words looks at."""

READ: Final = 2_000
"""Mentions of words that a search reads. Beyond it the commonest words of a request are left out:
they are in everything and tell little."""


class Said(NamedTuple):
    scores: Mapping[int, float]
    """By the number of a tool; those that have none of the words are not here."""
    strength: float
    """0 to 1: how much of what the request says the best of them has."""


class Lexicon:
    def __init__(self) -> None:
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        fields = ", ".join(FIELDS)
        self._db.executescript(f"""
            create virtual table tools using fts5({fields}, tokenize='porter unicode61');
            create virtual table counts using fts5vocab(tools, 'row');
            create virtual table probe using fts5(word, tokenize='porter unicode61');
            create virtual table stems using fts5vocab(probe, 'instance');
        """)
        self._tools = 0
        self._stems: dict[str, int] = {}
        """By stem, in how many tools it is."""
        self._counts: dict[str, int] = {}
        """The same by word, for words that were asked for."""

    def put(self, rows: Iterable[tuple[int, tuple[str, str, str, str]]], *, gone: Iterable[int] = ()) -> None:
        """Add or change tools by their numbers, and forget those that are gone."""
        rows = list(rows)
        numbers = [(number + 1,) for number in (*gone, *(number for number, _ in rows))]
        self._db.execute("begin")
        self._db.executemany("delete from tools where rowid = ?", numbers)
        self._db.executemany(
            "insert into tools(rowid, name, description, parameters, server) values (?, ?, ?, ?, ?)",
            [(number + 1, *fields) for number, fields in rows],
        )
        self._db.execute("commit")
        self._tools = self._db.execute("select count(*) from tools").fetchone()[0]
        self._stems = dict(self._db.execute("select term, doc from counts"))
        self._counts.clear()

    def find(self, words: Sequence[str]) -> Said:
        self._look_up([word for word in words if word not in self._counts])
        rare = {word: math.log1p(self._tools / (self._counts[word] + 0.5)) for word in words}
        wanted = self._telling(words)
        if not wanted:
            return Said({}, 0.0)
        found = self._db.execute(
            f"select rowid, bm25(tools, {_WEIGHTS}) as worth from tools where tools match ? "  # noqa: S608
            f"order by worth limit {MOST}",
            (" OR ".join(f'"{word}"' for word in wanted),),
        )
        scores = {number - 1: -worth for number, worth in found}
        best = max(scores.values(), default=0.0)
        return Said(scores, min(best / max(sum(rare.values()), 1e-9), 1.0))

    def _telling(self, words: Sequence[str]) -> list[str]:
        """The rarest words that any tool has, as many as may be read."""
        left = READ
        chosen: list[str] = []
        for word in sorted(filter(self._counts.__getitem__, words), key=self._counts.__getitem__):
            left -= self._counts[word]
            if chosen and left < 0:
                break
            chosen.append(word)
        return chosen

    def _look_up(self, words: Sequence[str]) -> None:
        """Learn how common words are; their stems are for FTS5 to say."""
        self._db.execute("delete from probe")
        self._db.executemany("insert into probe(rowid, word) values (?, ?)", enumerate(words, 1))
        self._counts.update(dict.fromkeys(words, 0))
        for number, stem in self._db.execute("select doc, term from stems"):
            self._counts[words[number - 1]] = self._stems.get(stem, 0)
