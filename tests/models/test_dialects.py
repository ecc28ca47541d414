"""The parts of the dialects that need no server."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.base import Usage, read_arguments
from penstock.models.endpoint import Speech
from penstock.models.providers.dialect import InBand, Said
from penstock.models.providers.framing import LONGEST, Frames, Overlong
from penstock.models.providers.hosted import DIALECTS
from penstock.models.providers.openai import strict
from penstock.models.structured import complaints, parse
from penstock.testing.wires import Called, Says, streamed

SPEECHES: tuple[Speech, ...] = ("responses", "openai", "gemini", "anthropic", "ollama")


@given(speech=st.sampled_from(SPEECHES), cuts=st.lists(st.integers(1, 40), max_size=60), calls=st.booleans())
def test_a_stream_means_the_same_however_it_is_cut(speech: Speech, cuts: list[int], calls: bool) -> None:
    dialect = DIALECTS[speech]
    says = Says(text="Grüße an alle.", calls=[Called(name="look", arguments={"at": "ü"})] if calls else [])
    raw = b"".join(streamed(speech, says, "m"))

    frames, listener = Frames(events=dialect.events), dialect.listener()
    text = ""
    while raw:
        size = cuts.pop() if cuts else len(raw)
        for message in frames.feed(raw[:size]):
            text += "".join(chunk.text for chunk in listener.hear(message))
        raw = raw[size:]
    for message in frames.end():
        listener.hear(message)

    heard = listener.said()
    assert listener.complete
    assert text == heard.text == "Grüße an alle."
    assert [call.arguments for call in heard.tool_calls] == ([{"at": "ü"}] if calls else [])


def test_comments_and_other_fields_are_no_messages() -> None:
    frames = Frames(events=True)

    found = frames.feed(b": keep-alive\r\n\r\nevent: x\r\nid: 3\r\ndata:a\r\ndata: b\r\n\r\ndata: last")

    assert found == [b"a\nb"]
    assert frames.end() == [b"last"]


def test_a_message_without_end_is_refused() -> None:
    frames = Frames(events=True)

    with pytest.raises(Overlong):
        frames.feed(b"data: " + b"x" * LONGEST)


nonsense = st.binary(max_size=40) | st.sampled_from([b"{}", b"[]", b"null", b'{"type": 3}'])


@given(st.sampled_from(SPEECHES), nonsense)
def test_a_dialect_answers_nonsense_with_one_of_a_few_errors(speech: Speech, raw: bytes) -> None:
    dialect = DIALECTS[speech]
    for hear in (dialect.answer, dialect.listener().hear):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, InBand):
            hear(raw)


@pytest.mark.parametrize(
    ("schema", "enforced"),
    [
        ({"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, False),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, False),
        ({"type": "object", "additionalProperties": False, "patternProperties": {}}, False),
        ({"type": "array", "items": {"type": "object"}}, False),
        ({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, True),
    ],
)
def test_only_what_openai_can_enforce_is_asked_to_be_enforced(schema: dict[str, Any], enforced: bool) -> None:
    assert strict(schema) is enforced


def test_complaints_name_the_place() -> None:
    schema = {"properties": {"a": {"items": {"type": "integer"}}}, "required": ["b"]}

    assert complaints(schema, {"a": [1, "x"], "b": 0}) == ["a[1]: 'x' is not of type 'integer'"]
    assert complaints(schema, {}) == ["the value: 'b' is a required property"]


def test_a_schema_is_never_fetched() -> None:
    with pytest.raises(ValueError, match="it refers to http://127"):
        complaints({"properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}}, {})


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"$ref": "#/$defs/none"}])
def test_a_schema_that_leads_nowhere_is_a_complaint(schema: dict[str, Any]) -> None:
    [complaint] = complaints(schema, {})

    assert "leads nowhere" in complaint


@pytest.mark.parametrize("text", ["", "no", "{", "[1,", "{'a': 1}", "[" * 100_000])
def test_text_without_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(text)


def said(speech: Speech, body: Any) -> Said:
    return DIALECTS[speech].answer(json.dumps(body).encode())


def test_a_refusal_in_words_is_a_refusal() -> None:
    message = {"content": None, "refusal": "I can't help with that."}

    assert said("openai", {"choices": [{"message": message, "finish_reason": "stop"}]}).refused == "refusal"


def test_what_gemini_only_thinks_is_counted_and_not_said() -> None:
    parts = [{"text": "Hm.", "thought": True}, {"text": "Yes."}]
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 1, "thoughtsTokenCount": 7}
    candidate = {"content": {"parts": parts}, "finishReason": "STOP"}

    found = said("gemini", {"candidates": [candidate], "usageMetadata": usage})

    assert (found.text, found.usage) == ("Yes.", Usage(5, 8))


def test_a_model_that_stumbles_has_refused_nothing() -> None:
    with pytest.raises(msgspec.ValidationError, match="MALFORMED_FUNCTION_CALL"):
        said("gemini", {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]})


def test_a_reason_that_is_new_is_a_refusal() -> None:
    assert said("gemini", {"candidates": [{"finishReason": "LANGUAGE"}]}).refused == "LANGUAGE"


@pytest.mark.parametrize(
    ("written", "problem"),
    [("[1]", "not an object"), ("{", "not JSON"), ("", ""), (None, ""), ('{"a": 1}', ""), ({"a": 1}, "")],
)
def test_arguments_are_an_object_or_a_problem(written: Any, problem: str) -> None:
    call = read_arguments("1", "look", written)

    assert problem in call.problem
    assert bool(call.problem) is bool(problem)
    assert call.raw == (written if problem else "")
