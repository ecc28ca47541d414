"""Texts as vectors, offline: the weights come in the wheel of WordLlama, and nothing is ever downloaded.

Only two files of that package are read; its code, which would look for a hub, is not imported. The
weights, 16 MB, are mapped into memory rather than read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.knowledge.requests import told

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Matrix = NDArray[np.float32]

_WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
_TOKENS: Final = "tokenizers/l2_supercat_tokenizer_config.json"
LONGEST: Final = 4_000
"""Characters of a text that count; what comes later says little about a tool."""

EMBEDDED: Final = "embedded"
MANY: Final = 100
"""Texts from which on it pays to unpack all vectors first."""


class Embedder(Protocol):
    """Makes vectors of length one out of texts."""

    @property
    def name(self) -> str:
        """Vectors of different names cannot be compared."""
        ...

    def embed(self, texts: Sequence[str]) -> Matrix: ...


@runtime_checkable
class Learner(Protocol):
    """An embedder that first looks at the texts it is to tell apart."""

    @property
    def weights(self) -> Matrix | None:
        """What it has learned, to be kept with the vectors."""
        ...

    def fit(self, texts: Sequence[str]) -> None:
        """Learn which words are rare in these texts and so tell them apart."""
        ...

    def resume(self, weights: Matrix) -> None:
        """Know again what `weights` said."""
        ...


class WordLlama:
    """The mean of the vectors of a text's tokens, the rare ones counting for more."""

    name = "wordllama-l2-256/2"

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or installed()
        self.weights: Matrix | None = None

    @cached_property
    def _vectors(self) -> NDArray[np.float16]:
        path = self._folder / _WEIGHTS
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        ((_, about),) = [entry for entry in header.items() if entry[0] != "__metadata__"]
        if about["dtype"] != "F16":
            raise PenstockError(f"{path} holds {about['dtype']}, not F16")
        begin = 8 + length + about["data_offsets"][0]
        return np.memmap(path, dtype=np.float16, mode="r", offset=begin, shape=tuple(about["shape"]))

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        found = Tokenizer.from_file(str(self._folder / _TOKENS))
        found.no_padding()
        found.no_truncation()
        return found

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        cut = [told(text[:LONGEST]) for text in texts]
        if len(cut) < MANY:  # threads cost more than they save
            return [self._tokenizer.encode(text, add_special_tokens=False).ids for text in cut]
        return [one.ids for one in self._tokenizer.encode_batch(cut, add_special_tokens=False)]

    def fit(self, texts: Sequence[str]) -> None:
        seen = np.zeros(len(self._vectors), dtype=np.float32)
        for ids in self._tokens(texts):
            seen[list(set(ids))] += 1
        self.weights = np.log1p(len(texts) / (seen + 0.5)).astype(np.float32)

    def resume(self, weights: Matrix) -> None:
        self.weights = weights

    def embed(self, texts: Sequence[str]) -> Matrix:
        vectors = self._vectors if len(texts) < MANY else self._vectors.astype(np.float32)
        made = np.zeros((len(texts), vectors.shape[1]), dtype=np.float32)
        for row, ids in zip(made, self._tokens(texts), strict=True):
            if ids:
                some = vectors[ids].astype(np.float32, copy=False)
                row[:] = some.sum(0) if self.weights is None else self.weights[ids] @ some
        lengths = np.linalg.norm(made, axis=1, keepdims=True)
        result: Matrix = made / np.maximum(lengths, 1e-9)
        return result


def installed() -> Path:
    """Where the weights are."""
    found = find_spec("wordllama")
    folder = Path(found.origin).parent if found is not None and found.origin else None
    if folder is None or not (folder / _WEIGHTS).is_file():
        raise PenstockError("searching by meaning needs the weights of WordLlama: pip install wordllama")
    return folder


def chosen(setting: str = EMBEDDED, key: str = "") -> Embedder | None:
    """The embedder that a setting names. None where the default is not installed: words have to do."""
    if setting == EMBEDDED:
        try:
            return WordLlama()
        except PenstockError:
            return None
    if setting == "minilm":
        from penstock.knowledge.minilm import MiniLM

        return MiniLM()
    kind, _, place = setting.partition(":")
    if kind == "openai-compatible":
        from penstock.knowledge.remote import Remote

        url, _, model = place.partition("#")
        return Remote(url, model, key)
    raise PenstockError(
        f"there is no embedding {setting!r}: choose `embedded`, `minilm` or `openai-compatible:URL#MODEL`"
    )
