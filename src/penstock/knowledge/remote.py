"""Texts as vectors by any server that answers `/v1/embeddings` as OpenAI's does.

Blocking, and called from worker threads only: an index is searched in one.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Final

import numpy as np

from penstock.errors import PenstockError
from penstock.knowledge.embed import Matrix
from penstock.knowledge.requests import LONGEST

TOGETHER: Final = 64
WITHIN: Final = 30.0


class Remote:
    def __init__(self, url: str, model: str, key: str = "") -> None:
        if not url.startswith(("http://", "https://")) or not model:
            raise PenstockError(
                "vectors of a server are asked for by `openai-compatible:URL#MODEL`, "
                "such as `openai-compatible:http://127.0.0.1:11434/v1#nomic-embed-text`"
            )
        self._url = f"{url.rstrip('/').removesuffix('/embeddings')}/embeddings"
        self._model = model
        self._key = key
        self.name = f"{self._url}#{model}"

    def embed(self, texts: Sequence[str]) -> Matrix:
        if not texts:
            return np.zeros((0, 0), dtype=np.float32)
        some = [self._asked(texts[i : i + TOGETHER]) for i in range(0, len(texts), TOGETHER)]
        made = np.concatenate(some)
        result: Matrix = made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-9)
        return result

    def _asked(self, texts: Sequence[str]) -> Matrix:
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        # an empty text is refused by some
        body = {"model": self._model, "input": [text[:LONGEST] or " " for text in texts]}
        request = urllib.request.Request(self._url, json.dumps(body).encode(), headers)  # noqa: S310 - see __init__
        try:
            with urllib.request.urlopen(request, timeout=WITHIN) as answer:  # noqa: S310 - http or https
                found = sorted(json.load(answer)["data"], key=lambda one: int(one["index"]))
                made = np.array([one["embedding"] for one in found], dtype=np.float32)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PenstockError(f"{self._url} gave no vectors: {_why(error)}") from error
        if made.ndim != 2 or len(made) != len(texts):
            raise PenstockError(f"{self._url} gave no vectors: {len(made)} for {len(texts)} texts")
        return made


def _why(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    return str(error) or type(error).__name__
