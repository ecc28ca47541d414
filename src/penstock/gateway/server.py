"""Penstock as an MCP server: the meta-tools over the official SDK, in both of its protocol eras.

Knows the wire and nothing of runs: what a call does is the `Session`'s business. No call takes
longer than its `wait_s`, whatever becomes of the run, and a run does not notice that a client left.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
import mcp_types as types
import msgspec
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from penstock.errors import PenstockError
from penstock.gateway import asking
from penstock.gateway.arguments import complaint
from penstock.gateway.callers import Callers
from penstock.gateway.definitions import DEFINITIONS
from penstock.gateway.handles import Handles
from penstock.gateway.service import DEFAULT_WAIT, MOST_WAIT, Finder, Runs, Session
from penstock.gateway.taking import Taken

if TYPE_CHECKING:
    from penstock.tools.base import Tool

Context = ServerRequestContext[Callers, Any]

INSTRUCTIONS: Final = (
    "Every tool is behind these few. `discover` what fits an intent, `execute` it, `continue` with the "
    "handle while the status is running or layer_complete, `respond` to what is pending."
)
HINT_S: Final = 1.0
"""Seconds between progress notifications."""

_TOOLS_KEEP: Final = CacheHint(ttl_ms=300_000)


class Direct(Protocol):
    """Tools that clients see beside the meta-tools."""

    def tools(self) -> Mapping[str, Tool]:
        """By their names on the wire."""
        ...


class Gateway:
    """Makes a server for each transport; sessions and runs are the same behind all of them."""

    def __init__(
        self, runs: Runs, finder: Finder, handles: Handles, *, version: str = "", direct: Direct | None = None
    ) -> None:
        self.runs = Taken(runs)
        self._finder = finder
        self._handles = handles
        self._direct = direct
        self.server: Server[Callers] = Server(
            "penstock",
            version=version,
            instructions=INSTRUCTIONS,
            cache_hints={"tools/list": _TOOLS_KEEP} if direct is None else {},
            lifespan=self._connected,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    @asynccontextmanager
    async def _connected(self, _server: Server[Callers]) -> AsyncIterator[Callers]:
        async with anyio.create_task_group() as group:
            yield Callers(lambda: Session(self.runs, self._finder, self._handles), group)
            group.cancel_scope.cancel()

    async def _list(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        direct = self._direct.tools() if self._direct is not None else {}
        return types.ListToolsResult(
            tools=[*META_TOOLS, *(_described(name, tool) for name, tool in direct.items())]
        )

    async def _call(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        name, args = self._meant(params.name, params.arguments or {})
        if wrong := complaint(name, args):
            return _result({"status": "failed", "error": wrong})
        until = time.monotonic() + min(args.get("wait_s", DEFAULT_WAIT), MOST_WAIT)
        try:
            round = asking.round_of(params.request_state) if params.request_state else None
        except PenstockError as error:
            return _result({"status": "failed", "error": str(error)})
        return await _Call(context, params, until, round).made(name, args)

    def _meant(self, name: str, args: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The meta-tool that a call comes down to."""
        direct = self._direct.tools().get(name) if self._direct is not None else None
        return (name, args) if direct is None else ("execute", {"tool": direct.id, "args": args})


