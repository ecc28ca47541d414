"""A server with as many tools as one likes, each with a schema of its own: for measuring what many cost.

`python -m penstock.testing.mcp_many --tools 30 --name shop`
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server


def tool(number: int, name: str) -> types.Tool:
    """A tool much like those that real servers have: a sentence or two, and a few parameters."""
    properties: dict[str, Any] = {
        "key": {"type": "string", "description": f"The key of the record in collection {number} of {name}."},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 100,
            "description": "How many lines to return.",
        },
        "format": {"type": "string", "enum": ["text", "json", "table"], "description": "How to lay it out."},
        f"field_{number}": {"type": "string", "description": f"Return only field {number} of the record."},
    }
    return types.Tool(
        name=f"record_{number}_look_up",
        description=f"Look up a record in collection {number} of {name}. Returns its lines, newest first.",
        input_schema={"type": "object", "properties": properties, "required": ["key"]},
        annotations=types.ToolAnnotations(read_only_hint=True),
    )


def server(count: int, name: str, about: str = "") -> Server[Any]:
    tools = [tool(number, name) for number in range(count)]

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        number, key = params.name.split("_")[1], (params.arguments or {}).get("key")
        return types.CallToolResult(content=[types.TextContent(text=f"{name} {number} {key}")])

    return Server(name, instructions=about or None, on_list_tools=list_tools, on_call_tool=call_tool)


async def serve(count: int, name: str, about: str) -> None:
    made = server(count, name, about)
    async with stdio_server() as (read, write):
        await made.run(read, write, made.create_initialization_options())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", type=int, default=30)
    parser.add_argument("--name", default="many")
    parser.add_argument("--about", default="", help="what the server says it is for")
    given = parser.parse_args()
    asyncio.run(serve(given.tools, given.name, given.about))


if __name__ == "__main__":
    main()
