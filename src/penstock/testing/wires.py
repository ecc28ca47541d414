"""What providers put on the wire: answers and streams, in the form of each. The other side of the dialects.

Written from the providers' references and not from our dialects, so that the two can disagree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.models.endpoint import Speech

End = Literal["stop", "length", "refused"]


@dataclass(frozen=True, kw_only=True)
class Called:
    """A tool call that the model makes."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str = "call_1"
    written: str = ""
    """The arguments as text, where they are to be something else than JSON."""

    @property
    def text(self) -> str:
        return self.written or json.dumps(self.arguments)


@dataclass(frozen=True, kw_only=True)
class Says:
    """An answer, whoever gives it."""

    text: str = "Hello there, and good day."
    calls: Sequence[Called] = ()
    end: End = "stop"
    input: int = 9
    output: int = 3
    cached: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def pieces(self) -> list[str]:
        """The text as it is streamed."""
        first, *rest = self.text.split(" ")
        return [piece for piece in (first, *(f" {word}" for word in rest)) if piece]


def whole(speech: Speech, says: Says, model: str) -> dict[str, Any]:
    """The answer in one piece."""
    match speech:
        case "responses":
            return _response(says, model)
        case "openai":
            message: dict[str, Any] = {"role": "assistant", "content": says.text or None, "refusal": None}
            if says.calls:
                message["tool_calls"] = [_openai_call(call) for call in says.calls]
            choice = {"index": 0, "message": message, "finish_reason": _openai_end(says)}
            head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": f"{model}-2026"}
            return {**head, "choices": [choice], "usage": _openai_usage(says)}
        case "anthropic":
            head = {"id": "msg_1", "type": "message", "role": "assistant", "model": f"{model}-2026"}
            blocks = _blocks(says)
            tail = {**_anthropic_end(says, blocks), "usage": _anthropic_usage(says)}
            return {**head, "content": blocks, **tail}
        case "gemini":
            return _gemini(says, model, [{"text": says.text}] if says.text else [], last=True)
        case "ollama":
            return _ollama(says, model, says.text, last=True)


def streamed(speech: Speech, says: Says, model: str) -> list[bytes]:
    """The answer in pieces, each as it goes over the wire."""
    match speech:
        case "responses":
            return [f"event: {e['type']}\n".encode() + _event(e) for e in _response_stream(says, model)]
        case "openai":
            return [*map(_event, _openai_stream(says, model)), b"data: [DONE]\n\n"]
        case "anthropic":
            return [f"event: {e['type']}\n".encode() + _event(e) for e in _anthropic_stream(says, model)]
        case "gemini":
            parts = [{"text": piece} for piece in says.pieces]
            last = len(parts) - 1 if parts and not says.calls else len(parts)
            events = [_gemini(says, model, [part], last=at == last) for at, part in enumerate(parts)]
            if last == len(parts):
                events.append(_gemini(says, model, [], last=True))
            return [_event(event).replace(b"\n", b"\r\n") for event in events]
        case "ollama":
            lines = [_ollama(says, model, piece, last=False) for piece in says.pieces]
            lines.append(_ollama(says, model, "", last=True))
            return [json.dumps(line).encode() + b"\n" for line in lines]


def vectors(speech: Speech, texts: Sequence[str]) -> dict[str, Any]:
    """Vectors that say which text they belong to: its length, and its place."""
    found = [[float(len(text)), float(at)] for at, text in enumerate(texts)]
    match speech:
        case "openai" | "responses" | "anthropic":
            data = [{"object": "embedding", "index": at, "embedding": v} for at, v in enumerate(found)]
            return {"object": "list", "data": data[::-1], "usage": {"prompt_tokens": 7, "total_tokens": 7}}
        case "gemini":
            return {"embeddings": [{"values": each} for each in found]}
        case "ollama":
            return {"model": "m", "embeddings": found, "prompt_eval_count": 7}


def texts_in(speech: Speech, wanted: Mapping[str, Any]) -> list[str]:
    if speech == "gemini":
        return [each["content"]["parts"][0]["text"] for each in wanted["requests"]]
    return list(wanted["input"])


def _event(event: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


# --- OpenAI ---


def _openai_call(call: Called) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text}}


def _openai_end(says: Says) -> str:
    if says.calls:
        return "tool_calls"
    return {"stop": "stop", "length": "length", "refused": "content_filter"}[says.end]


def _openai_usage(says: Says) -> dict[str, Any]:
    counted = {"prompt_tokens": says.input, "completion_tokens": says.output}
    return {**counted, "prompt_tokens_details": {"cached_tokens": says.cached}}


def _openai_stream(says: Says, model: str) -> Iterator[dict[str, Any]]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": f"{model}-2026"}

    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in says.pieces:
        yield chunk({"content": piece})
    for at, call in enumerate(says.calls):
        function = {"name": call.name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": at, "id": call.id, "type": "function", "function": function}]})
        middle = len(call.text) // 2
        for part in (call.text[:middle], call.text[middle:]):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": part}}]})
    yield chunk({}, _openai_end(says))
    yield {**head, "choices": [], "usage": _openai_usage(says)}


# --- OpenAI's responses ---


def _message_item(says: Says) -> dict[str, Any]:
    part = {"type": "output_text", "text": says.text, "annotations": [], "logprobs": []}
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}


def _call_item(call: Called) -> dict[str, Any]:
    item = {"id": f"fc_{call.id}", "type": "function_call", "status": "completed", "call_id": call.id}
    return {**item, "name": call.name, "arguments": call.text}


