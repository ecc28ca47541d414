"""What a server answered, as JSON.

Structured content is the output as it stands; else the text is, read as JSON where it is JSON.
Pictures, sound and files keep the shape the protocol gives them, in base 64.
"""

from __future__ import annotations

from typing import Any

import msgspec
from mcp_types import ContentBlock, InputRequiredResult
from msgspec import Struct
from pydantic import TypeAdapter

from penstock.errors import ToolFailed

_BLOCKS: TypeAdapter[list[ContentBlock]] = TypeAdapter(list[ContentBlock])


class Result(Struct, rename="camel"):
    """The answer to a call, as far as it matters here."""

    content: list[dict[str, Any]]
    structured_content: Any = None
    is_error: bool = False


def result_of(raw: dict[str, Any], *, modern: bool) -> Result | InputRequiredResult:
    """What a server said, or what it wants to know first.

    Raises a `ValidationError`, ours or that of the SDK, which knows all the kinds of content there are.
    """
    if modern and raw.get("resultType") == "input_required":
        return InputRequiredResult.model_validate(raw, by_name=False)
    result = msgspec.convert(raw, Result)
    if not all(map(_is_text, result.content)):
        blocks = _BLOCKS.validate_python(result.content, by_name=False)
        result.content = _BLOCKS.dump_python(blocks, mode="json", by_alias=True, exclude_none=True)
    return result


def output_of(tool: str, result: Result) -> Any:
    """The output of a call, or `ToolFailed` with what the tool says went wrong."""
    if result.is_error:
        raise ToolFailed(tool, _text(result) or "it failed, and does not say why")
    if result.structured_content is not None:
        return result.structured_content
    if all(map(_is_text, result.content)):
        return _read(_text(result))
    return {"content": result.content}


def _is_text(block: dict[str, Any]) -> bool:
    return block.get("type") == "text" and type(block.get("text")) is str


def _text(result: Result) -> str:
    return "\n".join(block["text"] for block in result.content if _is_text(block))


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return text
