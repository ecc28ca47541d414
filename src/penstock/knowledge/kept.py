"""What was made of a catalog for searching it, in a file: vectors and words, by the content of each tool.

Only spares the work: a file that is not there, damaged, or of another embedder counts as none.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from penstock.knowledge.lexicon import Words

if TYPE_CHECKING:
    from penstock.knowledge.embed import Matrix

FORM: Final = "words/1"
"""Another one when tools are taken apart into other words."""


class Kept(NamedTuple):
    digests: Sequence[str]
    vectors: Matrix
    """One for each tool; of no width where words have to do."""
    weights: Matrix
    """What the embedder learned of them; empty when it learns nothing."""
    words: Words


def load(path: Path, name: str) -> Kept | None:
    """`name` is that of the embedder: vectors of another one cannot be compared."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if str(file["name"]) != f"{name} {FORM}":
                return None
            vocabulary = file["vocabulary"].tobytes().decode().split("\n")
            words = Words(vocabulary, file["numbers"], file["counts"], file["sizes"])
            kept = Kept(file["digests"].tolist(), file["vectors"], file["weights"], words)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None  # not there yet, or not what it should be
    fits = len(kept.digests) == len(kept.vectors) == len(words.sizes)
    return kept if fits and words.sizes.sum() == len(words.numbers) == len(words.counts) else None


def save(path: Path, name: str, kept: Kept) -> None:
    parts: dict[str, Any] = {
        "name": np.array(f"{name} {FORM}"),
        "digests": np.array(kept.digests),
        "vectors": kept.vectors,
        "weights": kept.weights,
        "vocabulary": np.frombuffer("\n".join(kept.words.vocabulary).encode(), dtype=np.uint8),
        "numbers": kept.words.numbers,
        "counts": kept.words.counts,
        "sizes": kept.words.sizes,
    }
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as file:
            np.savez(file, **parts)
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)  # a folder that cannot be written costs time, nothing else
