"""What providers' references say about their wires, shape by shape, without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.models.base import Request, ToolCall, ToolSpec, reply, result, system, user
from penstock.models.endpoint import KNOWN
from penstock.models.errors import classify
from penstock.models.providers.dialect import InBand, Said
from penstock.models.providers.hosted import DIALECTS
from penstock.models.providers.promises import promised

HELLO = Request(messages=(system("Be brief."), user("Hello?")))
LOOK = ToolSpec("look", "Look somewhere.", {"type": "object", "properties": {"at": {"type": "string"}}})
VERDICT = {
    "type": "object",
    "properties": {
        "verdict": {"type": "string", "enum": ["good", "bad"]},
        "score": {"type": "integer", "minimum": 1, "maximum": 9},
        "note": {"type": ["string", "null"]},
    },
    "required": ["verdict", "score"],
}


def asked(kind: str, request: Request, *, stream: bool = False) -> dict[str, Any]:
    to = KNOWN[kind]
    body: dict[str, Any] = json.loads(DIALECTS[to.speech].ask(to, "m", request, stream=stream).body)
    return body


def heard(kind: str, *events: Any) -> tuple[list[Any], Said]:
    listener = DIALECTS[KNOWN[kind].speech].listener()
    chunks = [chunk for event in events for chunk in listener.hear(json.dumps(event).encode())]
    assert listener.complete
    return chunks, listener.said()


def said(kind: str, body: Any) -> Said:
    return DIALECTS[KNOWN[kind].speech].answer(json.dumps(body).encode())


def after(kind: str, found: Said, request: Request = HELLO) -> dict[str, Any]:
    """What a provider is sent when its tool calls have been answered."""
    from penstock.models.base import Answer

    turn = reply(Answer(text=found.text, tool_calls=found.tool_calls))
    results = [result(call, "snow") for call in found.tool_calls]
    return asked(kind, replace(request, messages=(*request.messages, turn, *results)))


# --- OpenAI's responses ---


def response(*output: dict[str, Any], status: str = "completed", **rest: Any) -> dict[str, Any]:
    usage = {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 2}, "output_tokens": 3}
    return {"id": "r", "status": status, "output": list(output), "usage": usage, "error": None, **rest}


def spoken(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": list(parts)}


REASONING = {"id": "rs_1", "type": "reasoning", "summary": []}
CALLED = {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": "x"}'}


def test_a_response_is_its_messages_and_its_calls_and_not_its_reasoning() -> None:
    found = said(
        "openai", response(REASONING, spoken({"type": "output_text", "text": "One moment."}), CALLED)
    )

    assert (found.text, found.finish) == ("One moment.", "tool_calls")
    assert found.tool_calls == (ToolCall("c1", "look", {"at": "x"}),)
    assert (found.usage.input, found.usage.output, found.usage.cached) == (5, 3, 2)


def test_a_streamed_response_passes_words_and_whole_calls_on_and_ends_with_all_of_it() -> None:
    whole = response(REASONING, spoken({"type": "output_text", "text": "Hi."}), CALLED)

    chunks, found = heard(
        "openai",
        {"type": "response.created", "response": {"status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "item": REASONING},
        {"type": "response.output_text.delta", "delta": "Hi"},
        {"type": "response.output_text.delta", "delta": "."},
        {"type": "response.function_call_arguments.delta", "delta": '{"at'},
        {"type": "response.output_item.done", "item": CALLED},
        {"type": "response.something_newer", "delta": {"odd": True}},
        {"type": "response.completed", "response": whole},
    )

    assert [chunk.text for chunk in chunks] == ["Hi", ".", ""]
    assert chunks[2].tool_call == found.tool_calls[0]


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, "rate_limited"),
        ({"type": "error", "error": {"type": "server_error", "message": "no"}}, "server_error"),
    ],
)
def test_an_error_among_the_events_keeps_its_meaning(event: dict[str, Any], kind: str) -> None:
    with pytest.raises(InBand) as caught:
        heard("openai", event)

    assert classify("openai", 200, {}, json.dumps({"error": caught.value.error}).encode()).kind == kind


def test_a_response_that_failed_is_an_error_and_no_answer() -> None:
    failed = response(status="failed") | {"error": {"code": "rate_limit_exceeded", "message": "no"}}

    with pytest.raises(InBand):
        said("openai", failed)


@pytest.mark.parametrize(
    ("part", "reason", "refused", "finish"),
    [
        ({"type": "refusal", "refusal": "No."}, None, "refusal", "stop"),
        ({"type": "output_text", "text": "Half"}, "max_output_tokens", "", "length"),
        ({"type": "output_text", "text": "Half"}, "content_filter", "content_filter", "stop"),
    ],
)
def test_why_a_response_ended_is_read(part: Any, reason: str | None, refused: str, finish: str) -> None:
    status = "incomplete" if reason else "completed"
    found = said("openai", response(spoken(part), status=status, incomplete_details={"reason": reason}))

    assert (found.refused, found.finish) == (refused, finish)


def test_calls_go_back_by_their_call_id_and_refer_to_nothing_that_the_provider_kept() -> None:
    body = after("openai", said("openai", response(REASONING, CALLED)))

    assert body["input"][2:] == [
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"x"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "snow"},
    ]
    assert body["store"] is False
    assert "fc_1" not in str(body)


def test_tools_are_said_the_flat_way_and_a_form_is_part_of_the_text() -> None:
    body = asked("openai", replace(HELLO, tools=(LOOK,), output=VERDICT))

    [tool] = body["tools"]
    assert (tool["type"], tool["name"], tool["strict"]) == ("function", "look", False)
    assert body["text"]["format"]["type"] == "json_schema"
    assert body["text"]["format"]["schema"] == VERDICT


# --- Anthropic ---

THOUGHT = {"type": "thinking", "thinking": "", "signature": "c2ln"}
WITHHELD = {"type": "redacted_thinking", "data": "ZGF0YQ=="}
USE = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "x"}}


def message(*blocks: dict[str, Any], reason: str = "tool_use") -> dict[str, Any]:
    usage = {"input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": 2}
    return {"type": "message", "model": "c", "content": list(blocks), "stop_reason": reason, "usage": usage}


def test_what_a_model_thought_goes_back_to_it_before_its_words_and_its_call() -> None:
    text = {"type": "text", "text": "One moment."}
    found = said("anthropic", message(THOUGHT, WITHHELD, text, USE))

    turns = after("anthropic", found)["messages"]

    assert turns[1]["content"] == [THOUGHT, WITHHELD, text, USE]
    assert "c2ln" not in str(after("openai", found)) + str(after("gemini", found))


def test_a_thought_that_is_streamed_is_gathered_and_is_not_said() -> None:
    chunks, found = heard(
        "anthropic",
        {"type": "message_start", "message": message() | {"stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {**THOUGHT, "signature": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "signature_delta", "signature": "c2ln"},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {**USE, "input": {}}},
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": "{}"},
        },
        {"type": "content_block_delta", "index": 1, "delta": {"type": "newer_delta", "else": 1}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )

    assert (found.text, found.usage.output) == ("", 9)
    assert [chunk.tool_call for chunk in chunks] == list(found.tool_calls)
    assert after("anthropic", found)["messages"][1]["content"][0] == {**THOUGHT, "thinking": "Hm"}


def test_a_form_is_promised_and_no_tool_is_ever_forced_for_it() -> None:
    body = asked("anthropic", replace(HELLO, tools=(LOOK,), output=VERDICT))

    form = body["output_config"]["format"]
    assert form["type"] == "json_schema"
    assert form["schema"]["additionalProperties"] is False
    assert body["tool_choice"] == {"type": "auto"}
    assert [tool["name"] for tool in body["tools"]] == ["look"]


def test_what_cannot_be_promised_is_told_in_words() -> None:
    anything = {"type": "object", "additionalProperties": {"type": "integer"}}

    body = asked("anthropic", replace(HELLO, output=anything))

    assert "output_config" not in body
    assert "additionalProperties" in body["system"]


def test_a_promise_keeps_the_structure_and_puts_the_rest_into_words() -> None:
    found = promised(VERDICT)

    assert found is not None
    assert found["required"] == ["verdict", "score"]
    assert found["properties"]["score"] == {"type": "integer", "description": '{"minimum":1,"maximum":9}'}
    assert found["properties"]["note"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"type": "object"},
        {"type": "object", "properties": {"any": {}}},
        {"type": "object", "properties": {"all": {"allOf": [{"type": "string"}]}}},
        {"type": "object", "properties": {"list": {"type": "array"}}},
        {"type": "object", "properties": {"gone": {"$ref": "#/$defs/gone"}}},
        {
            "type": "object",
            "properties": {"next": {"$ref": "#/$defs/node"}},
            "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        },
    ],
)
def test_a_schema_that_would_mean_something_else_is_not_promised(schema: dict[str, Any]) -> None:
    assert promised(schema) is None


def test_a_reference_is_followed_into_a_promise() -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}}}
    schema = {"type": "object", "properties": {"at": {"$ref": "#/$defs/p"}}, "$defs": {"p": point}}

    found = promised(schema)

    assert found is not None
    assert found["properties"]["at"] == {**point, "additionalProperties": False}
    assert "$defs" not in found


# --- Gemini ---


def candidate(*parts: dict[str, Any], reason: str = "STOP") -> dict[str, Any]:
    content = {"role": "model", "parts": list(parts)}
    return {"candidates": [{"content": content, "finishReason": reason}]}


def test_gemini_gets_its_ids_and_signatures_back() -> None:
    own = {"functionCall": {"id": "g1", "name": "look", "args": {}}, "thoughtSignature": "c2ln"}
    second = {"functionCall": {"id": "g2", "name": "look", "args": {}}}

    contents = after("gemini", said("gemini", candidate(own, second)))["contents"]

    assert contents[1]["parts"] == [own, second]
    assert [part["functionResponse"]["id"] for part in contents[2]["parts"]] == ["g1", "g2"]


def test_a_call_that_another_model_wished_for_has_no_signature_to_be_checked() -> None:
    contents = after("gemini", said("anthropic", message(USE, {**USE, "id": "toolu_2"})))["contents"]

    signatures = [part.get("thoughtSignature") for part in contents[1]["parts"]]
    assert signatures == ["skip_thought_signature_validator", None]


@pytest.mark.parametrize(
    ("reason", "refused", "finish"),
    [
        ("STOP", "", "stop"),
        ("MAX_TOKENS", "", "length"),
        ("CONTINUATION", "", "length"),
        ("SAFETY", "SAFETY", "stop"),
        ("PROHIBITED_CONTENT", "PROHIBITED_CONTENT", "stop"),
    ],
)
def test_why_a_candidate_ended_is_read(reason: str, refused: str, finish: str) -> None:
    found = said("gemini", candidate({"text": "Hi."}, reason=reason))

    assert (found.refused, found.finish) == (refused, finish)


@pytest.mark.parametrize("reason", ["TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE", "MALFORMED_FUNCTION_CALL"])
def test_a_candidate_that_stumbled_is_a_failing_server(reason: str) -> None:
    with pytest.raises(ValueError, match="gave up"):
        said("gemini", candidate(reason=reason))


# --- Ollama ---


def test_ollamas_fields_may_be_null_and_its_thinking_is_not_said() -> None:
    found = said(
        "ollama",
        {
            "model": None,
            "message": {"role": "assistant", "content": None, "thinking": "Hm", "tool_calls": [
                {"id": None, "function": {"name": "look", "arguments": {"at": "x"}}}
            ]},
            "done": True,
            "done_reason": None,
            "eval_count": None,
        },
    )  # fmt: skip

    assert (found.text, found.finish) == ("", "tool_calls")
    assert found.tool_calls[0].arguments == {"at": "x"}
