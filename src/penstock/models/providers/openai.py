"""OpenAI's chat completions, and everyone who speaks them: Azure, GitHub Models, Groq, vLLM, llama.cpp …"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from penstock.models.base import Chunk, Finish, Message, Request, ToolCall, Usage, read_arguments
from penstock.models.endpoint import Endpoint
from penstock.models.providers.dialect import InBand, Post, Said, new_id, post
from penstock.models.structured import compact, instruct

FINISH: dict[str, Finish] = {
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}
"""Every other reason is a stop, or a refusal."""

SIGNED = "openai:"
"""Whose a call's signature is: nobody else is sent it."""

REFUSALS = frozenset({"content_filter", "refusal"})


# --- the wire, as far as we read it ---


class _Function(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Call(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function = msgspec.field(default_factory=_Function)
    extra_content: dict[str, Any] | None = None


class _Said(Struct):
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[_Call] | None = None
    refusal: str | None = None


class _Choice(Struct):
    message: _Said | None = None
    delta: _Said | None = None
    finish_reason: str | None = None


class _Details(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Completion(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    model: str | None = None
    error: Any = None


class _Vector(Struct):
    embedding: list[float]
    index: int = 0


class _Vectors(Struct):
    data: list[_Vector] | None = None
    usage: _Usage | None = None
    error: Any = None


_completion = msgspec.json.Decoder(_Completion)
_vectors = msgspec.json.Decoder(_Vectors)


class OpenAI:
    events = True

    def ask(self, to: Endpoint, model: str, request: Request, *, stream: bool) -> Post:
        enforced = _enforced(to, request)
        if enforced != "schema":
            request = instruct(request)
        body: dict[str, Any] = {"model": model, "messages": [_message(each) for each in request.messages]}
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": t.name, "description": t.description, "parameters": t.parameters},
                }
                for t in request.tools
            ]
            body["tool_choice"] = request.tool_choice
        if request.output is not None and enforced != "prompt":
            body["response_format"] = _format(enforced, request.output)
        if request.max_tokens is not None:
            body[to.max_tokens] = request.max_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if stream:
            body["stream"] = True
            if to.counts:
                body["stream_options"] = {"include_usage": True}
        return post(to, to.chat, model, body)

    def answer(self, body: bytes) -> Said:
        found = _completion.decode(body)
        if found.error:
            raise InBand(found.error)
        if not found.choices or (said := found.choices[0].message) is None:
            raise msgspec.ValidationError("there is no choice in it")
        reason = found.choices[0].finish_reason or "stop"
        calls = tuple(_called(call) for call in said.tool_calls or ())
        text = _text(said)
        return Said(
            text=text,
            tool_calls=calls,
            usage=_used(found.usage),
            finish="tool_calls" if calls else FINISH.get(reason, "stop"),
            model=found.model or "",
            refused=_refused(reason, said, text),
        )

    def listener(self) -> Stream:
        return Stream()

    def embed(self, to: Endpoint, model: str, texts: Sequence[str]) -> Post:
        return post(to, to.embed, model, {"model": model, "input": list(texts), "encoding_format": "float"})

    def vectors(self, body: bytes) -> tuple[Sequence[Sequence[float]], Usage]:
        found = _vectors.decode(body)
        if found.error:
            raise InBand(found.error)
        if found.data is None:
            raise msgspec.ValidationError("there is no data in it")
        return [each.embedding for each in sorted(found.data, key=lambda v: v.index)], _used(found.usage)


class Stream:
    """One streamed completion."""

    def __init__(self) -> None:
        self.complete = self.over = False
        self._text: list[str] = []
        self._calls: dict[int, _Call] = {}
        self.usage = Usage()
        self._reason = ""
        self._refused = ""
        self._model = ""

    def hear(self, message: bytes) -> list[Chunk]:
        if message == b"[DONE]":
            self.complete = self.over = True
            return []
        found = _completion.decode(message)
        if found.error:
            raise InBand(found.error)
        self._model = found.model or self._model
        if found.usage is not None:
            self.usage = _used(found.usage)
        return [chunk for choice in (found.choices or ())[:1] for chunk in self._choice(choice)]

    def _choice(self, choice: _Choice) -> list[Chunk]:
        chunks = []
        delta = choice.delta or choice.message or _Said()
        for call in delta.tool_calls or ():
            self._add(call)
        if text := _text(delta):
            self._text.append(text)
            chunks.append(Chunk(text))
        if delta.refusal:
            self._refused = "refusal"
        if choice.finish_reason:
            self._reason = choice.finish_reason
            self.complete = True  # usage may still follow
            chunks += [Chunk(tool_call=call) for call in self._called()]
        return chunks

    def _add(self, piece: _Call) -> None:
        """Arguments come in pieces, told apart by their index; a new id without one begins a new call."""
        at = piece.index
        if at is None:
            at = len(self._calls) if piece.id or not self._calls else len(self._calls) - 1
        call = self._calls.setdefault(at, _Call())
        call.id = piece.id or call.id or new_id()
        call.extra_content = piece.extra_content or call.extra_content
        call.function.name = piece.function.name or call.function.name
        more = piece.function.arguments
        if isinstance(more, dict):
            call.function.arguments = more
        elif more:
            call.function.arguments = f"{call.function.arguments or ''}{more}"

    def _called(self) -> tuple[ToolCall, ...]:
        return tuple(_called(self._calls[at]) for at in sorted(self._calls))

    def said(self) -> Said:
        calls = self._called()
        text = "".join(self._text)
        return Said(
            text=text,
            tool_calls=calls,
            usage=self.usage,
            finish="tool_calls" if calls else FINISH.get(self._reason, "stop"),
            model=self._model,
            refused=self._refused or (self._reason if self._reason in REFUSALS else ""),
        )


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call, "content": message.content}
    said: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        said["tool_calls"] = [_call(call) for call in message.tool_calls]
        said["content"] = message.content or None
    return said


def _call(call: ToolCall) -> dict[str, Any]:
    written = call.raw or compact(call.arguments)
    wish = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": written}}
    if call.signature.startswith(SIGNED):
        wish["extra_content"] = msgspec.json.decode(call.signature.removeprefix(SIGNED))
    return wish


def _called(call: _Call) -> ToolCall:
    found = read_arguments(call.id or new_id(), call.function.name or "", call.function.arguments)
    if call.extra_content:
        found = msgspec.structs.replace(found, signature=SIGNED + compact(call.extra_content))
    return found


def _enforced(to: Endpoint, request: Request) -> str:
    """How far the provider sees to the output: a schema whose root is not an object is left to us."""
    if to.output == "prompt" or (request.output or {}).get("type", "object") != "object":
        return "prompt"
    return to.output


def _format(enforced: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    if enforced == "object":
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema, "strict": strict(schema)},
    }