def _response(says: Says, model: str) -> dict[str, Any]:
    reasoning = {"id": "rs_1", "type": "reasoning", "summary": []}
    items = [reasoning, *([_message_item(says)] if says.text else []), *map(_call_item, says.calls)]
    cut = {"length": "max_output_tokens", "refused": "content_filter"}.get(says.end)
    usage = {
        "input_tokens": says.input,
        "input_tokens_details": {"cached_tokens": says.cached},
        "output_tokens": says.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": says.input + says.output,
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": cut} if cut else None,
        "model": f"{model}-2026",
        "output": items,
        "usage": usage,
    }


def _response_stream(says: Says, model: str) -> Iterator[dict[str, Any]]:
    whole = _response(says, model)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun, "sequence_number": 0}
    for at, item in enumerate(whole["output"]):
        place = {"output_index": at, "item_id": item["id"]}
        yield {"type": "response.output_item.added", **place, "item": {**item, "status": "in_progress"}}
        if item["type"] == "message":
            for piece in says.pieces:
                yield {"type": "response.output_text.delta", **place, "content_index": 0, "delta": piece}
            yield {"type": "response.output_text.done", **place, "content_index": 0, "text": says.text}
        if item["type"] == "function_call":
            middle = len(item["arguments"]) // 2
            for part in (item["arguments"][:middle], item["arguments"][middle:]):
                yield {"type": "response.function_call_arguments.delta", **place, "delta": part}
        yield {"type": "response.output_item.done", **place, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole, "sequence_number": 99}


# --- Anthropic ---


def _blocks(says: Says) -> list[dict[str, Any]]:
    """Text and tool calls; a thought, whose text is withheld, stands before the first of these."""
    calls = [{"type": "tool_use", "id": c.id, "name": c.name, "input": dict(c.arguments)} for c in says.calls]
    thought = {"type": "thinking", "thinking": "", "signature": "dGhvdWdodA=="}
    return [
        *([thought] if calls else []),
        *([{"type": "text", "text": says.text}] if says.text else []),
        *calls,
    ]


def _anthropic_end(says: Says, blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    called = any(block["type"] == "tool_use" for block in blocks)
    reason = {"stop": "end_turn", "length": "max_tokens", "refused": "refusal"}[says.end]
    return {"stop_reason": "tool_use" if called else reason, "stop_sequence": None}


def _anthropic_usage(says: Says) -> dict[str, Any]:
    fresh = {"input_tokens": says.input - says.cached, "output_tokens": says.output}
    return {**fresh, "cache_read_input_tokens": says.cached, "cache_creation_input_tokens": 0}


def _anthropic_stream(says: Says, model: str) -> Iterator[dict[str, Any]]:
    usage = _anthropic_usage(says)
    begun: dict[str, Any] = {
        "id": "msg_1",
        "role": "assistant",
        "content": [],
        "model": f"{model}-2026",
        "stop_reason": None,
    }
    yield {"type": "message_start", "message": {**begun, "usage": {**usage, "output_tokens": 1}}}
    yield {"type": "ping"}
    blocks = _blocks(says)
    for at, block in enumerate(blocks):
        empty = {name: "" if name in ("text", "signature") else value for name, value in block.items()}
        begun = {**empty, "input": {}} if block["type"] == "tool_use" else empty
        yield {"type": "content_block_start", "index": at, "content_block": begun}
        for delta in _deltas(says, block):
            yield {"type": "content_block_delta", "index": at, "delta": delta}
        yield {"type": "content_block_stop", "index": at}
    counted = {"output_tokens": says.output}
    yield {"type": "message_delta", "delta": _anthropic_end(says, blocks), "usage": counted}
    yield {"type": "message_stop"}


def _deltas(says: Says, block: Mapping[str, Any]) -> list[dict[str, Any]]:
    match block["type"]:
        case "text":
            return [{"type": "text_delta", "text": piece} for piece in says.pieces]
        case "thinking":
            return [{"type": "signature_delta", "signature": block["signature"]}]
        case _:
            written = json.dumps(block["input"])
            middle = len(written) // 2
            parts = (written[:middle], written[middle:])
            return [{"type": "input_json_delta", "partial_json": part} for part in parts]


# --- Gemini ---


def _gemini(says: Says, model: str, parts: list[dict[str, Any]], *, last: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0}
    if last:
        parts = parts + [
            {"functionCall": {"name": c.name, "args": dict(c.arguments)}, "thoughtSignature": "c2ln"}
            for c in says.calls
        ]
        candidate["finishReason"] = {"stop": "STOP", "length": "MAX_TOKENS", "refused": "SAFETY"}[says.end]
    if parts:
        candidate["content"] = {"role": "model", "parts": parts}
    counted = {"promptTokenCount": says.input, "candidatesTokenCount": says.output}
    usage = {**counted, "cachedContentTokenCount": says.cached, "totalTokenCount": says.input + says.output}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": f"{model}-2026"}


# --- Ollama ---


def _ollama(says: Says, model: str, text: str, *, last: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    line = {"model": model, "created_at": "2026-11-16T00:00:00Z", "message": message, "done": last}
    if not last:
        return line
    if says.calls:
        message["tool_calls"] = [
            {"function": {"name": c.name, "arguments": dict(c.arguments)}} for c in says.calls
        ]
    reason = "length" if says.end == "length" else "stop"
    return {**line, "done_reason": reason, "prompt_eval_count": says.input, "eval_count": says.output}
