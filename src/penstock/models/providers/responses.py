"""OpenAI's responses, which its newer models want where tools are called; Azure has them, too.

Nothing is kept at the provider: every request carries the conversation. Items go back without the ids
that the provider gave them, so that none of them refers to reasoning that was never returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from penstock.models.base import Chunk, Message, Request, ToolCall, Usage, read_arguments
from penstock.models.endpoint import Endpoint
from penstock.models.providers.dialect import InBand, Post, Said, new_id, post
from penstock.models.providers.openai import OpenAI, strict
from penstock.models.structured import compact, instruct

LEAST: Final = 16
"""Tokens of an answer that can be asked for."""


class _Part(Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class _Item(Struct):
    type: str = ""
    content: list[_Part] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None


class _Cached(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Cached | None = None


class _Unfinished(Struct):
    reason: str | None = None


class _Response(Struct):
    status: str = ""
    output: list[_Item] | None = None
    model: str | None = None
    usage: _Usage | None = None
    incomplete_details: _Unfinished | None = None
    error: Any = None


class _Event(Struct):
    type: str = ""
    delta: Any = None
    item: _Item | None = None
    response: _Response | None = None
    error: Any = None
    code: str | None = None
    message: str | None = None


_response = msgspec.json.Decoder(_Response)
_event = msgspec.json.Decoder(_Event)


class Responses(OpenAI):
    """Embeddings are the same as ever."""

    def ask(self, to: Endpoint, model: str, request: Request, *, stream: bool) -> Post:
        form = request.output if (request.output or {}).get("type") == "object" else None
        if form is None:
            request = instruct(request)
        items = [item for message in request.messages for item in _items(message)]
        body: dict[str, Any] = {"model": model, "input": items, "store": False}
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,
                }
                for tool in request.tools
            ]
            body["tool_choice"] = request.tool_choice
        if form is not None:
            wanted = {"type": "json_schema", "name": "answer", "schema": form, "strict": strict(form)}
            body["text"] = {"format": wanted}
        if request.max_tokens is not None:
            body["max_output_tokens"] = max(LEAST, request.max_tokens)
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if stream:
            body["stream"] = True
        return post(to, to.chat, model, body)

    def answer(self, body: bytes) -> Said:
        return _said(_response.decode(body))

    def listener(self) -> Stream:  # type: ignore[override]  # the same protocol, another stream
        return Stream()


class Stream:
    """One streamed response: its last event has all of it once more."""

    def __init__(self) -> None:
        self.complete = self.over = False
        self._last = _Response()

    @property
    def usage(self) -> Usage:
        return _used(self._last.usage)

    def hear(self, message: bytes) -> list[Chunk]:
        event = _event.decode(message)
        if event.error or event.type == "error":
            raise InBand(event.error or {"code": event.code, "message": event.message})
        match event.type:
            case "response.output_text.delta" if isinstance(event.delta, str) and event.delta:
                return [Chunk(event.delta)]
            case "response.output_item.done" if event.item is not None:
                return [Chunk(tool_call=_called(event.item))] if event.item.type == "function_call" else []
            case "response.completed" | "response.incomplete" | "response.failed":
                self._last = event.response or _Response()
                self.complete = self.over = True
        return []

    def said(self) -> Said:
        return _said(self._last)


def _said(found: _Response) -> Said:
    if found.error or found.status == "failed":
        raise InBand(found.error or {"message": "the response failed"})
    if found.output is None or found.status not in ("completed", "incomplete"):
        raise msgspec.ValidationError(f"it is no finished response: {found.status or 'it has no status'}")
    parts = [part for item in found.output if item.type == "message" for part in item.content or ()]
    text = "".join(part.text or "" for part in parts)
    calls = tuple(_called(item) for item in found.output if item.type == "function_call")
    cut = (found.incomplete_details.reason if found.incomplete_details else "") or ""
    declined = any(part.refusal for part in parts) and not text
    return Said(
        text=text,
        tool_calls=calls,
        usage=_used(found.usage),
        finish="tool_calls" if calls else "length" if cut == "max_output_tokens" else "stop",
        model=found.model or "",
        refused="content_filter" if cut == "content_filter" else "refusal" if declined else "",
    )


def _called(item: _Item) -> ToolCall:
    return read_arguments(item.call_id or new_id(), item.name or "", item.arguments)


def _items(message: Message) -> Sequence[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "function_call_output", "call_id": message.tool_call, "output": message.content}]
    items: list[dict[str, Any]] = []
    if message.content or not message.tool_calls:
        items.append({"role": message.role, "content": message.content})
    for call in message.tool_calls:
        written = call.raw or compact(call.arguments)
        items.append({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": written})
    return items


def _used(usage: _Usage | None) -> Usage:
    if usage is None:
        return Usage()
    details = usage.input_tokens_details
    cached = (details.cached_tokens or 0) if details else 0
    return Usage(usage.input_tokens or 0, usage.output_tokens or 0, cached)
