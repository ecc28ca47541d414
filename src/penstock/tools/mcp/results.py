"""What a server answered, as JSON.

Structured content is the output as it stands; else the text is, read as JSON where it is JSON.
Pictures, sound and files keep the shape the protocol gives them, in base 64.
"""

from __future__ import annotations

from typing import Any

import msgspec
from mcp_types import CallToolResult, TextContent

from penstock.errors import ToolFailed


def output_of(tool: str, result: CallToolResult) -> Any:
    """The output of a call, or `ToolFailed` with what the tool says went wrong."""
    if result.is_error:
        raise ToolFailed(tool, _text(result) or "it failed, and does not say why")
    if result.structured_content is not None:
        return result.structured_content
    if all(isinstance(block, TextContent) for block in result.content):
        return _read(_text(result))
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    return {"content": blocks}


def _text(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return text