class _Call:
    """One call of a meta-tool, and the questions to a person that it leads to."""

    def __init__(
        self,
        context: Context,
        params: types.CallToolRequestParams,
        until: float,
        round: asking.Round | None,
    ) -> None:
        self._context = context
        self._params = params
        self._until = until
        self._round = round
        self._callers = context.lifespan_context

    async def made(self, name: str, args: dict[str, Any]) -> types.CallToolResult | types.InputRequiredResult:
        handle = self._round.handle if self._round else args.get("run_id", "")
        session = self._callers.of(self._context, handle)
        async with anyio.create_task_group() as group:
            group.start_soon(self._tell)
            try:
                answer = await self._answer(session, name, args)
            except PenstockError as error:
                answer = {"status": "failed", "error": str(error)}
            group.cancel_scope.cancel()
        if self._modern and self._context.request is not None and "run_id" in answer:
            self._callers.keep(answer["run_id"], session)
        return self._asking(session, answer) or _result(answer)

    async def _answer(self, session: Session, name: str, args: dict[str, Any]) -> dict[str, Any]:
        if self._round:
            return await self._answered(session, self._round)
        answer = await session.call(name, args)
        return answer if self._modern else await self._ask(session, answer)

    @property
    def _modern(self) -> bool:
        return self._context.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def _left(self) -> float:
        return max(self._until - time.monotonic(), 0.0)

    async def _tell(self) -> None:
        """Say that the call is alive; costs nothing when the client did not ask for progress."""
        whole = self._left
        while True:
            await anyio.sleep(HINT_S)
            await self._context.session.report_progress(whole - self._left, whole, "waiting for the run")

    def _asked(self, session: Session, answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """What a person has not been shown yet, where the client can show it."""
        has = self._context.session.client_capabilities
        if has is None or has.elicitation is None or not (has.elicitation.form or not has.elicitation.url):
            return []
        new = [
            one
            for one in asking.for_people(answer.get("pending", ()))
            if one["decision"] not in session.put_to_person
        ]
        session.put_to_person.update(one["decision"] for one in new)
        return new

    # --- 2026-07-28: the answer to a call is a question, and the client calls again ---

    def _asking(self, session: Session, answer: Mapping[str, Any]) -> types.InputRequiredResult | None:
        number = self._round.number + 1 if self._round else 1
        if not self._modern or number > asking.MOST_ROUNDS:
            return None
        asked = self._asked(session, answer)
        if not asked:
            return None
        session.show_again(answer["run_id"])
        return types.InputRequiredResult(
            input_requests={one["decision"]: types.ElicitRequest(params=asking.form(one)) for one in asked},
            request_state=str(asking.Round(number, answer["run_id"])),
        )

    async def _answered(self, session: Session, round: asking.Round) -> dict[str, Any]:
        now = await session.stand(round.handle, 0)
        session.show_again(round.handle)
        pending = {one["decision"]: one for one in now["pending"]}
        for decision, result in (self._params.input_responses or {}).items():
            asked = pending.get(decision)
            if asked is None or not isinstance(result, types.ElicitResult):
                continue
            said = asking.answer_of(result, asked["options"])
            if said is not None:
                await asking.decided(session, round.handle, decision, said)
        return await session.stand(round.handle, self._left)

    # --- before: we ask while the call waits, and go on asking when it has to return ---

    async def _ask(self, session: Session, answer: dict[str, Any]) -> dict[str, Any]:
        while asked := self._asked(session, answer):
            made = anyio.Event()
            for one in asked:
                self._callers.group.start_soon(self._ask_one, session, answer["run_id"], one, made)
            with anyio.move_on_after(self._left):
                await made.wait()
            session.show_again(answer["run_id"])
            answer = await session.stand(answer["run_id"], self._left)
        return answer

    async def _ask_one(
        self, session: Session, handle: str, asked: Mapping[str, Any], made: anyio.Event
    ) -> None:
        await asking.ask(self._context.session, session, handle, asked, self._context.request_id)
        made.set()


def _tools() -> list[types.Tool]:
    return [
        types.Tool(
            name=one.name,
            description=one.description,
            input_schema=dict(one.input),
            annotations=types.ToolAnnotations(
                read_only_hint=one.read_only, destructive_hint=one.destructive, open_world_hint=True
            ),
        )
        for one in DEFINITIONS
    ]


META_TOOLS: Final[Sequence[types.Tool]] = _tools()


def _described(name: str, tool: Tool) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=tool.effect == "read", destructive_hint=tool.effect == "destructive"
    )
    schema = dict(tool.input_schema) or {"type": "object"}
    return types.Tool(name=name, description=tool.description, input_schema=schema, annotations=hints)


def _result(answer: Mapping[str, Any]) -> types.CallToolResult:
    """An answer as data, and as the same data in a text for clients that read only that."""
    raw = msgspec.json.encode(answer)
    return types.CallToolResult(
        content=[types.TextContent(text=raw.decode())],
        structured_content=msgspec.json.decode(raw),
        is_error="error" in answer,
    )


async def serve_stdio(
    penstock: Runs, finder: Finder, handles: Handles, *, version: str = "", direct: Direct | None = None
) -> None:
    """Serve the one client at the other end of our pipes until it leaves."""
    from mcp.server.stdio import stdio_server

    gateway = Gateway(penstock, finder, handles, version=version, direct=direct)
    async with stdio_server() as (read, write), anyio.create_task_group() as group:
        group.start_soon(gateway.runs.take_up)
        await gateway.server.run(read, write, gateway.server.create_initialization_options())
        group.cancel_scope.cancel()
