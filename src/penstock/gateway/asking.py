"""Pending decisions as forms that a client shows to its person.

The answer counts for the decision of that id, like one given by `respond` or in the inbox; whoever
answers first has answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.errors import PenstockError
from penstock.gateway.service import Session

if TYPE_CHECKING:
    from mcp.server.session import ServerSession
    from mcp_types import ElicitRequestFormParams, ElicitResult, InputRequests

PERSON: Final = "person"
"""Who answered, in the record of a decision."""

PLAIN: Final = ("approve", "reject", "retry", "skip", "finish", "abort")
"""Answers that need nothing but the word."""

MOST_ROUNDS: Final = 8
"""Times that one call may ask; clients give up at ten."""


class Answer(NamedTuple):
    verb: str
    message: str = ""
    args: Mapping[str, Any] | None = None


class Round(NamedTuple):
    """What a client hands back to us with its person's answers."""

    number: int
    handle: str

    def __str__(self) -> str:
        return f"{self.number} {self.handle}"


def round_of(state: str) -> Round:
    number, _, handle = state.partition(" ")
    if not number.isdecimal():
        raise PenstockError("this is not a request state of ours; call the tool anew")
    return Round(int(number), handle)


def for_people(pending: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that a person can answer with a form; the waves of a run are the agent's."""
    return [
        one for one in pending if one["kind"] != "ail" and (set(PLAIN) & set(one["options"]) or _asks(one))
    ]


def _asks(asked: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a question is to be answered with, where it asks for something and not just for a word."""
    schema: Mapping[str, Any] | None = asked.get("schema", {}).get("respond")
    return schema if schema and "properties" in schema else None


def form(asked: Mapping[str, Any]) -> ElicitRequestFormParams:
    from mcp_types import ElicitRequestFormParams

    wanted = _asks(asked)
    if wanted is not None:  # declining it is an answer, too
        return ElicitRequestFormParams(message=asked["summary"], requested_schema=dict(wanted))
    verbs = [verb for verb in PLAIN if verb in asked["options"]]
    properties = {
        "verb": {"type": "string", "title": "Answer", "enum": verbs},
        "message": {"type": "string", "title": "Why", "description": "Optional."},
    }
    schema = {"type": "object", "properties": properties, "required": ["verb"]}
    return ElicitRequestFormParams(message=asked["summary"], requested_schema=schema)


def requests(asked: Sequence[Mapping[str, Any]]) -> InputRequests:
    """Decisions as questions to a client's person, by their ids."""
    from mcp_types import ElicitRequest

    return {one["decision"]: ElicitRequest(params=form(one)) for one in asked}


async def heard(session: Session, handle: str, responses: Mapping[str, Any]) -> None:
    """Take what a person answered; what is not asked any more is passed over."""
    from mcp_types import ElicitResult

    now = await session.stand(handle, 0)
    session.show_again(handle)
    pending = {one["decision"]: one for one in now["pending"]}
    for decision, result in responses.items():
        asked = pending.get(decision)
        if asked is None or not isinstance(result, ElicitResult):
            continue
        said = answer_of(result, asked)
        if said is not None:
            await decided(session, handle, decision, said)


def answer_of(result: ElicitResult, asked: Mapping[str, Any]) -> Answer | None:
    """What a person said; None when the question stays open."""
    options = asked["options"]
    if result.action == "accept":
        content = result.content or {}
        if _asks(asked) is not None:
            return Answer("respond", args=content)
        verb = content.get("verb")
        return Answer(str(verb), str(content.get("message") or "")) if verb in options else None
    if result.action == "decline" and "reject" in options:
        return Answer("reject", "declined")
    return None


async def ask(
    client: ServerSession, session: Session, handle: str, asked: Mapping[str, Any], request: str | int | None
) -> bool:
    """Put one decision to the person behind a client of the older protocol; True when it was made."""
    from anyio import BrokenResourceError, ClosedResourceError
    from mcp.shared.exceptions import MCPError
    from pydantic import ValidationError

    shown = form(asked)
    try:
        result = await client.elicit_form(shown.message, shown.requested_schema, request)
    except (MCPError, ValidationError, BrokenResourceError, ClosedResourceError):
        return False  # it offers what it cannot do, or has left: the decision stays in the inbox
    answer = answer_of(result, asked)
    return answer is not None and await decided(session, handle, asked["decision"], answer)


async def decided(session: Session, handle: str, decision: str, answer: Answer) -> bool:
    try:
        await session.decide(
            handle, decision, answer.verb, args=answer.args, message=answer.message, by=PERSON
        )
    except PenstockError:
        return False  # somebody else was quicker, or it no longer matters
    return True
