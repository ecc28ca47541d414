"""Finding tools for a request: by meaning, by words, and by what tools of one server do together.

Words count by how strongly they match, so that a name is found by its letters and a paraphrase by
its meaning. What was used before counts only when there is a context. Vectors are kept in a file,
by the content of each tool, and made anew only for tools that changed.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from penstock.knowledge.lexicon import Lexicon
from penstock.knowledge.requests import Request, terms, told, understood
from penstock.tools.base import Tool

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstock.knowledge.embed import Embedder, Matrix

    Scores = NDArray[np.float32]

Evidence = Callable[[Sequence[str]], Mapping[str, float]]
"""Takes the tools used so far, returns how likely others are to follow: by id, 0 to 1."""

WORDS: Final = 0.4
"""What words count for beside meaning, and as much again when they match entirely."""

TOGETHER: Final = 0.25
"""What the best tools of a server count for its others."""

IMPLIED: Final = 0.5
CERTAIN: Final = 4.0
"""Deviations above the mean from which on a tool counts as what a request implies."""

FOLLOWS: Final = 2.0
STALE: Final = 0.25
"""When this share of a catalog is new, what is rare in it is learned anew."""

_VIEWS: Final = (0.75, 0.25, 0.5, 0.75)
"""What counts for how much in a tool's vector: everything, its description, its name, its server."""

_SHORT: Final = 300


class Entry(Struct, frozen=True):
    """What is searched of a tool."""

    id: str
    description: str = ""
    parameters: str = ""
    about: str = ""
    """What its server is for."""

    @property
    def server(self) -> str:
        return self.id.partition(":")[0]

    @property
    def name(self) -> str:
        return self.id.partition(":")[2]

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:24]


class Found(Struct, frozen=True):
    id: str
    score: float


def entry_of(tool: Tool, about: str = "") -> Entry:
    """A tool as it is searched."""
    properties = tool.input_schema.get("properties")
    parts = []
    for name, schema in (properties if isinstance(properties, Mapping) else {}).items():
        said = schema.get("description") if isinstance(schema, Mapping) else None
        parts.append(f"{name} {said}" if isinstance(said, str) else str(name))
    return Entry(tool.id, tool.description, " ".join(parts), about)


