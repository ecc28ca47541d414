"""Anthropic's messages.

No tool is ever forced in order to get an output: models that always think refuse that. What a model
thought before it called a tool goes back to it with the call, as it came.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.models.base import Chunk, Finish, Message, Request, ToolCall, Usage, read_arguments
from penstock.models.endpoint import Endpoint
from penstock.models.providers.dialect import InBand, Post, Said, post
from penstock.models.providers.promises import promised
from penstock.models.structured import compact, instruct

MOST = 16_000
"""Tokens of an answer where the request does not say. A limit has to be given; thoughts count, too."""

SIGNED = "anthropic:"
"""Whose a call's signature is: here it holds the thoughts before the call, and nobody else is sent it."""

THOUGHTS = frozenset({"thinking", "redacted_thinking"})

FINISH: dict[str, Finish] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}


CHOICES = {"auto": "auto", "required": "any", "none": "none"}


class _Block(Struct):
    type: str = "text"
    text: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] | None = None
    thinking: str = ""
    signature: str = ""
    data: str = ""


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Reply(Struct):
    content: list[_Block] | None = None
    model: str = ""
    stop_reason: str | None = None
    usage: _Usage | None = None
    error: Any = None


class _Delta(Struct):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    stop_reason: str | None = None


class _Event(Struct):
    type: str = ""
    index: int = 0
    message: _Reply | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: Any = None


_ODD = re.compile(r"[^A-Za-z0-9_-]")
_reply = msgspec.json.Decoder(_Reply)
_event = msgspec.json.Decoder(_Event)


class Anthropic:
    events = True

    def ask(self, to: Endpoint, model: str, request: Request, *, stream: bool) -> Post:
        form = promised(request.output) if request.output is not None else None
        if form is None:
            request = instruct(request)
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": request.max_tokens or MOST,
            "messages": _messages(request.messages),
        }
        told = "\n\n".join(each.content for each in request.messages if each.role == "system")
        if told:
            body["system"] = told
        if request.tools:
            body["tools"] = [
                {"name": t.name, "description": t.description, "input_schema": t.parameters}
                for t in request.tools
            ]
            body["tool_choice"] = {"type": CHOICES[request.tool_choice]}
        if form is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": form}}
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if stream:
            body["stream"] = True
        return post(to, to.chat, model, body)

    def answer(self, body: bytes) -> Said:
        found = _reply.decode(body)
        if found.error:
            raise InBand(found.error)
        if found.content is None:
            raise msgspec.ValidationError("there is no content in it")
        written = [(block, block.input) for block in found.content]
        return _said(written, found.model, found.stop_reason or "end_turn", _used(found.usage))

    def listener(self) -> Stream:
        return Stream()

    def embed(self, to: Endpoint, model: str, texts: Sequence[str]) -> Post:
        raise NotImplementedError

    def vectors(self, body: bytes) -> tuple[Sequence[Sequence[float]], Usage]:
        raise NotImplementedError


class Stream:
    """One streamed message: blocks that are begun, added to and ended."""

    def __init__(self) -> None:
        self.complete = self.over = False
        self._blocks: dict[int, tuple[_Block, list[str]]] = {}
        self._model = ""
        self._reason = ""
        self._counted = _Usage()

    @property
    def usage(self) -> Usage:
        return _used(self._counted)

    def hear(self, message: bytes) -> list[Chunk]:
        event = _event.decode(message)
        match event.type:
            case "error":
                raise InBand(event.error)
            case "message_start" if event.message is not None:
                self._model = event.message.model
                self._count(event.message.usage)
            case "content_block_start" if event.content_block is not None:
                self._blocks[event.index] = (event.content_block, [])
            case "content_block_delta" if event.delta is not None:
                return self._add(event.index, event.delta)
            case "content_block_stop":
                return self._ended(event.index)
            case "message_delta":
                self._reason = (event.delta.stop_reason if event.delta else None) or self._reason
                self._count(event.usage)
            case "message_stop":
                self.complete = self.over = True
        return []  # a ping, or something newer than this

    def _add(self, at: int, delta: _Delta) -> list[Chunk]:
        block, pieces = self._blocks.setdefault(at, (_Block(), []))
        block.thinking += delta.thinking
        block.signature += delta.signature
        piece = delta.text or delta.partial_json
        if piece:
            pieces.append(piece)
        return [Chunk(delta.text)] if delta.text else []

    def _ended(self, at: int) -> list[Chunk]:
        block, _ = self._blocks.get(at, (_Block(), []))
        if block.type != "tool_use":
            return []
        said = _said(self._written(at), self._model, self._reason, Usage())
        return [Chunk(tool_call=said.tool_calls[-1])]

    def _written(self, until: int | None = None) -> list[tuple[_Block, Any]]:
        """The blocks so far, up to and with this one, and what is in them."""
        return [
            (block, "".join(pieces) or block.text or block.input)
            for at, (block, pieces) in sorted(self._blocks.items())
            if until is None or at <= until
        ]

    def _count(self, usage: _Usage | None) -> None:
        """Later counts replace earlier ones, field by field."""
        for name in _Usage.__struct_fields__:
            value = getattr(usage, name, None)
            if value is not None:
                setattr(self._counted, name, value)

    def said(self) -> Said:
        return _said(self._written(), self._model, self._reason, self.usage)


def _said(written: Sequence[tuple[_Block, Any]], model: str, reason: str, usage: Usage) -> Said:
    """Blocks and what is in them."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    thoughts: list[dict[str, str]] = []
    for block, content in written:
        if block.type == "text":
            texts.append(block.text or content or "")
        elif block.type in THOUGHTS:
            thoughts.append(_thought(block))
        elif block.type == "tool_use":
            call = read_arguments(block.id, block.name, content)
            calls.append(replace(call, signature=SIGNED + compact(thoughts) if thoughts else ""))
            thoughts = []
    finish = FINISH.get(reason, "stop")
    if finish == "tool_calls" and not calls:
        finish = "stop"
    return Said(
        text="".join(texts),
        tool_calls=tuple(calls),
        usage=usage,
        finish="tool_calls" if calls else finish,
        model=model,
        refused=reason if reason == "refusal" else "",
    )


def _thought(block: _Block) -> dict[str, str]:
    if block.type == "redacted_thinking":
        return {"type": block.type, "data": block.data}
    return {"type": block.type, "thinking": block.thinking, "signature": block.signature}


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Turns alternate here, so what one side says in a row is one message of several blocks."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": _id(message.tool_call), "content": message.content}]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": message.content}] if message.content else []
    for at, call in enumerate(message.tool_calls):
        thoughts: list[dict[str, Any]] = []
        if call.signature.startswith(SIGNED):
            thoughts = msgspec.json.decode(call.signature.removeprefix(SIGNED))
        wish = {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": call.arguments}
        blocks = [*blocks, *thoughts, wish] if at else [*thoughts, *blocks, wish]
    return blocks


def _id(given: str) -> str:
    """An id from another provider, as it is taken here."""
    return _ODD.sub("_", given)


def _used(usage: _Usage | None) -> Usage:
    """Anthropic counts what was cached apart; we count it as part of the input."""
    if usage is None:
        return Usage()
    cached = usage.cache_read_input_tokens or 0
    total = (usage.input_tokens or 0) + cached + (usage.cache_creation_input_tokens or 0)
    return Usage(total, usage.output_tokens or 0, cached)