_ENFORCED = frozenset(
    {
        "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref",
        "$defs", "definitions", "description", "title", "pattern", "format", "minItems", "maxItems",
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    }
)  # fmt: skip
"""What OpenAI can enforce; a schema with anything else in it is refused when enforcement is asked for."""


def strict(schema: Any) -> bool:
    """Whether OpenAI would enforce this schema: every object is closed, and all of it is required."""
    if not isinstance(schema, Mapping):
        return isinstance(schema, bool)
    if not _ENFORCED.issuperset(schema):
        return False
    properties = schema.get("properties", {})
    closed = schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(
        properties
    )
    if (schema.get("type") == "object" or properties) and not closed:
        return False
    parts = [*properties.values(), *schema.get("$defs", {}).values(), *schema.get("definitions", {}).values()]
    parts += [*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())]
    return all(map(strict, parts))


def _text(said: _Said) -> str:
    if isinstance(said.content, list):
        return "".join(str(part.get("text", "")) for part in said.content)
    return said.content or ""


def _refused(reason: str, said: _Said, text: str) -> str:
    if reason in REFUSALS:
        return reason
    return "refusal" if said.refusal and not text else ""


def _used(usage: _Usage | None) -> Usage:
    if usage is None:
        return Usage()
    details = usage.prompt_tokens_details
    cached = (details.cached_tokens or 0) if details else 0
    return Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0, cached)