class Search:
    """An index of tools. Without an embedder it knows words only."""

    def __init__(
        self, embedder: Embedder | None = None, *, kept: Path | None = None, evidence: Evidence | None = None
    ) -> None:
        self._embedder = embedder
        self._kept = kept
        self._evidence = evidence
        self._entries: list[Entry] = []
        self._digests: list[str] = []
        self._vectors: Matrix | None = None
        self._servers: NDArray[np.intp] | None = None
        self._lexicon = Lexicon()

    def __len__(self) -> int:
        return len(self._entries)

    def update(self, entries: Iterable[Entry]) -> int:
        """Make the index one of these tools. Returns how many are new or changed."""
        new = list({entry.id: entry for entry in entries}.values())
        digests = [entry.digest for entry in new]
        if digests == self._digests:
            return 0
        known = set(self._digests)
        changed = sum(digest not in known for digest in digests)
        self._vectors = self._made(new, digests)
        self._lexicon.put(
            ((i, _fields(entry)) for i, entry in enumerate(new) if self._digest(i) != digests[i]),
            gone=range(len(new), len(self._entries)),
        )
        self._entries, self._digests = new, digests
        self._servers = _numbered([entry.server for entry in new])
        return changed

    def find(self, intent: str, *, limit: int = 8, context: Sequence[str] = ()) -> list[Found]:
        """The tools that fit best, the best first; `context` names tools that were used so far."""
        import numpy as np

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
        import numpy as np

        whole, *implied = self._fits([request.text, *request.implied])
        scores = whole + TOGETHER * _together(whole, self._servers)
        if implied:
            scores += IMPLIED * np.maximum(np.max(implied, axis=0) - CERTAIN, 0)
        result: Scores = scores
        return result

    def _fits(self, texts: Sequence[str]) -> list[Scores]:
        """For each text, how well each tool fits it, in deviations from the mean."""
        fits = [self._by_words(text) for text in texts]
        if self._vectors is not None and self._embedder is not None:
            meant = self._embedder.embed([told(text) for text in texts])
            fits = [fit + _standard(_alike(self._vectors, one)) for fit, one in zip(fits, meant, strict=True)]
        return fits

    def _by_words(self, text: str) -> Scores:
        import numpy as np

        said = self._lexicon.find(terms(text))
        words = np.zeros(len(self._entries), dtype=np.float32)
        words[list(said.scores)] = list(said.scores.values())
        return (WORDS + WORDS * said.strength) * _standard(words)

    # --- vectors ---

    def _digest(self, i: int) -> str:
        return self._digests[i] if i < len(self._digests) else ""

    def _made(self, entries: Sequence[Entry], digests: Sequence[str]) -> Matrix | None:
        import numpy as np

        if self._embedder is None:
            return None
        have = self._remembered()
        new = [i for i, digest in enumerate(digests) if digest not in have]
        if len(new) > STALE * len(entries) or self._embedder.weights is None:
            self._embedder.fit([told(_everything(entry)) for entry in entries])
            have, new = {}, list(range(len(entries)))
        made = self._embedded([entries[i] for i in new])
        vectors = np.zeros((len(entries), made.shape[1]), dtype=np.float32)
        vectors[new] = made
        for i, digest in enumerate(digests):
            if digest in have:
                vectors[i] = have[digest]
        if new:
            self._keep(digests, vectors)
        return vectors

    def _embedded(self, entries: Sequence[Entry]) -> Matrix:
        """One vector for each tool: a similarity to a sum is the sum of the similarities."""
        import numpy as np

        if self._embedder is None or not entries:
            width = 0 if self._embedder is None else self._embedder.embed([""]).shape[1]
            return np.zeros((0, width), dtype=np.float32)
        servers = {entry.server: f"{entry.server} {entry.about}" for entry in entries}
        places = {server: i for i, server in enumerate(servers)}
        views = (
            self._embedder.embed([told(_everything(entry)) for entry in entries]),
            self._embedder.embed([told(f"{entry.name} {entry.description}"[:_SHORT]) for entry in entries]),
            self._embedder.embed([told(f"{entry.server} {entry.name}") for entry in entries]),
            self._embedder.embed([told(text) for text in servers.values()])[
                [places[entry.server] for entry in entries]
            ],
        )
        total: Matrix = sum((share * view for share, view in zip(_VIEWS, views, strict=True)), 0 * views[0])
        return total

    def _remembered(self) -> dict[str, Any]:
        """Vectors by the content of their tools: ours, else those in the file."""
        import numpy as np

        if self._vectors is not None:
            return dict(zip(self._digests, self._vectors, strict=True))
        if self._kept is None or self._embedder is None:
            return {}
        try:
            with self._kept.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                if str(file["name"]) != self._embedder.name:
                    return {}
                if file["weights"].size:
                    self._embedder.resume(file["weights"])
                return dict(zip(file["digests"].tolist(), file["vectors"], strict=True))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return {}  # not there yet, or not what it should be: it is made again

    def _keep(self, digests: Sequence[str], vectors: Matrix) -> None:
        import numpy as np

        if self._kept is None or self._embedder is None:
            return
        weights = self._embedder.weights
        aside = self._kept.with_name(f"{self._kept.name}.{os.getpid()}")
        try:
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            with aside.open("wb") as file:
                np.savez(
                    file,
                    name=np.array(self._embedder.name),
                    digests=np.array(digests),
                    vectors=vectors,
                    weights=np.zeros(0, dtype=np.float32) if weights is None else weights,
                )
            aside.replace(self._kept)
        except OSError:
            aside.unlink(missing_ok=True)  # a folder that cannot be written costs time, nothing else


def _fields(entry: Entry) -> tuple[str, str, str, str]:
    def apart(text: str) -> str:
        return told(text) if text else ""

    server = f"{apart(entry.server)} {entry.about}"
    return apart(entry.name), entry.description, apart(entry.parameters), server


def _everything(entry: Entry) -> str:
    return f"{entry.server} {entry.name} {entry.description} {entry.parameters}"


def _numbered(names: Sequence[str]) -> NDArray[np.intp]:
    import numpy as np

    return np.unique(np.array(names), return_inverse=True)[1]


def _alike(vectors: Matrix, one: Matrix) -> Scores:
    """Dot products on this thread: those of BLAS wait for others, ten times as long when it is busy."""
    import numpy as np

    result: Scores = np.einsum("ij,j->i", vectors, one)
    return result


def _standard(values: Scores) -> Scores:
    result: Scores = (values - values.mean()) / (values.std() + 1e-9)
    return result


def _together(scores: Scores, servers: Any) -> Scores:
    """For each tool, how good the three best tools of its server are on average."""
    import numpy as np

    order = np.lexsort((-scores, servers))
    grouped = servers[order]
    first = np.searchsorted(grouped, grouped)
    top = order[np.arange(len(order)) - first < 3]
    sums = np.bincount(servers[top], weights=scores[top])
    counts = np.bincount(servers[top])
    result: Scores = (sums / counts)[servers].astype(np.float32)
    return result
