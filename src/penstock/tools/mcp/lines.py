"""Bytes from a server's output, cut into messages.

A server may print anything: log lines among the messages, text that is not UTF-8, an answer too
large to take. Whatever can be told to belong to a call becomes that call's error; the rest is
noise, and kept only to be quoted when the server does not start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

_EDGE: Final = 512
"""Bytes kept of each end of a line that is too long: the id of a message stands in one of them."""

_FRONT: Final = re.compile(rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*,')
_BACK: Final = re.compile(rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*\}\s*$')


class Oversized(Exception):
    """A message too large to take, and nobody can say whose answer it was."""


class Lines:
    """Takes chunks, gives whole lines; never holds more than one line of the largest size."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._rest = bytearray()
        self._head = b""
        """The beginning of a line that is being dropped because it is too long."""

    def feed(self, chunk: bytes) -> Iterator[bytes | SessionMessage]:
        """The lines that this chunk completes; for one that is too long, the error to give instead."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            yield self._line(chunk[start:end])
            start = end + 1
        self._keep(chunk[start:])

    def _line(self, last: bytes) -> bytes | SessionMessage:
        self._keep(last)
        line, head = bytes(self._rest), self._head
        self._rest.clear()
        self._head = b""
        if not head:
            return line
        number = _number(head, line[-_EDGE:])
        what = f"the answer is larger than {self._largest:,} bytes"
        if number is None:
            raise Oversized(what)
        return _error(number, what)

    def _keep(self, part: bytes) -> None:
        self._rest += part
        if self._head:
            del self._rest[:-_EDGE]
        elif len(self._rest) > self._largest:
            self._head = bytes(self._rest[:_EDGE])
            del self._rest[:-_EDGE]


def message(line: bytes) -> SessionMessage | None:
    """What a line says, or None when it is noise."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        pass
    if not line.lstrip().startswith(b"{") or b'"jsonrpc"' not in line:
        return None
    try:
        whole = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        number, what = _number(line[:_EDGE], line[-_EDGE:]), "the answer is not JSON"
    else:
        found = whole.get("id") if isinstance(whole, dict) else None
        number = found if isinstance(found, int) and "method" not in whole else None
        what = "the answer is not JSON-RPC" if _is_utf8(line) else "the answer is not UTF-8"
    return None if number is None else _error(number, what)


def _number(front: bytes, back: bytes) -> int | None:
    match = _FRONT.match(front) or _BACK.search(back)
    return int(match[1]) if match else None


def _error(number: int, what: str) -> SessionMessage:
    error = ErrorData(code=PARSE_ERROR, message=what)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=error))


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
