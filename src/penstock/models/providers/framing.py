"""Streams cut into their messages: server-sent events, or one JSON value a line. Pure."""

from __future__ import annotations

LONGEST = 4 * 1024 * 1024
"""Bytes of one message. Nobody sends more; whoever does is not to fill our memory."""


class Overlong(ValueError):
    """One message of the stream is longer than any should be."""


class Frames:
    """Takes bytes as they come, gives back whole messages."""

    def __init__(self, *, events: bool) -> None:
        self._events = events
        """Server-sent events; otherwise a JSON value a line."""
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        text = self._rest + piece if self._rest else piece
        lines = text.split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > LONGEST:
            raise Overlong(f"a message of more than {LONGEST} bytes")
        if not self._events:
            return [stripped for line in lines if (stripped := line.strip())]
        return [message for line in lines if (message := self._line(line.rstrip(b"\r")))]

    def end(self) -> list[bytes]:
        """What is left when the stream ends, as a message of its own."""
        rest, self._rest = self._rest.strip(), b""
        if not self._events:
            return [rest] if rest else []
        if rest:
            self._line(rest)
        last = self._line(b"")
        return [last] if last else []

    def _line(self, line: bytes) -> bytes:
        """The message that this line completes, if it does. A comment or another field is no part of one."""
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif not line and self._data:
            message = b"\n".join(self._data)
            self._data = []
            return message
        return b""
