"""One call of a meta-tool, as the wire has it: progress, and the questions to a person that it leads to."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import anyio
import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from penstock.errors import PenstockError
from penstock.gateway import asking
from penstock.gateway.callers import Callers
from penstock.gateway.ports import Live
from penstock.gateway.service import DEFAULT_WAIT, MOST_WAIT, Watch

Context = ServerRequestContext[Callers, Any]


class Call:
    """What is called, by whom, and until when it is answered."""

    def __init__(self, context: Context, params: types.CallToolRequestParams) -> None:
        """Raises `PenstockError` when what the client hands back to us is not ours."""
        args = params.arguments or {}
        self.context = context
        self.until: float = time.monotonic() + min(args.get("wait_s", DEFAULT_WAIT), MOST_WAIT)
        self._responses = params.input_responses or {}
        self._round = asking.round_of(params.request_state) if params.request_state else None
        handle = self._round.handle if self._round else args.get("run_id", "")
        self.session = context.lifespan_context.of(context, handle)

    async def answered(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        """The answer of a meta-tool; what is wrong with a call is one, too."""
        wants_progress = "progress_token" in (self.context.meta or {})
        answer = await (self._told if wants_progress else self._answer)(name, args)
        if self.modern and self.context.request is not None and "run_id" in answer:
            self.context.lifespan_context.keep(answer["run_id"], self.session)
        return answer

    async def _answer(self, name: str, args: dict[str, Any], watch: Watch | None = None) -> dict[str, Any]:
        try:
            if self._round:
                return await self._went_on(self._round)
            answer = await self.session.call(name, args, watch)
            return answer if self.modern else await self.put_to_person(answer)
        except PenstockError as error:
            return {"status": "failed", "error": str(error)}

    async def _told(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        """The answer to a client that wants to be told how it gets on."""
        async with anyio.create_task_group() as group:
            answer = await self._answer(name, args, lambda live: group.start_soon(self._tell, live))
            group.cancel_scope.cancel()
        return answer

    async def _tell(self, live: Live) -> None:
        """Say how many steps have ended, of those there are, each time that there are more of them."""
        told = -1
        while True:
            done, known, doing = self.session.progress(live)
            if done > told:
                told = done
                await self.context.session.report_progress(done, known, doing)
            await self.session.moved(live)

    @property
    def modern(self) -> bool:
        return self.context.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def left(self) -> float:
        return max(self.until - time.monotonic(), 0.0)

    @property
    def has_person(self) -> bool:
        """Whether the client can show a form to somebody."""
        has = self.context.session.client_capabilities
        asks = has.elicitation if has is not None else None
        return asks is not None and bool(asks.form or not asks.url)

    def _asked(self, answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """What a person has not been shown yet, where the client can show it."""
        if not self.has_person:
            return []
        put = self.session.put_to_person
        new = [one for one in asking.for_people(answer.get("pending", ())) if one["decision"] not in put]
        put.update(one["decision"] for one in new)
        return new

    # --- 2026-07-28: the answer to a call is a question, and the client calls again ---

    def question(self, answer: Mapping[str, Any]) -> types.InputRequiredResult | None:
        number = self._round.number + 1 if self._round else 1
        if not self.modern or number > asking.MOST_ROUNDS:
            return None
        asked = self._asked(answer)
        if not asked:
            return None
        self.session.show_again(answer["run_id"])
        return types.InputRequiredResult(
            input_requests=asking.requests(asked),
            request_state=str(asking.Round(number, answer["run_id"])),
        )

    async def _went_on(self, round: asking.Round) -> dict[str, Any]:
        await asking.heard(self.session, round.handle, self._responses)
        return await self.session.stand(round.handle, self.left)

    # --- before: we ask while the call waits, and go on asking when it has to return ---

    async def put_to_person(self, answer: dict[str, Any]) -> dict[str, Any]:
        while asked := self._asked(answer):
            made = anyio.Event()
            for one in asked:
                self.context.lifespan_context.group.start_soon(self._ask_one, answer["run_id"], one, made)
            with anyio.move_on_after(self.left):
                await made.wait()
            self.session.show_again(answer["run_id"])
            answer = await self.session.stand(answer["run_id"], self.left)
        return answer

    async def _ask_one(self, handle: str, asked: Mapping[str, Any], made: anyio.Event) -> None:
        await asking.ask(self.context.session, self.session, handle, asked, self.context.request_id)
        made.set()


def result(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer as data, and as the same data in a text for clients that read only that.

    A `CallToolResult` in the form of the wire.
    """
    raw = msgspec.json.encode(answer)
    return {
        "content": [{"type": "text", "text": raw.decode()}],
        "structuredContent": msgspec.json.decode(raw),
        "isError": "error" in answer,
    }
