"""Bytes from a server's output, cut into messages.

A server may print anything: log lines among the messages, text that is not UTF-8, an answer too
large to take. Whatever can be told to belong to a call becomes that call's error; the rest is
noise, and kept only to be quoted when the server does not start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
from mcp_types import PARSE_ERROR

from penstock.tools.mcp.peer import Error, Message, decode

_EDGE: Final = 512
"""Bytes kept of each end of a line that is too long: the id of a message stands in one of them."""

_FRONT: Final = re.compile(rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*,')
_BACK: Final = re.compile(rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*\}\s*$')


class Oversized(Exception):
    """A message too large to take, and nobody can say whose answer it was."""


class Cut(NamedTuple):
    """The two ends of a line that was too long to keep."""

    front: bytes
    back: bytes


class Lines:
    """Takes chunks, gives whole lines; never holds more than one line of the largest size."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._rest = bytearray()
        self._head = b""
        """The beginning of a line that is being dropped because it is too long."""

    def feed(self, chunk: bytes) -> Iterator[bytes | Cut]:
        """The lines that this chunk completes."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            yield self._line(chunk[start:end])
            start = end + 1
        self._keep(chunk[start:])

    def _line(self, last: bytes) -> bytes | Cut:
        self._keep(last)
        line, head = bytes(self._rest), self._head
        self._rest.clear()
        self._head = b""
        return Cut(head, line[-_EDGE:]) if head else line

    def _keep(self, part: bytes) -> None:
        self._rest += part
        if self._head:
            del self._rest[:-_EDGE]
        elif len(self._rest) > self.largest:
            self._head = bytes(self._rest[:_EDGE])
            del self._rest[:-_EDGE]


def message(line: bytes) -> Message | None:
    """What a line of a server says, or None when it is noise."""
    try:
        return decode(line)
    except (ValueError, RecursionError):
        pass
    if not line.lstrip().startswith(b"{") or b'"jsonrpc"' not in line:
        return None
    try:
        whole = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return _error(_number(line[:_EDGE], line[-_EDGE:]), "the answer is not JSON")
    if _is_utf8(line):
        try:
            return msgspec.convert(whole, Message)  # JSON but for a `NaN` or half a character
        except ValueError:
            pass
    number = whole.get("id") if isinstance(whole, dict) and "method" not in whole else None
    what = "the answer is not JSON-RPC" if _is_utf8(line) else "the answer is not UTF-8"
    return _error(number if isinstance(number, int) else None, what)


def too_large(cut: Cut, largest: int) -> Message:
    """The answer to a call whose answer is too long."""
    what = f"the answer is larger than {largest:,} bytes"
    error = _error(_number(cut.front, cut.back), what)
    if error is None:
        raise Oversized(what)
    return error


def _number(front: bytes, back: bytes) -> int | None:
    match = _FRONT.match(front) or _BACK.search(back)
    return int(match[1]) if match else None


def _error(number: int | None, what: str) -> Message | None:
    if number is None:
        return None
    return Message(jsonrpc="2.0", id=number, error=Error(PARSE_ERROR, what))


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
