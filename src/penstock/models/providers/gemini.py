"""Google's Gemini: contents made of parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.models.base import Chunk, Finish, Message, Request, ToolCall, Usage, read_arguments
from penstock.models.endpoint import Endpoint
from penstock.models.providers.dialect import InBand, Post, Said, new_id, post
from penstock.models.structured import instruct

FINISH: dict[str, Finish] = {"MAX_TOKENS": "length", "CONTINUATION": "length"}

SIGNED = "gemini:"
"""Whose a call's signature is: nobody else is sent it."""

UNSIGNED = "skip_thought_signature_validator"
"""In the place of a signature, for calls that another provider's model wished for."""

ENDED_WELL = frozenset({"STOP", "MAX_TOKENS", "CONTINUATION", "FINISH_REASON_UNSPECIFIED"})
MALFORMED = frozenset(
    {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE", "OTHER"}
)
"""The model stumbled; nobody refused anything."""


class _Called(Struct, rename="camel"):
    name: str = ""
    args: dict[str, Any] | None = None
    id: str | None = None


class _Part(Struct, rename="camel"):
    text: str | None = None
    thought: bool = False
    function_call: _Called | None = None
    thought_signature: str | None = None


class _Content(Struct):
    parts: list[_Part] | None = None


class _Candidate(Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None


class _Feedback(Struct, rename="camel"):
    block_reason: str | None = None


class _Usage(Struct, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None


class _Reply(Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Usage | None = None
    model_version: str = ""
    error: Any = None


class _Vector(Struct):
    values: list[float]


class _Vectors(Struct):
    embeddings: list[_Vector] | None = None
    error: Any = None


_reply = msgspec.json.Decoder(_Reply)
_vectors = msgspec.json.Decoder(_Vectors)


class Gemini:
    events = True

    def ask(self, to: Endpoint, model: str, request: Request, *, stream: bool) -> Post:
        settings: dict[str, Any] = {}
        if request.output is not None and not request.tools:
            settings |= {"responseMimeType": "application/json", "responseJsonSchema": request.output}
        else:
            request = instruct(request)  # most models refuse a response schema next to tools
        if request.max_tokens is not None:
            settings["maxOutputTokens"] = request.max_tokens
        if request.temperature is not None:
            settings["temperature"] = request.temperature
        body: dict[str, Any] = {"contents": _contents(request.messages)}
        told = [{"text": each.content} for each in request.messages if each.role == "system"]
        if told:
            body["systemInstruction"] = {"parts": told}
        if request.tools:
            body["tools"] = [{"functionDeclarations": [_declared(tool) for tool in request.tools]}]
            mode = {"auto": "AUTO", "required": "ANY", "none": "NONE"}[request.tool_choice]
            body["toolConfig"] = {"functionCallingConfig": {"mode": mode}}
        if settings:
            body["generationConfig"] = settings
        if stream:
            return post(to, to.chat.replace(":generate", ":streamGenerate"), _bare(model), body, alt="sse")
        return post(to, to.chat, _bare(model), body)

    def answer(self, body: bytes) -> Said:
        stream = Stream()
        stream.hear(body)
        if not stream.complete:
            raise msgspec.ValidationError("there is no finished candidate in it")
        return stream.said()

    def listener(self) -> Stream:
        return Stream()

    def embed(self, to: Endpoint, model: str, texts: Sequence[str]) -> Post:
        name = f"models/{_bare(model)}"
        asked = [{"model": name, "content": {"parts": [{"text": text}]}} for text in texts]
        return post(to, to.embed, _bare(model), {"requests": asked})

    def vectors(self, body: bytes) -> tuple[Sequence[Sequence[float]], Usage]:
        found = _vectors.decode(body)
        if found.error:
            raise InBand(found.error)
        if found.embeddings is None:
            raise msgspec.ValidationError("there are no embeddings in it")
        return [each.values for each in found.embeddings], Usage()


class Stream:
    """One answer: every message of the stream has the form of a whole one."""

    over = False
    """Only the end of the connection says so."""

    def __init__(self) -> None:
        self.complete = False
        self._text: list[str] = []
        self._calls: list[ToolCall] = []
        self._reason = ""
        self._blocked = ""
        self._model = ""
        self.usage = Usage()

    def hear(self, message: bytes) -> list[Chunk]:
        found = _reply.decode(message)
        if found.error:
            raise InBand(found.error)
        self._model = found.model_version or self._model
        if found.usage_metadata is not None:
            self.usage = _used(found.usage_metadata)
        if found.prompt_feedback is not None and found.prompt_feedback.block_reason:
            self._blocked = found.prompt_feedback.block_reason
            self.complete = True
        if not found.candidates:
            return []
        first = found.candidates[0]
        chunks = [self._part(part) for part in (first.content.parts if first.content else None) or ()]
        if first.finish_reason:
            self._reason = first.finish_reason
            self.complete = True
        return [chunk for chunk in chunks if chunk is not None]

    def _part(self, part: _Part) -> Chunk | None:
        if part.function_call is not None:
            called = part.function_call
            call = read_arguments(called.id or new_id(), called.name, called.args)
            self._calls.append(replace(call, signature=SIGNED + (part.thought_signature or "")))
            return Chunk(tool_call=self._calls[-1])
        if not part.text or part.thought:
            return None
        self._text.append(part.text)
        return Chunk(part.text)

    def said(self) -> Said:
        if self._reason in MALFORMED and not self._calls:
            raise msgspec.ValidationError(f"the model gave up: {self._reason}")
        refused = self._blocked or ("" if self._reason in ENDED_WELL else self._reason)
        return Said(
            text="".join(self._text),
            tool_calls=tuple(self._calls),
            usage=self.usage,
            finish="tool_calls" if self._calls else FINISH.get(self._reason, "stop"),
            model=self._model,
            refused="" if self._calls else refused,
        )


def _bare(model: str) -> str:
    return model.removeprefix("models/")


def _declared(tool: Any) -> dict[str, Any]:
    declared = {"name": tool.name, "description": tool.description}
    return {**declared, "parametersJsonSchema": tool.parameters} if tool.parameters else declared


def _contents(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Turns alternate here: what one side says in a row is one content of several parts."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "model" if message.role == "assistant" else "user"
        parts = _parts(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["parts"] += parts
        elif parts:
            turns.append({"role": role, "parts": parts})
    return turns


def _parts(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        answered = {"id": message.tool_call, "name": message.name, "response": {"result": message.content}}
        return [{"functionResponse": answered}]
    parts: list[dict[str, Any]] = [{"text": message.content}] if message.content else []
    for at, call in enumerate(message.tool_calls):
        wish = {"id": call.id, "name": call.name, "args": call.arguments}
        part: dict[str, Any] = {"functionCall": wish}
        if call.signature.startswith(SIGNED):
            if signature := call.signature.removeprefix(SIGNED):
                part["thoughtSignature"] = signature
        elif not at:
            part["thoughtSignature"] = UNSIGNED
        parts.append(part)
    return parts


def _used(usage: _Usage) -> Usage:
    """Thoughts are paid for like output."""
    output = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
    return Usage(usage.prompt_token_count or 0, output, usage.cached_content_token_count or 0)
