"""One living conversation with a server: opened, used by many callers at once, over when it is over.

The only place besides its neighbours `process`, `peer`, `lines`, `wire` and `results` that knows the SDK.
It says precisely what became of a call: an answer, an error of the tool, never reached, or lost.
It never repeats one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import anyio
import msgspec
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.subscriptions import ToolsListChanged, listen
from mcp.shared.dispatcher import CallOptions, Dispatcher
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    UNSUPPORTED_PROTOCOL_VERSION,
    ElicitRequest,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    Implementation,
    InputRequiredResult,
    PaginatedRequestParams,
    Tool,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from penstock.errors import ToolFailed
from penstock.tools.base import Answer, Inquiry, Task
from penstock.tools.mcp.base import Definition, Listing, Lost, Unreached, Waiting
from penstock.tools.mcp.config import Server
from penstock.tools.mcp.process import Process, ending, run_process
from penstock.tools.mcp.results import Result, output_of, result_of
from penstock.tools.mcp.watchdog import Watchdog
from penstock.tools.mcp.wire import GONE, LOST, REFUSED, UNREACHED, open_wire

PAGES: Final = 200
"""Pages of a list of tools; a server that goes on and on is cut short."""

INSTRUCTIONS: Final = 1_000
"""Characters of what a server says it is for that are kept."""

ROUNDS: Final = 20
"""How often a server may ask for something within one call."""

_PAUSE: Final = 0.1
"""Seconds before a server is asked again that wants no answer, only more time."""


_EXIT: Final = 0.3
"""Seconds to wait for the exit code of a server whose output has ended."""


@dataclass(slots=True, eq=False)
class _Call:
    tool: str
    task: Task | None
    waiting: Waiting = nullcontext
    asks: int = 0
    """Questions that are open on its behalf and may be another call's."""


class _Session(ClientSession):
    async def call_raw(self, params: dict[str, Any]) -> dict[str, Any]:
        """What a server answers to a call, as it stands.

        The SDK's own way makes four models of it and checks the result against each; what is asked of
        a result is checked where it is read.
        """
        data: dict[str, Any] = {"method": "tools/call", "params": params}
        options: CallOptions = {}
        self._stamp(data, options)
        return await self._dispatcher.send_raw_request("tools/call", data["params"], options)


