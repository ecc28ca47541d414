"""Tools by their words: BM25 over postings in memory, and how much of a request its best tool has said.

Postings rather than SQLite's FTS5: a request is looked up once as a whole and once for each of its
parts, and among ten thousand tools FTS5 takes milliseconds for each, postings a tenth of that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.knowledge.requests import stem, terms, words

Scores = NDArray[np.float32]

WEIGHTS: Final = (2.0, 1.0, 0.5, 1.0)
"""What a word counts for in a tool's name, its description, its parameters, and what its server is."""

Fields = tuple[str, str, str, str]
_SATURATION: Final = 1.2
_LENGTH: Final = 0.75
"""The usual constants of BM25."""


class Bag(NamedTuple):
    """The words of one tool."""

    numbers: NDArray[np.intp]
    counts: Scores


class Words(NamedTuple):
    """The bags of many tools, one after the other."""

    vocabulary: Sequence[str]
    """Stems, by their numbers in the bags."""
    numbers: NDArray[np.intp]
    counts: Scores
    sizes: NDArray[np.intp]


class Said(NamedTuple):
    scores: Scores
    """For each text and each tool."""
    strength: Scores
    """For each text, 0 to 1: how much of what it says the best of the tools has."""


class Lexicon:
    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        """By stem. What is gone from the catalog keeps its number and has no postings."""
        self._read: dict[str, int] = {}
        """The same by word, as tools say it: there are few words, said often."""
        self._bags: dict[str, Bag] = {}
        self._postings: _Postings | None = None

    def become(self, keys: Sequence[str], fields: Callable[[int], Fields]) -> bool:
        """Hold the tools of these keys, in this order. Only new ones are read: says whether there are any."""
        bags = self._bags
        self._bags = {key: bags.get(key) or self._bag(fields(i)) for i, key in enumerate(keys)}
        self._postings = _Postings([self._bags[key] for key in keys], len(self._numbers)) if keys else None
        return not bags.keys() >= self._bags.keys()

    def resume(self, keys: Sequence[str], words: Words) -> None:
        """Know tools again that were read in another process."""
        self._numbers = {word: number for number, word in enumerate(words.vocabulary)}
        ends = np.cumsum(words.sizes)[:-1]
        parts = zip(np.split(words.numbers, ends), np.split(words.counts, ends), strict=True)
        self._bags = dict(zip(keys, itertools.starmap(Bag, parts), strict=True))

    def words(self, keys: Sequence[str]) -> Words:
        """What `resume` takes, without the words that no tool says any more."""
        bags = [self._bags[key] for key in keys]
        used, numbers = np.unique(np.concatenate([bag.numbers for bag in bags]), return_inverse=True)
        stems = list(self._numbers)
        counts = np.concatenate([bag.counts for bag in bags])
        return Words([stems[i] for i in used], numbers, counts, np.array([len(bag.counts) for bag in bags]))

    def find(self, texts: Sequence[str]) -> Said:
        postings = self._postings
        scores = np.zeros((len(texts), postings.tools if postings else 0), dtype=np.float32)
        total = np.zeros(len(texts), dtype=np.float32)
        if postings is None:
            return Said(scores, total)
        for row, text in enumerate(texts):
            for word in dict.fromkeys(map(stem, terms(text))):
                total[row] += postings.add(self._numbers.get(word), scores[row])
        best = scores.max(axis=1, initial=0.0)
        return Said(scores, np.minimum(best / np.maximum(total, 1e-9), 1.0).astype(np.float32))

    def _bag(self, fields: Fields) -> Bag:
        counts: dict[int, float] = {}
        read = self._read
        for weight, text in zip(WEIGHTS, fields, strict=True):
            for word in _words(text):
                number = read.get(word)
                if number is None:
                    number = read[word] = self._numbers.setdefault(stem(word), len(self._numbers))
                counts[number] = counts.get(number, 0.0) + weight
        return Bag(np.fromiter(counts, dtype=np.intp), np.fromiter(counts.values(), dtype=np.float32))


class _Postings:
    """For each word the tools that have it, and what it is worth there."""

    def __init__(self, bags: Sequence[Bag], vocabulary: int) -> None:
        self.tools = len(bags)
        sizes = [len(bag.numbers) for bag in bags]
        numbers = np.concatenate([bag.numbers for bag in bags])
        counts = np.concatenate([bag.counts for bag in bags])
        tools = np.repeat(np.arange(len(bags)), sizes)
        lengths = np.bincount(tools, weights=counts, minlength=len(bags))
        usual = max(float(lengths.mean()), 1e-9)
        order = np.argsort(numbers, kind="stable")
        self._tools = tools[order]
        seen = np.bincount(numbers, minlength=vocabulary)
        self._ends = np.concatenate(([0], np.cumsum(seen)))
        self._rarity = np.log1p(len(bags) / (seen + 0.5))
        self._unheard = float(np.log1p(len(bags) / 0.5))
        room = _SATURATION * (1 - _LENGTH + _LENGTH * lengths / usual)
        worth = counts * (_SATURATION + 1) / (counts + room[tools]) * self._rarity[numbers]
        self._worth = worth[order].astype(np.float32)

    def add(self, number: int | None, scores: Scores) -> float:
        """Give each tool that has a word what it is worth; returns how rare it is."""
        if number is None:
            return self._unheard
        here = slice(self._ends[number], self._ends[number + 1])
        scores[self._tools[here]] += self._worth[here]
        return float(self._rarity[number])


@lru_cache(maxsize=4_096)
def _words(text: str) -> list[str]:
    """Servers say the same of themselves with each of their tools."""
    return words(text)
