"""Who is calling: one gateway session for each client, as far as clients can be told apart.

A pipe has one client. Over HTTP, older clients have a session of the transport's; since 2026-07-28
a request stands alone, and then only the handle of a run says which conversation it belongs to.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.gateway.service import Session

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from mcp.server.context import ServerRequestContext

MOST: Final = 10_000
"""Conversations that are remembered. One that was forgotten sees its results once more, and that is all."""

_SESSION: Final = "mcp-session-id"


class Callers:
    def __init__(self, new: Callable[[], Session], group: TaskGroup) -> None:
        self.group = group
        """Ends with the connection: questions to its person are asked in it."""
        self._new = new
        self._known: OrderedDict[str, Session] = OrderedDict()

    def of(self, context: ServerRequestContext[Any, Any], handle: str) -> Session:
        """The session that a request belongs to."""
        key = _key(context, handle)
        session = self._known.get(key) or self._new()
        if key != handle:
            self.keep(key, session)
        return session

    def keep(self, key: str, session: Session) -> None:
        """Know a session again, by a connection or by a handle that turned out to be good."""
        self._known[key] = session
        self._known.move_to_end(key)
        while len(self._known) > MOST:
            self._known.popitem(last=False)


def _key(context: ServerRequestContext[Any, Any], handle: str) -> str:
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    if context.request is None:
        return "the pipe"
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return handle
    session = context.request.headers.get(_SESSION, "")
    return f"session {session}" if session else handle
