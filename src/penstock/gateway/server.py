"""Penstock as an MCP server: the meta-tools over the official SDK, in both of its protocol eras.

Knows the wire and nothing of runs: what a call does is the `Session`'s business. No call takes
longer than its `wait_s`, whatever becomes of the run, and a run does not notice that a client left.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import trace

from penstock.errors import PenstockError
from penstock.gateway.arguments import complaint
from penstock.gateway.callers import Callers
from penstock.gateway.calls import Call, Context, result
from penstock.gateway.definitions import DEFINITIONS
from penstock.gateway.flows import Flows
from penstock.gateway.handles import Handles
from penstock.gateway.pipes import serve_pipe
from penstock.gateway.ports import Finder, Runs
from penstock.gateway.service import Session, Troubles
from penstock.gateway.taking import Taken
from penstock.gateway.tasks import CALLABLE, OFFERED, Tasks

if TYPE_CHECKING:
    from penstock.tools.base import Tool

INSTRUCTIONS: Final = (
    "Every tool is behind these few. `discover` what fits an intent, `execute` it, `continue` with the "
    "handle while the status is running or layer_complete, `respond` to what is pending."
)
_TOOLS_KEEP: Final = CacheHint(ttl_ms=300_000)


class Direct(Protocol):
    """Tools that clients see beside the meta-tools."""

    def tools(self) -> Mapping[str, Tool]:
        """By their names on the wire."""
        ...


class Wire(Server[Callers]):
    """The SDK's server, which has no way to say that it takes tasks of the older protocol."""

    def get_capabilities(self, *given: Any, **named: Any) -> types.ServerCapabilities:
        return super().get_capabilities(*given, **named).model_copy(update={"tasks": OFFERED})


class Gateway:
    """Makes a server for each transport; sessions and runs are the same behind all of them."""

    def __init__(
        self,
        runs: Runs,
        finder: Finder,
        handles: Handles,
        *,
        version: str = "",
        direct: Direct | None = None,
        flows: Flows | None = None,
        troubles: Troubles = lambda: (),
    ) -> None:
        """`flows` are the workflow files that clients may run, `troubles` says what is wrong with servers."""
        self.runs = Taken(runs)
        self._new = partial(Session, self.runs, finder, handles, flows=flows, troubles=troubles)
        self._direct = direct
        self.server = Wire(
            "penstock",
            version=version,
            instructions=INSTRUCTIONS,
            cache_hints={"tools/list": _TOOLS_KEEP} if direct is None else {},
            lifespan=self._connected,
            on_list_tools=self._list,
        )
        self._stamp = {types.SERVER_INFO_META_KEY: self.server.server_info_stamp}
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            self.server.middleware.clear()  # spans that nobody would see
        self.server.add_request_handler("tools/call", types.CallToolRequestParams, self._call)
        self._tasks = Tasks(self.server)
        self.server.middleware.append(self._called)

    @asynccontextmanager
    async def _connected(self, _server: Server[Callers]) -> AsyncIterator[Callers]:
        async with anyio.create_task_group() as group:
            yield Callers(self._new, group)
            group.cancel_scope.cancel()

    async def _list(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        direct = self._direct.tools() if self._direct is not None else {}
        return types.ListToolsResult(
            tools=[*META_TOOLS, *(_described(name, tool) for name, tool in direct.items())]
        )

    async def _called(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Calls, caught before the SDK, which checks them and our answers by the models of every version.

        One check of what comes in is enough, and our answers are ours.
        """
        if ctx.method != "tools/call" or ctx.session.client_capabilities is None:
            return await call_next(ctx)  # what is wrong with a call before a greeting is the SDK's to say
        params = types.CallToolRequestParams.model_validate(ctx.params or {}, by_name=False)
        answer = await self._call(ctx, params)
        if not isinstance(answer, dict):
            answer = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return {"resultType": "complete", "_meta": self._stamp, **answer}
        return answer

    async def _call(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.InputRequiredResult | dict[str, Any]:
        name, args = self._meant(params.name, params.arguments or {})
        if wrong := complaint(name, args):
            return result({"status": "failed", "error": wrong})
        try:
            call = Call(context, params)
        except PenstockError as error:
            return result({"status": "failed", "error": str(error)})
        answer = await call.answered(name, args)
        return call.question(answer) or await self._tasks.instead(call, answer) or result(answer)

    def _meant(self, name: str, args: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The meta-tool that a call comes down to."""
        direct = self._direct.tools().get(name) if self._direct is not None else None
        return (name, args) if direct is None else ("execute", {"tool": direct.id, "args": args})


def _tools() -> list[types.Tool]:
    return [
        types.Tool(
            name=one.name,
            description=one.description,
            input_schema=dict(one.input),
            execution=types.ToolExecution(task_support="optional") if one.name == CALLABLE else None,
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


async def serve_stdio(gateway: Gateway) -> None:
    """Serve the one client at the other end of our pipes until it leaves."""
    async with anyio.create_task_group() as group:
        group.start_soon(gateway.runs.take_up)
        await serve_pipe(gateway.server)
        group.cancel_scope.cancel()
