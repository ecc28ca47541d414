"""Conversations on record: a provider wrapped in a `Recorder`, and a `Replay` that needs none.

A cassette is JSON Lines, one exchange a line, found again by a digest of what was asked. Before a
line is written, everything that looks like a secret is taken out of it; keys and headers never come
near it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import PenstockError
from penstock.models.base import Answer, Chunk, Embedding, ModelError, Provider, Request
from penstock.models.errors import Fault
from penstock.models.providers.scripted import chunks
from penstock.policy.masking import GONE, mask

LABEL: Final = "replayed"


class Exchange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of a cassette."""

    digest: str
    model: str
    request: Any = None
    """For people to read. What is looked up is the digest."""
    answer: Answer | None = None
    embedding: Embedding | None = None
    fault: Fault | None = None
    status: int = 0


class NotRecorded(PenstockError):
    """The cassette has no answer to this. Record it again, or find out why something else is asked."""

    def __init__(self, cassette: str, digest: str, asked: str) -> None:
        super().__init__(f"{cassette} has no answer to {asked!r} (request {digest[:12]})")
        self.cassette = cassette
        self.digest = digest


def digest(model: str, request: Request, secrets: Collection[str] = ()) -> str:
    """The same for requests that ask the same, however long they would wait for it.

    Secrets are taken out first: what a replayed answer no longer says, the next request does not say.
    """
    asked = replace(request, timeout=0.0, first_byte=None, idle=0.0, stream=False)
    return _hash(["chat", model, asked], secrets)


def _hash(asked: Any, secrets: Collection[str]) -> str:
    clean = without_secrets(msgspec.to_builtins(asked), secrets)
    return hashlib.sha256(msgspec.json.encode(clean, order="deterministic")).hexdigest()


class Recorder:
    """Passes everything on to a provider, and writes down what was asked and what came of it."""

    def __init__(self, provider: Provider, path: str | Path, *, secrets: Collection[str] = ()) -> None:
        self.name = provider.name
        self._provider = provider
        self._path = Path(path)
        self._secrets = frozenset(secrets)
        self._writing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"Recorder({self._provider!r})"

    async def chat(self, model: str, request: Request) -> Answer:
        key = digest(model, request, self._secrets)
        try:
            answer = await self._provider.chat(model, request)
        except ModelError as error:
            await self._failed(key, model, request, error)
            raise
        await self._note(Exchange(digest=key, model=model, request=request, answer=answer))
        return answer

    async def stream(self, model: str, request: Request) -> AsyncGenerator[Chunk, None]:
        key = digest(model, request, self._secrets)
        try:
            async with aclosing(self._provider.stream(model, request)) as pieces:
                async for chunk in pieces:
                    if chunk.answer is not None:
                        whole = Exchange(digest=key, model=model, request=request, answer=chunk.answer)
                        await self._note(whole)
                    yield chunk
        except ModelError as error:
            await self._failed(key, model, request, error)
            raise

    async def embed(self, model: str, texts: Sequence[str], *, within: float = 60.0) -> Embedding:
        key = _hash(["embed", model, list(texts)], self._secrets)
        try:
            found = await self._provider.embed(model, texts, within=within)
        except ModelError as error:
            await self._failed(key, model, list(texts), error)
            raise
        await self._note(Exchange(digest=key, model=model, request=list(texts), embedding=found))
        return found

    async def probe(self, *, within: float = 5.0) -> None:
        await self._provider.probe(within=within)

    async def _failed(self, key: str, model: str, request: Any, error: ModelError) -> None:
        await self._note(
            Exchange(digest=key, model=model, request=request, fault=error.fault, status=error.status)
        )

    async def _note(self, exchange: Exchange) -> None:
        line = msgspec.json.encode(without_secrets(msgspec.to_builtins(exchange), self._secrets)) + b"\n"
        async with self._writing:
            await asyncio.to_thread(_append, self._path, line)


class Replay:
    """Answers from a cassette. A question asked again gets the next answer on record, or the last one."""

    def __init__(self, path: str | Path, *, name: str = LABEL, secrets: Collection[str] = ()) -> None:
        self.name = name
        self._path = Path(path)
        self._secrets = frozenset(secrets)
        self._found = read(self._path)

    def __repr__(self) -> str:
        return f"Replay({self._path.name!r})"

    async def chat(self, model: str, request: Request) -> Answer:
        asked = request.messages[-1].content[:80] if request.messages else ""
        found = self._next(digest(model, request, self._secrets), asked, model)
        if found.answer is None:
            raise NotRecorded(self._path.name, found.digest, asked)
        return replace(found.answer, label=LABEL)

    async def stream(self, model: str, request: Request) -> AsyncGenerator[Chunk, None]:
        for chunk in chunks(await self.chat(model, request)):
            yield chunk

    async def embed(self, model: str, texts: Sequence[str], *, within: float = 60.0) -> Embedding:
        del within
        asked = texts[0][:80] if texts else ""
        found = self._next(_hash(["embed", model, list(texts)], self._secrets), asked, model)
        if found.embedding is None:
            raise NotRecorded(self._path.name, found.digest, asked)
        return found.embedding

    async def probe(self, *, within: float = 5.0) -> None:
        """Always here."""

    def _next(self, key: str, asked: str, model: str) -> Exchange:
        left = self._found.get(key)
        if not left:
            raise NotRecorded(self._path.name, key, asked)
        found = left.pop(0) if len(left) > 1 else left[0]
        if found.fault is not None:
            raise ModelError(found.fault, provider=self.name, model=model, status=found.status)
        return found


def read(path: Path) -> dict[str, list[Exchange]]:
    """The exchanges of a cassette by their digests, or a `PenstockError` that names the bad line."""
    found: dict[str, list[Exchange]] = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise PenstockError(f"the cassette {path.name} cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                exchange = msgspec.json.decode(line, type=Exchange)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise PenstockError(f"{path.name}:{number} is not an exchange: {error}") from None
            found.setdefault(exchange.digest, []).append(exchange)
    return found


def without_secrets(value: Any, secrets: Collection[str]) -> Any:
    """The same value without what looks like a secret. Paths stay: an answer may be about files."""
    match value:
        case str():
            masked = mask(value, secrets)
            return masked if masked.count(GONE) > value.count(GONE) else value
        case dict():
            return {_text(key, secrets): _entry(key, item, secrets) for key, item in value.items()}
        case list() | tuple():
            return [without_secrets(item, secrets) for item in value]
        case _:
            return value


def _text(key: Any, secrets: Collection[str]) -> str:
    return str(without_secrets(str(key), secrets))


def _entry(key: Any, item: Any, secrets: Collection[str]) -> Any:
    """A value under a name that says it is a secret is one, whatever it looks like by itself."""
    if isinstance(item, str) and mask(f"{key}={item}").startswith(f"{key}={GONE}"):
        return GONE
    return without_secrets(item, secrets)


def _append(path: Path, line: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(line)
