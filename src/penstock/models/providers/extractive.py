"""The last resort: sentences copied from the text that was given, chosen by their overlap with the question.

No network, no model, no chance: the same request always has the same answer, and there always is
one. It knows nothing that it was not told, says so on every answer (`label`), and leaves out of an
output schema what it did not find rather than making it up.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from hashlib import blake2b
from math import sqrt
from typing import Any, Final

from penstock.models.base import Answer, Chunk, Embedding, Request, Usage
from penstock.models.providers.filling import fill
from penstock.models.providers.passages import Passages
from penstock.models.structured import compact

LABEL: Final = "extractive"
HEAD: Final = f"[{LABEL}] "
"""Stands before every answer in words: whoever passes the text on passes this on, too."""

NOTHING: Final = "Nothing in the given text answers this."
SENTENCES: Final = 3
DIMENSIONS: Final = 256


class Extractive:
    """Answers from the request alone."""

    def __init__(self, name: str = LABEL) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Extractive({self.name!r})"

    async def chat(self, model: str, request: Request) -> Answer:
        return answer(self.name, model, request)

    async def stream(self, model: str, request: Request) -> AsyncGenerator[Chunk, None]:
        whole = answer(self.name, model, request)
        yield Chunk(whole.text)
        yield Chunk(answer=whole)

    async def embed(self, model: str, texts: Sequence[str], *, within: float = 60.0) -> Embedding:
        """Words and their parts, hashed: alike where the texts share words, and no more than that."""
        del within
        return Embedding(
            vectors=tuple(map(vector, texts)), cost=0.0, served_by=f"{self.name}/{model or LABEL}"
        )

    async def probe(self, *, within: float = 5.0) -> None:
        """Always here."""


def answer(name: str, model: str, request: Request) -> Answer:
    passages = Passages(request.messages)
    address = f"{name}/{model or LABEL}"
    parsed: Any = None
    missing: tuple[str, ...] = ()
    if request.output is None:
        chosen = passages.best(SENTENCES)
        words = " ".join(chosen) if chosen else NOTHING
        text = HEAD + _cut(words, request.max_tokens)
    else:
        parsed, missing = fill(request.output, passages)
        text = compact(parsed)
    return Answer(
        text=text,
        parsed=parsed,
        missing=missing,
        usage=Usage(passages.size // 4, len(text) // 4),
        cost=0.0,
        served_by=address,
        requested=address,
        model=LABEL,
        label=LABEL,
    )


def _cut(text: str, tokens: int | None) -> str:
    """At most so many tokens, in whole words. Four characters are about one."""
    if tokens is None or len(text) <= 4 * tokens:
        return text
    return text[: 4 * tokens].rpartition(" ")[0] + " …"


def vector(text: str) -> tuple[float, ...]:
    found = [0.0] * DIMENSIONS
    low = f" {' '.join(text.lower().split())} "
    for start in range(len(low) - 2):
        place = int.from_bytes(blake2b(low[start : start + 3].encode(), digest_size=4).digest(), "big")
        found[place % DIMENSIONS] += 1.0 if place & 0x80000000 else -1.0
    length = sqrt(sum(value * value for value in found)) or 1.0
    return tuple(value / length for value in found)
