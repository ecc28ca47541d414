"""Ollama's own API: a JSON value a line, and models that may have to be loaded first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from penstock.models.base import Chunk, Finish, Message, Request, ToolCall, Usage, read_arguments
from penstock.models.endpoint import Endpoint
from penstock.models.providers.dialect import InBand, Post, Said, new_id, post
from penstock.models.structured import instruct

FINISH: dict[str, Finish] = {"length": "length"}


class _Function(Struct):
    name: str = ""
    arguments: dict[str, Any] | str | None = None


class _Call(Struct):
    function: _Function
    id: str | None = None


class _Said(Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Reply(Struct):
    model: str | None = None
    message: _Said | None = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Any = None


class _Vectors(Struct):
    embeddings: list[list[float]] | None = None
    prompt_eval_count: int | None = None
    error: Any = None


_reply = msgspec.json.Decoder(_Reply)
_vectors = msgspec.json.Decoder(_Vectors)


class Ollama:
    events = False

    def ask(self, to: Endpoint, model: str, request: Request, *, stream: bool) -> Post:
        form = request.output if not request.tools else None  # a form would keep it from calling any
        if form is None:
            request = instruct(request)
        body: dict[str, Any] = {
            "model": model,
            "messages": [_message(each) for each in request.messages],
            "stream": stream,
        }
        if request.tools and request.tool_choice != "none":
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": t.name, "description": t.description, "parameters": t.parameters},
                }
                for t in request.tools
            ]
        if form is not None:
            body["format"] = form
        options: dict[str, Any] = {}
        if request.max_tokens is not None:
            options["num_predict"] = request.max_tokens
        if request.temperature is not None:
            options["temperature"] = request.temperature
        if options:
            body["options"] = options
        return post(to, to.chat, model, body)

    def answer(self, body: bytes) -> Said:
        stream = Stream()
        stream.hear(body)
        if not stream.complete:
            raise msgspec.ValidationError("it does not say that it is done")
        return stream.said()

    def listener(self) -> Stream:
        return Stream()

    def embed(self, to: Endpoint, model: str, texts: Sequence[str]) -> Post:
        return post(to, to.embed, model, {"model": model, "input": list(texts)})

    def vectors(self, body: bytes) -> tuple[Sequence[Sequence[float]], Usage]:
        found = _vectors.decode(body)
        if found.error:
            raise InBand(found.error)
        if found.embeddings is None:
            raise msgspec.ValidationError("there are no embeddings in it")
        return found.embeddings, Usage(found.prompt_eval_count or 0)


class Stream:
    """One answer: every line has the form of a whole one, and the last says `done`."""

    def __init__(self) -> None:
        self.complete = self.over = False
        self._text: list[str] = []
        self._calls: list[ToolCall] = []
        self._reason = ""
        self._model = ""
        self.usage = Usage()

    def hear(self, message: bytes) -> list[Chunk]:
        found = _reply.decode(message)
        if found.error:
            raise InBand(found.error)
        self._model = found.model or self._model
        said = found.message or _Said()
        chunks = []
        if said.content:
            self._text.append(said.content)
            chunks.append(Chunk(said.content))
        for call in said.tool_calls or ():
            self._calls.append(
                read_arguments(call.id or new_id(), call.function.name, call.function.arguments)
            )
            chunks.append(Chunk(tool_call=self._calls[-1]))
        if found.done:
            self.complete = self.over = True
            self._reason = found.done_reason or ""
            self.usage = Usage(found.prompt_eval_count or 0, found.eval_count or 0)
        return chunks

    def said(self) -> Said:
        return Said(
            text="".join(self._text),
            tool_calls=tuple(self._calls),
            usage=self.usage,
            finish="tool_calls" if self._calls else FINISH.get(self._reason, "stop"),
            model=self._model,
        )


def _message(message: Message) -> dict[str, Any]:
    said: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "tool":
        said["tool_name"] = message.name
    if message.tool_calls:
        said["tool_calls"] = [
            {"function": {"name": call.name, "arguments": call.arguments}} for call in message.tool_calls
        ]
    return said
