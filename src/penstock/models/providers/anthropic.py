"""Anthropic's messages. Structured output is the input of a tool that the model has to call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from penstock.models.base import Chunk, Finish, Message, Request, ToolCall, Usage, read_arguments
from penstock.models.endpoint import Endpoint
from penstock.models.providers.dialect import InBand, Post, Said, post
from penstock.models.structured import compact, instruct

OUTPUT = "give_answer"
"""The tool that takes the answer, where it has to have a form."""

MOST = 4096
"""Tokens of an answer where the request does not say; here a limit has to be given."""

FINISH: dict[str, Finish] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}


class _Block(Struct):
    type: str = "text"
    text: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] | None = None


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
        form = request.output if (request.output or {}).get("type") == "object" else None
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
        tools = [
            {"name": t.name, "description": t.description, "input_schema": t.parameters}
            for t in request.tools
        ]
        if form is not None:
            wanted = "Give the final answer, in the form that is asked for."
            tools.append({"name": OUTPUT, "description": wanted, "input_schema": form})
        if tools:
            body["tools"] = tools
            body["tool_choice"] = _choice(request, formed=form is not None)
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
        self._usage = _Usage()

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
        _, pieces = self._blocks.setdefault(at, (_Block(), []))
        piece = delta.text or delta.partial_json
        if piece:
            pieces.append(piece)
        return [Chunk(delta.text)] if delta.text else []

    def _ended(self, at: int) -> list[Chunk]:
        block, pieces = self._blocks.get(at, (_Block(), []))
        if block.type != "tool_use":
            return []
        if block.name == OUTPUT:
            return [Chunk("".join(pieces))]
        return [Chunk(tool_call=read_arguments(block.id, block.name, "".join(pieces) or block.input))]

    def _count(self, usage: _Usage | None) -> None:
        """Later counts replace earlier ones, field by field."""
        for name in _Usage.__struct_fields__:
            value = getattr(usage, name, None)
            if value is not None:
                setattr(self._usage, name, value)

    def said(self) -> Said:
        written = [
            (block, "".join(pieces) or block.text or block.input)
            for _, (block, pieces) in sorted(self._blocks.items())
        ]
        return _said(written, self._model, self._reason, _used(self._usage))


def _said(written: Sequence[tuple[_Block, Any]], model: str, reason: str, usage: Usage) -> Said:
    """Blocks and what is in them. The tool that takes the answer is not a call but the answer."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    form = ""
    for block, content in written:
        if block.type == "text":
            texts.append(block.text or content or "")
        elif block.type == "tool_use" and block.name == OUTPUT:
            form = content if isinstance(content, str) else compact(content or {})
        elif block.type == "tool_use":
            calls.append(read_arguments(block.id, block.name, content))
    finish = FINISH.get(reason, "stop")
    if finish == "tool_calls" and not calls:
        finish = "stop"
    return Said(
        text=form if form and not calls else "".join(texts),
        tool_calls=tuple(calls),
        usage=usage,
        finish="tool_calls" if calls else finish,
        model=model,
        refused=reason if reason == "refusal" else "",
    )


def _choice(request: Request, *, formed: bool) -> dict[str, Any]:
    if formed:
        return {"type": "any"} if request.tools else {"type": "tool", "name": OUTPUT}
    return {"type": {"auto": "auto", "required": "any", "none": "none"}[request.tool_choice]}


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
    blocks: list[dict[str, Any]] = []
    if message.content:
        blocks.append({"type": "text", "text": message.content})
    blocks += [
        {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": call.arguments}
        for call in message.tool_calls
    ]
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
