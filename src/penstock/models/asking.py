"""Asking one candidate that let us in, and keeping account of what came of it, whatever it was."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from typing import NoReturn

from msgspec.structs import replace

from penstock.models.base import Answer, BadOutput, Chunk, Embedding, ModelError, Provider, Request
from penstock.models.calls import Turn, accounted
from penstock.models.desk import Desk
from penstock.models.errors import unreachable
from penstock.models.tiers import Seat


class Asking:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def _asked(self, turn: Turn) -> Request:
        """The request as this candidate gets it: the time that is left, and until when it must begin."""
        request, seat = turn.call.request, turn.member.seat
        if not seat.stream:
            return replace(request, timeout=turn.given)
        first = turn.member.first_byte(now=turn.began)
        if not self._desk.others(turn):  # nobody is hurried whom nobody could replace
            first = seat.first_byte[1]
        if request.first_byte is not None:
            first = min(first, request.first_byte)
        return replace(request, timeout=turn.given, stream=True, first_byte=first)

    async def chat(self, turn: Turn) -> tuple[Turn, Answer]:
        seat, provider = turn.member.seat, _provider(turn)
        return turn, await self._settled(turn, provider.chat(seat.model, self._asked(turn)))

    async def _settled(self, turn: Turn, asked: Awaitable[Answer]) -> Answer:
        """The answer, and what it says about the candidate."""
        try:
            answer = await asked
        except ModelError as error:
            self._desk.failed(turn, error)
            raise
        except BadOutput as error:
            self._unfit(turn, error)
            raise
        else:
            self._well(turn, answer)
            return answer
        finally:
            self._desk.released(turn)  # where nothing above has happened: cancelled, or a fault of ours

    def _well(self, turn: Turn, answer: Answer) -> None:
        self._desk.succeeded(
            turn, usage=answer.usage, hints=answer.hints, took=answer.took, first_byte=answer.first_byte
        )

    def _unfit(self, turn: Turn, error: BadOutput) -> None:
        """The candidate is well; what it wrote is not what was asked for."""
        self._well(turn, error.answer)
        error.answer = accounted(turn, error.answer)

    async def listen(self, turn: Turn) -> AsyncGenerator[Chunk, None]:
        seat = turn.member.seat
        try:
            async with aclosing(_provider(turn).stream(seat.model, self._asked(turn))) as chunks:
                async for chunk in chunks:
                    if chunk.answer is not None:
                        self._well(turn, chunk.answer)
                        yield chunk
                        return
                    yield chunk
            _raise_ended(seat)
        except ModelError as error:
            self._desk.failed(turn, error)
            raise
        except BadOutput as error:
            self._unfit(turn, error)
            raise
        finally:
            self._desk.released(turn)

    async def embed(self, turn: Turn, texts: Sequence[str]) -> Embedding:
        seat = turn.member.seat
        try:
            found = await _provider(turn).embed(seat.model, texts, within=turn.given)
            self._desk.succeeded(turn, usage=found.usage, hints=None, took=0.0, first_byte=0.0)
        except ModelError as error:
            self._desk.failed(turn, error)
            raise
        else:
            return found
        finally:
            self._desk.released(turn)


def _raise_ended(seat: Seat) -> NoReturn:
    fault = unreachable("the stream ended before the answer did")
    raise ModelError(fault, provider=seat.provider, model=seat.model)


def _provider(turn: Turn) -> Provider:
    provider = turn.member.provider
    if provider is None:
        raise RuntimeError(f"{turn.member.name} has no provider and was let in")
    return provider