class Connection:
    """Made by `connect`."""

    def __init__(self, server: Server, process: Process | None) -> None:
        self.server = server
        self.over = asyncio.Event()
        """Set when no call can be made any more."""
        self.session: _Session
        self._process = process
        self._calls: list[_Call] = []

    @property
    def busy(self) -> bool:
        return bool(self._calls)

    @property
    def alive(self) -> bool:
        process = self._process
        gone = process is not None and (process.exited.is_set() or process.silent.is_set())
        return not (gone or self.over.is_set())

    async def broken(self) -> None:
        """Returns when the connection is of no more use."""
        if self._process is None:
            await self.over.wait()
            return
        waits = [asyncio.ensure_future(one.wait()) for one in (self.over, self._process.silent)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def listing(self) -> Listing:
        """Everything the server offers."""
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(PAGES):
            async with self._said_plainly(""):
                page = await self.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            tools += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
        info = self.session.server_info
        title = f"{info.title or info.name} {info.version}".strip() if info else ""
        said = (self.session.instructions or "").strip()[:INSTRUCTIONS]
        return Listing(tuple(map(_definition, tools)), self.session.protocol_version or "", title, said)

    async def call(
        self,
        tool: str,
        args: Mapping[str, Any],
        *,
        task: Task | None = None,
        waiting: Waiting = nullcontext,
    ) -> Any:
        """The output. Raises `ToolFailed`, `Unreached`, or `Lost` when nobody can tell.

        `waiting` is entered while a person is waited for.
        """
        if not self.alive:
            raise Unreached(await self._why())
        call = _Call(tool, task, waiting)
        self._calls.append(call)
        try:
            async with self._said_plainly(tool):
                result = await self._rounds(call, dict(args))
        finally:
            self._calls.remove(call)
        return output_of(self._id(tool), result)

    async def _rounds(self, call: _Call, args: dict[str, Any]) -> Result:
        """One call, with the questions that a server of the newer protocol has on the way."""
        params: dict[str, Any] = {"name": call.tool, "arguments": args}
        for _ in range(ROUNDS):
            result = await self._send(params)
            if isinstance(result, Result):
                return result
            params = {"name": call.tool, "arguments": args, "inputResponses": {}}
            if result.request_state is not None:
                params["requestState"] = result.request_state
            if not result.input_requests:
                await asyncio.sleep(_PAUSE)
            for key, request in (result.input_requests or {}).items():
                if not isinstance(request, ElicitRequest):
                    raise ToolFailed(
                        call.tool, f"its server asks for {request.method}, which we do not offer"
                    )
                said = await self._ask(request.params, call)
                params["inputResponses"][key] = said.model_dump(by_alias=True, mode="json", exclude_none=True)
        raise ToolFailed(self._id(call.tool), f"its server asked {ROUNDS} times within one call")

    async def _send(self, params: dict[str, Any]) -> Result | InputRequiredResult:
        try:
            raw = await self.session.call_raw({**params})
        except MCPError as error:
            if error.code != HEADER_MISMATCH:
                raise
            await self.listing()  # it was turned away unread: our idea of the tool's headers was old
            raw = await self.session.call_raw({**params})
        return result_of(raw, modern=self.session.protocol_version in MODERN_PROTOCOL_VERSIONS)

    # --- questions ---

    async def asked(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - the SDK's signature
        params: ElicitRequestParams,
    ) -> ElicitResult | ErrorData:
        """A server of the older protocol asks, and does not say which call it is about."""
        if len(self._calls) == 1:
            return await self._ask(params, self._calls[0])
        with contextlib.ExitStack() as clocks:
            for one in self._calls:  # when it may be any of them, it is none of their time
                clocks.enter_context(one.waiting())
            return await self._ask_any(params)

    async def _ask_any(self, params: ElicitRequestParams) -> ElicitResult:
        """Ask on behalf of a call that does not ask yet, and if it ends meanwhile, of another one."""
        while self._calls:
            call = min(self._calls, key=lambda one: one.asks)
            call.asks += 1
            by = f"{self.server.name} (in one of {len(self._calls)} calls)"
            try:
                result = await self._ask(params, call, by)
            finally:
                call.asks -= 1
            if result.action != "cancel" or call in self._calls:
                return result
        return ElicitResult(action="cancel")

    async def _ask(self, params: ElicitRequestParams, call: _Call, by: str = "") -> ElicitResult:
        """What a person says to a server that asks in the middle of a call; nobody's task asks nobody."""
        by_url = isinstance(params, ElicitRequestURLParams)
        schema = {} if isinstance(params, ElicitRequestURLParams) else params.requested_schema
        url = params.url if isinstance(params, ElicitRequestURLParams) else ""
        answer = Answer("decline")
        if call.task is not None:
            with call.waiting():
                answer = await call.task.ask(Inquiry(params.message, schema, url, by or self._id(call.tool)))
        given = dict(answer.content or {}) if answer.action == "accept" and not by_url else None
        return ElicitResult(action=answer.action, content=given)

    # --- what went wrong ---

    async def _why(self) -> str:
        if self._process is None:
            return "the connection was closed"
        await self._process.gone(_EXIT)
        return ending(self._process)

    @asynccontextmanager
    async def _said_plainly(self, tool: str) -> AsyncIterator[None]:
        """The SDK's many ways to fail, as the few that matter."""
        try:
            yield
        except MCPError as error:
            said, code = error.message, error.code
            if code == LOST:
                raise Lost(said) from None
            if code in (UNREACHED, REFUSED):
                raise Unreached(said) from None
            if _is_closed(error) or (code == CONNECTION_CLOSED and not self.alive):
                raise Lost(await self._why()) from None
            if code == GONE:
                self.over.set()
                raise Unreached(said) from None
            raise ToolFailed(self._id(tool), f"{said} ({code})") from None
        except (ValidationError, msgspec.ValidationError) as error:
            said = f"the answer is not what the protocol asks for: {_first(error)}"
            raise ToolFailed(self._id(tool), said) from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise Lost(await self._why()) from None

    def _id(self, tool: str) -> str:
        return f"{self.server.name}:{tool}" if tool else self.server.name


def _is_closed(error: MCPError) -> bool:
    """Whether the SDK says so: servers use its code for anything."""
    return error.code == CONNECTION_CLOSED and error.message == "Connection closed"


def _first(error: ValidationError | msgspec.ValidationError) -> str:
    if isinstance(error, msgspec.ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _definition(tool: Tool) -> Definition:
    hints = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations else {}
    return Definition(tool.name, tool.description or "", tool.input_schema, tool.output_schema, hints)


@asynccontextmanager
async def connect(
    server: Server,
    variables: Mapping[str, str],
    watchdog: Watchdog,
    *,
    changed: Callable[[], None] = lambda: None,
) -> AsyncIterator[Connection]:
    """A connection that has been agreed on, or `Unreached`. Enter and leave it in the same task.

    `changed` is called when the server says that its tools are others now.
    """
    process: Process | None = None
    connection: Connection | None = None
    try:
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(server.start_timeout) as limit:
                dispatcher: Dispatcher[Any]
                if server.command:
                    process = await stack.enter_async_context(run_process(server, variables, watchdog))
                    dispatcher = process.peer
                else:
                    dispatcher = JSONRPCDispatcher(*await stack.enter_async_context(open_wire(server)))
                connection = Connection(server, process)
                session = _Session(
                    dispatcher=dispatcher,
                    elicitation_callback=connection.asked,
                    message_handler=_hears(changed),
                    client_info=Implementation(name="penstock", version=version("penstock")),
                )
                connection.session = await stack.enter_async_context(session)
                await agree(session)
            stack.callback(connection.over.set)
            await stack.enter_async_context(_watching(session, changed))
            yield connection
    except Exception as error:  # noqa: BLE001 - whatever tasks of the SDK left behind, alone or in groups
        if limit.expired():
            said = f"; it last said: {process.last_words[-300:]}" if process and process.last_words else ""
            raise Unreached(f"it did not answer within {server.start_timeout:g} s{said}") from None
        raise Unreached(_why_not(error, process)) from None


async def agree(session: ClientSession) -> None:
    """Find a protocol both speak: the newer one, or by handshake an older one."""
    try:
        await session.discover()
    except MCPError as error:
        if error.code in (UNREACHED, REFUSED, LOST) or _is_closed(error):
            raise
        await _shake_hands(session)
    except (ValidationError, RuntimeError):  # it answered, but not like one who speaks the newer one
        await session.initialize()


async def _shake_hands(session: ClientSession) -> None:
    """The older way. One who speaks only the newer was merely slow to say so: it is asked again."""
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()


def _hears(changed: Callable[[], None]) -> Any:
    async def hear(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            changed()

    return hear


@asynccontextmanager
async def _watching(session: ClientSession, changed: Callable[[], None]) -> AsyncIterator[None]:
    """Listen for changes, where the protocol is the newer one and the server offers to tell."""
    tools = session.server_capabilities.tools if session.server_capabilities else None
    if session.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (tools and tools.list_changed):
        yield
        return

    async def watch() -> None:
        with contextlib.suppress(
            MCPError, RuntimeError, TimeoutError
        ):  # it is a courtesy, nothing depends on it
            async with listen(session, tools_list_changed=True) as events:
                async for event in events:
                    if isinstance(event, ToolsListChanged):
                        changed()

    task = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _why_not(error: BaseException, process: Process | None) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if process is not None and isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
        return ending(process)
    text = error.message if isinstance(error, MCPError) else str(error)
    return text or type(error).__name__
