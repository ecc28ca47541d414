"""Finding tools for a request: by meaning, by words, as a whole and in its parts.

Words count by how strongly they match, so that a name is found by its letters and a paraphrase by
its meaning. What was used before counts only when there is a context. Vectors are kept in a file,
by the content of each tool, and made anew only for tools that changed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from penstock.knowledge import kept as keeping
from penstock.knowledge.embed import Learner
from penstock.knowledge.entries import Entry, Evidence, Found
from penstock.knowledge.lexicon import Fields, Lexicon
from penstock.knowledge.requests import Request, understood

if TYPE_CHECKING:
    from penstock.knowledge.embed import Embedder, Matrix
    from penstock.knowledge.lexicon import Scores

FOLLOWS: Final = 2.0
STALE: Final = 0.25
"""When this share of a catalog is new, what is rare in it is learned anew."""

BLOCK: Final = 64
"""Vectors that are multiplied at once: so few that BLAS does not share them out among threads, and
then wait for those, which takes ten times as long on a busy machine."""


class Mix(NamedTuple):
    """What counts for how much beside the meaning of a request as a whole."""

    words: float = 0.4
    """What words count for, and as much again when they match entirely."""
    parts: float = 0.5
    """What the best part of a request counts for."""


class Search:
    """An index of tools. Without an embedder it knows words only."""

    def __init__(
        self,
        embedder: Embedder | None = None,
        *,
        kept: Path | None = None,
        evidence: Evidence | None = None,
        mix: Mix | None = None,
    ) -> None:
        self._embedder = embedder
        self._mix = mix or Mix()
        self._kept = kept
        self._evidence = evidence
        self._entries: list[Entry] = []
        self._digests: list[str] = []
        self._vectors: Matrix | None = None
        """In blocks, the last one filled up with nothing."""
        self._lexicon = Lexicon()

    def __len__(self) -> int:
        return len(self._entries)

    def update(self, entries: Iterable[Entry]) -> int:
        """Make the index one of these tools. Returns how many are new or changed."""
        new = list({entry.id: entry for entry in entries}.values())
        if new == self._entries:
            return 0
        digests = [entry.digest for entry in new]
        known = set(self._digests)
        changed = sum(digest not in known for digest in digests)
        have = self._remembered()
        self._vectors = self._made(new, digests, have)
        read = self._lexicon.become(digests, lambda i: _fields(new[i]))
        self._entries, self._digests = new, digests
        if new and (read or (self._vectors is not None and not have.keys() >= set(digests))):
            self._keep()
        return changed

    def find(self, intent: str, *, limit: int = 8, context: Sequence[str] = ()) -> list[Found]:
        """The tools that fit best, the best first; `context` names tools that were used so far."""
        if not self._entries:
            return []
        scores = self._scores(understood(intent))
        if context and self._evidence is not None:
            known = self._evidence(context)
            scores += FOLLOWS * np.array([known.get(one.id, 0.0) for one in self._entries], dtype=np.float32)
        limit = min(limit, len(self._entries))
        best = np.argpartition(-scores, limit - 1)[:limit]
        ranked = sorted((int(i) for i in best), key=lambda i: (-scores[i], self._entries[i].id))
        return [Found(self._entries[i].id, round(float(scores[i]), 3)) for i in ranked]

    # --- scoring ---

    def _scores(self, request: Request) -> Scores:
        whole, *parts = self._fits([request.text, *request.parts])
        scores: Scores = whole
        if parts:
            scores = whole + self._mix.parts * functools.reduce(np.maximum, parts)
        return scores

    def _fits(self, texts: Sequence[str]) -> Scores:
        """For each text, how well each tool fits it, in deviations from the mean."""
        said = self._lexicon.find(texts)
        fits = (self._mix.words * (1 + said.strength))[:, None] * _standard(said.scores)
        if self._vectors is not None and self._embedder is not None:
            fits += _standard(_alike(self._vectors, self._embedder.embed(texts))[:, : len(self._entries)])
        return fits

    # --- vectors ---

    def _made(
        self, entries: Sequence[Entry], digests: Sequence[str], have: Mapping[str, Any]
    ) -> Matrix | None:
        if self._embedder is None:
            return None
        new = [i for i, digest in enumerate(digests) if digest not in have]
        learner = self._embedder if isinstance(self._embedder, Learner) else None
        if learner is not None and (len(new) > STALE * len(entries) or learner.weights is None):
            learner.fit([_everything(entry) for entry in entries])
            have, new = {}, list(range(len(entries)))
        made = self._embedded([entries[i] for i in new]) if new else None
        width = made.shape[1] if made is not None else len(next(iter(have.values()), ()))
        vectors = np.zeros((-(-len(entries) // BLOCK) * BLOCK, width), dtype=np.float32)
        if made is not None:
            vectors[new] = made
        for i, digest in enumerate(digests):
            if digest in have:
                vectors[i] = have[digest]
        return vectors.reshape(-1, BLOCK, width)

    def _embedded(self, entries: Sequence[Entry]) -> Matrix:
        """One vector for each tool: a similarity to a sum is the sum of the similarities."""
        assert self._embedder is not None  # noqa: S101 - the only caller has looked
        servers = {entry.server: f"{entry.server} {entry.about}" for entry in entries}
        places = {server: i for i, server in enumerate(servers)}
        total: Matrix = (
            self._embedder.embed([_everything(entry) for entry in entries])
            + self._embedder.embed([f"{entry.server} {entry.name}" for entry in entries])
            + self._embedder.embed(list(servers.values()))[[places[entry.server] for entry in entries]]
        )
        return total

    def _remembered(self) -> dict[str, Any]:
        """Vectors by the content of their tools: ours, else those in the file, which also has their words."""
        if self._entries:
            return dict(zip(self._digests, self._flat(), strict=False))
        found = keeping.load(self._kept, self._name) if self._kept is not None else None
        if found is None:
            return {}
        if isinstance(self._embedder, Learner):
            self._embedder.resume(found.weights)
        self._lexicon.resume(found.digests, found.words)
        return dict(zip(found.digests, found.vectors, strict=True))

    def _keep(self) -> None:
        if self._kept is None:
            return
        learned = self._embedder.weights if isinstance(self._embedder, Learner) else None
        weights = np.zeros(0, dtype=np.float32) if learned is None else learned
        words = self._lexicon.words(self._digests)
        vectors = self._flat()[: len(self._digests)]
        keeping.save(self._kept, self._name, keeping.Kept(self._digests, vectors, weights, words))

    def _flat(self) -> Matrix:
        """One vector for each tool, and a few that fill up the last block."""
        if self._vectors is None:
            return np.zeros((len(self._entries), 0), dtype=np.float32)
        flat: Matrix = self._vectors.reshape(-1, self._vectors.shape[2])
        return flat

    @property
    def _name(self) -> str:
        return self._embedder.name if self._embedder is not None else "none"


def _fields(entry: Entry) -> Fields:
    return entry.name, entry.description, entry.parameters, f"{entry.server} {entry.about}"


def _everything(entry: Entry) -> str:
    return f"{entry.server} {entry.name} {entry.description} {entry.parameters}"


def _alike(vectors: Matrix, some: Matrix) -> Scores:
    """Dot products of each of `some` with each of the vectors."""
    return np.ascontiguousarray(np.matmul(vectors, some.T).reshape(-1, len(some)).T)


def _standard(rows: Scores) -> Scores:
    apart: Scores = rows - rows.mean(axis=1, keepdims=True)
    width = np.sqrt(np.einsum("ij,ij->i", apart, apart) / rows.shape[1])
    apart /= width[:, None] + 1e-9
    return apart
