"""The answer of a server to a call: what is taken for the output, and what is not taken at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pydantic
import pytest
from mcp_types import InputRequiredResult

from penstock.errors import ToolFailed
from penstock.tools.mcp.lines import message
from penstock.tools.mcp.results import Result, output_of, result_of

TEXT = {"type": "text", "text": '{"n": 1}'}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


def output(raw: dict[str, Any], *, modern: bool = True) -> Any:
    result = result_of(raw, modern=modern)
    assert isinstance(result, Result)
    return output_of("git:log", result)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"content": []}, ""),
        ({"content": [TEXT]}, {"n": 1}),
        ({"content": [{**TEXT, "text": "one"}, {**TEXT, "text": "two"}]}, "one\ntwo"),
        ({"content": [TEXT], "structuredContent": {"m": 2}}, {"m": 2}),
        ({"content": [], "structuredContent": [1], "resultType": "complete"}, [1]),
        ({"content": [TEXT], "structuredContent": None}, {"n": 1}),
        ({"content": [TEXT, {**IMAGE, "annotations": None}]}, {"content": [TEXT, IMAGE]}),
        ({"content": [{**TEXT, "annotations": {"priority": 1.0}, "_meta": {"a": 1}}]}, {"n": 1}),
    ],
)
def test_the_output_is_the_structured_content_or_else_the_text(raw: dict[str, Any], expected: Any) -> None:
    assert output(raw) == expected


def test_an_error_is_told_in_the_words_of_the_tool() -> None:
    with pytest.raises(ToolFailed, match="no such branch"):
        output({"content": [{"type": "text", "text": "no such branch"}], "isError": True})
    with pytest.raises(ToolFailed, match="does not say why"):
        output({"content": [IMAGE], "isError": True})


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"content": "text"},
        {"content": ["text"]},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "text", "text": 5}]},
        {"content": [{"type": "image", "data": "aGk="}]},
        {"content": [{"type": "smell", "data": "aGk="}]},
        {"content": [], "isError": "yes"},
        {"resultType": "task", "taskId": "1"},
    ],
)
def test_what_the_protocol_does_not_know_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises((msgspec.ValidationError, pydantic.ValidationError)):
        result_of(raw, modern=True)


def test_only_in_the_newer_protocol_may_an_answer_be_a_question() -> None:
    raw = {"resultType": "input_required", "requestState": "s"}

    asked = result_of(raw, modern=True)
    assert isinstance(asked, InputRequiredResult)
    assert asked.request_state == "s"
    with pytest.raises(msgspec.ValidationError):
        result_of(raw, modern=False)


def test_an_answer_that_is_json_but_for_a_number_that_is_none_is_still_one() -> None:
    heard = message(
        b'{"jsonrpc": "2.0", "id": 3, "result": {"content": [], "structuredContent": {"x": NaN}}}'
    )

    assert heard is not None
    assert heard.id == 3
    assert isinstance(heard.result, dict)
