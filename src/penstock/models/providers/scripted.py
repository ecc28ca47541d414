"""A provider that says what it was told to say, in order: for tests, demos and examples."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from penstock.errors import PenstockError
from penstock.models.base import Answer, Chunk, Embedding, ModelError, Request, Usage
from penstock.models.errors import Fault
from penstock.models.structured import ask, compact

LABEL: Final = "scripted"

Line = str | dict[str, Any] | Answer | Fault | Callable[[Request], "str | dict[str, Any] | Answer | Fault"]
"""A text, an output, an answer in full, a fault, or a function of the request that makes one of them."""


class ScriptEnded(PenstockError):
    """The script has no line left, and somebody asked for one more."""

    def __init__(self, name: str, asked: str) -> None:
        super().__init__(f"the script of {name!r} has ended and was asked: {asked!r}")
        self.name = name


class Scripted:
    """Answers with one line after the other. `asked` holds every request that it got."""

    def __init__(self, script: Iterable[Line], *, name: str = LABEL) -> None:
        self.name = name
        self._script = iter(script)
        self.asked: list[Request] = []

    def __repr__(self) -> str:
        return f"Scripted({self.name!r})"

    async def chat(self, model: str, request: Request) -> Answer:
        async def once(asked: Request) -> Answer:
            return self._next(model, asked)

        return await ask(once, request, provider=self.name, model=model)

    async def stream(self, model: str, request: Request) -> AsyncGenerator[Chunk, None]:
        whole = await self.chat(model, request)
        for chunk in chunks(whole):
            yield chunk

    async def embed(self, model: str, texts: Sequence[str], *, within: float = 60.0) -> Embedding:
        del texts, within
        raise ModelError(NO_EMBEDDINGS, provider=self.name, model=model)

    async def probe(self, *, within: float = 5.0) -> None:
        """Always here."""

    def _next(self, model: str, request: Request) -> Answer:
        self.asked.append(request)
        try:
            line = next(self._script)
        except StopIteration:
            raise ScriptEnded(
                self.name, request.messages[-1].content[:80] if request.messages else ""
            ) from None
        said = line(request) if callable(line) else line
        address = f"{self.name}/{model}"
        if isinstance(said, Fault):
            raise ModelError(said, provider=self.name, model=model)
        if not isinstance(said, Answer):
            text = said if isinstance(said, str) else compact(said)
            size = sum(len(message.content) for message in request.messages)
            said = Answer(text=text, usage=Usage(size // 4, len(text) // 4), cost=0.0)
        finish = "tool_calls" if said.tool_calls else said.finish
        return replace(said, served_by=address, requested=address, model=model, label=LABEL, finish=finish)


NO_EMBEDDINGS: Final = Fault(kind="bad_request", action="fail", message="this provider offers no embeddings")


def chunks(whole: Answer) -> list[Chunk]:
    """An answer as the stream it could have been: word by word, then its calls, then the whole."""
    words = [Chunk(word) for word in _words(whole.text)]
    return [*words, *(Chunk(tool_call=call) for call in whole.tool_calls), Chunk(answer=whole)]


def _words(text: str) -> list[str]:
    first, *rest = text.split(" ")
    return [part for part in (first, *(f" {word}" for word in rest)) if part]
