"""An MCP server without manners: `python mcp_faults.py FAULT`.

A plain loop over JSON lines that starts in a moment and needs nothing installed, so that it can
be crashed a thousand times. `FAULT` says how it starts (`well`, `never`, `mute`, `dies`, `noisy`);
the tools are ways to go wrong later.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

ABOUT = "Goes wrong in every way there is."
OBJECT = {"type": "object"}
HINTS = {"readOnlyHint": True}
NAMES = ("echo", "crash", "hang", "huge", "not_utf8", "not_json", "not_rpc", "chatter", "flaky", "turn")


def _loop(n: int) -> dict[str, Any]:
    """A schema that takes 2ⁿ steps to look at."""
    defs: dict[str, Any] = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(n)}
    return {"type": "object", "$defs": {**defs, f"d{n}": {}}, "allOf": [{"$ref": "#/$defs/d0"}]}


BOMBS: dict[str, dict[str, Any]] = {
    "endless": {"type": "object", "$ref": "#"},
    "doubling": _loop(40),
    "heavy": {"type": "object", "description": "x" * 10_000_000},
    "elsewhere": {"type": "object", "properties": {"a": {"$ref": "https://example.com/schema.json"}}},
    "wrong": {"type": "object", "properties": {"a": {"type": "no such type"}}},
}


def say(message: dict[str, Any]) -> None:
    print_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode())


def print_bytes(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def tools(fault: str) -> list[dict[str, Any]]:
    found = [{"name": name, "inputSchema": OBJECT, "annotations": HINTS} for name in NAMES]
    found += [{"name": name, "inputSchema": OBJECT} for name in ("append", "append_and_crash")]
    if fault == "bombs":
        found += [{"name": name, "inputSchema": schema} for name, schema in BOMBS.items()]
    return found


def text(number: Any, said: str) -> None:
    say({"id": number, "result": {"content": [{"type": "text", "text": said}]}})


def call(number: Any, name: str, args: dict[str, Any]) -> None:
    match name:
        case "echo":
            text(number, args.get("text", ""))
        case "crash":
            os._exit(9)
        case "flaky":
            if random.random() < args["chance"]:  # noqa: S311 - not a secret
                os._exit(9)
            text(number, args.get("text", ""))
        case "append" | "append_and_crash":
            with Path(args["path"]).open("a", encoding="utf-8") as file:
                file.write("once\n")
            if name == "append_and_crash":
                os._exit(9)
            text(number, "done")
        case "turn":  # says that its tools are others now, and dies when it is asked for them
            turned.append(args["marker"])
            say({"method": "notifications/tools/list_changed"})
            text(number, "turned")
        case "hang":
            time.sleep(1000)
        case "huge":
            text(number, "x" * args["size"])
        case "not_utf8":
            print_bytes(b'{"jsonrpc": "2.0", "id": %d, "result": {"content": "\xff\xfe"}}' % number)
        case "not_json":
            print_bytes(b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [' % number)
        case "not_rpc":
            say({"id": number, "result": "just a text"})
        case "chatter":
            print_bytes(b"GET / 200\n{}\nnull\n\xff\xff")
            text(number, "heard")
        case _:
            say({"id": number, "error": {"code": -32602, "message": f"no tool {name}"}})


turned: list[str] = []


def listing(number: Any, params: dict[str, Any], fault: str) -> None:
    if turned:
        Path(turned[-1]).touch()
        os._exit(9)
    if fault == "mute":
        return
    if fault == "endless":  # a list of tools without end
        page = int(params.get("cursor") or 0)
        one = {"name": f"tool{page}", "inputSchema": OBJECT}
        say({"id": number, "result": {"tools": [one], "nextCursor": str(page + 1)}})
    else:
        say({"id": number, "result": {"tools": tools(fault)}})


def serve(fault: str) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        number, method, params = message.get("id"), message["method"], message.get("params") or {}
        if number is None or fault == "never":
            continue
        if method == "initialize":
            agreed = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "instructions": ABOUT}
            say({"id": number, "result": {**agreed, "serverInfo": {"name": "faults", "version": "1"}}})
        elif method == "tools/list":
            listing(number, params, fault)
        elif method == "tools/call":
            call(number, params["name"], params.get("arguments") or {})
        else:
            say({"id": number, "error": {"code": -32601, "message": "no such method"}})


def main() -> None:
    fault = sys.argv[1] if len(sys.argv) > 1 else "well"
    if fault == "dies":
        sys.exit("the key is missing\nset THE_KEY and try again")
    if fault == "noisy":
        print_bytes(b"Welcome!\n{not json\n\xff\xfe\x00")
    serve(fault)


if __name__ == "__main__":
    main()
