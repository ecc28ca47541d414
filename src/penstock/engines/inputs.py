"""Questions that tasks ask while they run, and those who wait for the answers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.policy import approval
from penstock.policy.schemas import BadSchema, compiled, size_of
from penstock.run.effects import HandInput, StartTask
from penstock.run.facts import InputAsked, InputDropped
from penstock.tools.base import Answer, Inquiry

if TYPE_CHECKING:
    from penstock.engines.drive import Drive

LARGEST: Final = 32 * 1024
"""Bytes of what an answer is to look like."""

DECLINED: Final = Answer("decline")
MOOT: Final = Answer("cancel")


class Inputs:
    """Of one run."""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._waits: dict[str, tuple[asyncio.Task[None], asyncio.Future[Answer]]] = {}
        self._asked = 0

    async def ask(self, effect: StartTask, task: asyncio.Task[None], inquiry: Inquiry) -> Answer:
        """Wait for what a person says. When the task is over there is no more use in asking."""
        drive, clean = self._drive, self._drive.engine.clean
        if not _askable(inquiry):
            return DECLINED
        if task.done() or drive.finished.done():
            return MOOT
        message, by = clean(inquiry.message), clean(inquiry.by)
        digest = self._digest(effect, replace(inquiry, message=message, by=by))
        answer: asyncio.Future[Answer] = drive.loop.create_future()
        self._waits[digest] = (task, answer)
        over = partial(_moot, answer)
        task.add_done_callback(over)
        fact = InputAsked(
            effect.step, message, inquiry.schema, digest, effect.iteration, effect.item, effect.attempt, by,
            inquiry.url,
        )  # fmt: skip
        try:
            drive.tell(fact)
            return await answer
        finally:
            task.remove_done_callback(over)
            del self._waits[digest]
            if answer.cancelled():  # the one who asked gave up; soon it is clear whether the task did, too
                drive.loop.call_soon(self._drop, task, digest)

    def hand(self, effect: HandInput) -> None:
        _, answer = self._waits.get(effect.digest, (None, None))
        if answer is not None and not answer.done():
            given = effect.content
            answer.set_result(DECLINED if given is None else Answer("accept", given))

    def waits(self, task: asyncio.Task[None] | None) -> bool:
        """Whether a task waits for a person."""
        return any(task is one for one, _ in self._waits.values())

    def _drop(self, task: asyncio.Task[None], digest: str) -> None:
        if not (task.done() or self._drive.finished.done()):
            self._drive.tell(InputDropped(digest))

    def _digest(self, effect: StartTask, inquiry: Inquiry) -> str:
        """An answer is for this question of this task, and for no other that may look like it."""
        self._asked += 1
        run = self._drive.run
        said = {"message": inquiry.message, "schema": inquiry.schema, "url": inquiry.url}
        return approval.digest(
            run=run.id, step=run.graph.ids[effect.step], iteration=effect.iteration, item=effect.item,
            uses=inquiry.by, args={**said, "after": run.seq, "number": self._asked},
        )  # fmt: skip


def _askable(inquiry: Inquiry) -> bool:
    """Whether a person could answer it at all."""
    if size_of(inquiry.schema) > LARGEST:
        return False
    try:
        compiled(inquiry.schema)
    except BadSchema:
        return False
    return True


def _moot(answer: asyncio.Future[Answer], _task: asyncio.Task[None]) -> None:
    if not answer.done():
        answer.set_result(MOOT)
