"""From a response to the pieces of a streamed answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from penstock.models.base import Chunk
from penstock.models.providers.dialect import Dialect, Listener, Said
from penstock.models.providers.framing import Frames
from penstock.models.providers.http import Broken, Reply


async def hear(dialect: Dialect, listener: Listener, reply: Reply) -> AsyncGenerator[Chunk | Said, None]:
    """The pieces as they come; at the end, where that was reached, what they come to."""
    frames = Frames(events=dialect.events)
    begun = not dialect.events
    try:
        async with aclosing(reply.pieces()) as pieces:
            async for piece in pieces:
                if not begun and piece.lstrip()[:1] == b"{":  # asked for a stream, and did not get one
                    said = dialect.answer(piece + b"".join([rest async for rest in pieces]))
                    for chunk in _chunks(said):
                        yield chunk
                    yield said
                    return
                begun = True
                for message in frames.feed(piece):
                    for chunk in listener.hear(message):
                        yield chunk
                if listener.over:
                    break
        for message in () if listener.over else frames.end():
            for chunk in listener.hear(message):
                yield chunk
    except Broken:
        if not listener.complete:
            raise  # otherwise only the account of tokens is missing
    if listener.complete:
        yield listener.said()


def _chunks(said: Said) -> list[Chunk]:
    return [*([Chunk(said.text)] if said.text else []), *(Chunk(tool_call=call) for call in said.tool_calls)]
