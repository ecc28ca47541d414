"""`/api/decisions`: what is asked, and the answers to it, for programs that decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Response

from penstock.engines.plain import moment, question
from penstock.engines.questions import every, state_of
from penstock.errors import CommandRejected, NoAnswer, UnknownDecision, UnknownRun
from penstock.ids import CommandId, DecisionId, RunId
from penstock.run import asking
from penstock.run.commands import Decide
from penstock.run.events import DecisionMade, DecisionRequired, Event
from penstock.store.base import RunRecord
from penstock.store.listing import FINAL, root_of
from penstock.web.bodies import Answer, Answered, Question, QuestionList
from penstock.web.desk import Desk, Route, written


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(route_class=Route, tags=["decisions"])

    @router.get("/api/decisions", responses={200: {"model": QuestionList}})
    async def list_decisions() -> Response:
        """Every open decision, of the oldest run first."""
        asked = [_line(record, one, None) for record, one in await every(desk.runs)]
        return written({"decisions": asked})

    @router.get("/api/decisions/{decision:path}", responses={200: {"model": Question}})
    async def show_decision(decision: str) -> Response:
        """A decision, open or not, with its answer if it has one."""
        record, asked, made = await _looked_up(desk, decision)
        closed = (await root_of(desk.runs.store, record)).status in FINAL
        return written({**_line(record, asked, made), "open": made is None and not closed})

    @router.post("/api/decisions/{decision:path}", responses={200: {"model": Answered}})
    async def answer_decision(decision: str, body: Answer) -> Response:
        """Answer a decision. What does not answer it is refused, and it stays open."""
        record, asked, made = await _looked_up(desk, decision)
        command = Decide(
            id=CommandId(body.id), decision=asked.decision, verb=body.verb, args=body.args,
            message=body.message, by=body.by,
        )  # fmt: skip
        if made is None:
            await _check(desk, record, command)
        elif not body.id:
            by = f" by {made.by}" if made.by else ""
            raise CommandRejected(f"{decision} was answered already: {made.verb}{by}")
        await desk.pick_up.send(record.run, command)
        return written({"id": asked.decision, "run_id": record.run, "verb": body.verb, "accepted": True})

    return router


async def _check(desk: Desk, record: RunRecord, command: Decide) -> None:
    """Refuse what is no answer before anything is taken up for it."""
    run = await state_of(desk.runs, record.run)
    if command.decision in run.decisions and (wrong := asking.refusal(run, command)):
        raise NoAnswer(wrong)


async def _looked_up(desk: Desk, decision: str) -> tuple[RunRecord, DecisionRequired, DecisionMade | None]:
    """A question that was asked once, and its answer if there is one."""
    run, _, number = decision.rpartition(":")
    if not (number.isascii() and number.isdecimal() and len(number) < 16):
        raise UnknownDecision(decision)
    try:
        record = await desk.record(run)
    except UnknownRun:
        raise UnknownDecision(decision) from None
    if not 0 < int(number) <= record.events:
        raise UnknownDecision(decision)
    events = await desk.runs.store.load(RunId(run), after=int(number) - 1)
    return _found(record, events, decision)


def _found(
    record: RunRecord, events: Sequence[Event], decision: str
) -> tuple[RunRecord, DecisionRequired, DecisionMade | None]:
    asked = events[0] if events else None
    if not isinstance(asked, DecisionRequired) or asked.decision != DecisionId(decision):
        raise UnknownDecision(decision)
    made = (one for one in events if isinstance(one, DecisionMade) and one.decision == decision)
    return record, asked, next(made, None)


def _line(record: RunRecord, asked: DecisionRequired, made: DecisionMade | None) -> dict[str, Any]:
    answer = None
    if made is not None:
        answer = {
            "verb": made.verb, "args": made.args, "by": made.by, "message": made.message,
            "at": moment(made.at),
        }  # fmt: skip
    return {**question(record, asked), "open": made is None, "answer": answer}
