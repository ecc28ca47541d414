"""One end of a pipe with JSON-RPC on it: requests that are sent and answered, in both directions.

Takes the place of the SDK's own dispatcher beneath its sessions and servers, and knows no more of the
protocol than that one does. A message is dealt with as it arrives, in the turn of the event loop
that read it; the SDK passes it through streams, task groups and models, several turns and most
of a millisecond long. Nothing is checked here but that a message is one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeGuard

import anyio
import anyio.abc
import msgspec
from mcp.shared.dispatcher import (
    CallOptions,
    Dispatcher,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    ProgressFnT,
    as_request_id,
    coerce_request_id,
    run_notify_intercept,
)
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data, progress_token_from_params
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, REQUEST_TIMEOUT, ErrorData, RequestId
from msgspec import UNSET, Struct, UnsetType
from opentelemetry import propagate, trace

PARTING: Final = 1.0
"""Seconds that requests which were being answered have to end with the connection."""

_log = logging.getLogger("penstock.mcp")
_encode = msgspec.json.Encoder().encode


class Error(Struct):
    """What a request is answered with when it is not answered."""

    code: int
    message: str
    data: Any = None


class Message(Struct):
    """One line of a pipe: a request, a notification, or the answer to a request."""

    jsonrpc: Literal["2.0"]
    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: dict[str, Any] | None = None
    result: dict[str, Any] | UnsetType = UNSET
    error: Error | UnsetType = UNSET

    def __post_init__(self) -> None:
        if sum(one is not UNSET for one in (self.method, self.result, self.error)) != 1:
            raise ValueError("not a message")


decode: Final = msgspec.json.Decoder(Message).decode
"""What a line says. `ValueError` when it is not a message."""


class Pipe(Protocol):
    """Where lines go."""

    def write(self, line: bytes) -> None:
        """Never waits. `OSError` when nobody reads any more."""
        ...

    async def drained(self) -> None:
        """Until there is room for more."""
        ...


@dataclass(slots=True)
class _Sent:
    answer: asyncio.Future[dict[str, Any]]
    on_progress: ProgressFnT | None


class Asked:
    """A request or a notification of the other end, as its handler sees it."""

    message_metadata = None

    def __init__(self, peer: Peer, id: RequestId | None, params: Mapping[str, Any] | None) -> None:
        self.request_id = id
        self.cancelled = False
        """The other end does not want an answer any more."""
        self.task: asyncio.Task[None]
        self._peer = peer
        self._token = progress_token_from_params(params) if id is not None else None
        self._over: anyio.Event | None = None

    @property
    def transport(self) -> TransportContext:
        return _DUPLEX if self._peer.may_ask else _ONE_WAY

    @property
    def can_send_request(self) -> bool:
        return self._peer.may_ask and not self.task.done()

    @property
    def cancel_requested(self) -> anyio.Event:
        if self._over is None:
            self._over = anyio.Event()
            if self.cancelled:
                self._over.set()
        return self._over

    def cancel(self) -> None:
        self.cancelled = True
        self.cancel_requested.set()
        self.task.cancel()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if not self.can_send_request:
            raise NoBackChannelError(method)
        return await self._peer.send_raw_request(method, params, opts)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        await self._peer.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if self._token is None or self.cancelled:
            return
        said = {"progressToken": self._token, "progress": progress, "total": total, "message": message}
        await self.notify(
            "notifications/progress", {key: one for key, one in said.items() if one is not None}
        )


_DUPLEX: Final = TransportContext(kind="stdio", can_send_request=True)
_ONE_WAY: Final = TransportContext(kind="stdio", can_send_request=False)


class Peer(Dispatcher[TransportContext]):
    """Is told what is heard, and says what it has to say to a pipe."""

    def __init__(self, pipe: Pipe) -> None:
        self.may_ask = True
        """Whether handlers may send requests while they answer one. In the newer protocol servers may not."""
        self._pipe = pipe
        self._number = 0
        self._sent: dict[RequestId, _Sent] = {}
        self._asked: dict[RequestId, Asked] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._early: list[Message] = []
        """What was heard before anyone listened."""
        self._handlers: tuple[OnRequest, OnNotify, OnNotifyIntercept | None] | None = None
        self._ended = asyncio.Event()

    # --- what we send ---

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """The result of a request. `MCPError` is what the other end says, or that there is none any more."""
        if self._ended.is_set():
            raise _closed()
        wants: CallOptions = opts or {}
        id = wants.get("request_id") or self._fresh()
        key = coerce_request_id(id)
        if key in self._sent:
            raise ValueError(f"request id {id!r} is already in flight")
        sent = _Sent(asyncio.get_running_loop().create_future(), wants.get("on_progress"))
        self._sent[key] = sent
        try:
            self._say({"id": id, "method": method, **_with_meta(params, id if sent.on_progress else None)})
            await self._pipe.drained()
            if "timeout" not in wants:
                return await sent.answer
            async with asyncio.timeout(wants["timeout"]):
                return await sent.answer
        except TimeoutError:
            self._give_up(id, wants, f"timed out after {wants['timeout']:g} s")
            raise MCPError(code=REQUEST_TIMEOUT, message=f"Request {method!r} timed out") from None
        except OSError:
            raise _closed() from None
        except asyncio.CancelledError:
            self._give_up(id, wants, "caller cancelled")
            raise
        finally:
            del self._sent[key]
            if sent.answer.done() and not sent.answer.cancelled():
                sent.answer.exception()  # heard, also when we were cancelled meanwhile

    async def notify(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,  # noqa: ARG002 - the SDK's signature
    ) -> None:
        """Say something that has no answer; nobody may hear it."""
        if self._tell(method, params):
            await self._pipe.drained()

    def _tell(self, method: str, params: Mapping[str, Any] | None) -> bool:
        try:
            self._say({"method": method, **({} if params is None else {"params": params})})
        except OSError:
            return False
        return True

    def _give_up(self, id: RequestId, wants: CallOptions, reason: str) -> None:
        if wants.get("cancel_on_abandon", True):
            self._tell("notifications/cancelled", {"requestId": id, "reason": reason})

    def _fresh(self) -> int:
        self._number += 1
        while self._number in self._sent:
            self._number += 1
        return self._number

    def _say(self, message: dict[str, Any]) -> None:
        self._pipe.write(_encode({"jsonrpc": "2.0", **message}) + b"\n")

    # --- what we hear ---

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Answer until the other end says no more."""
        self._handlers = (on_request, on_notify, on_notify_intercept)
        task_status.started()
        for message in self._early:
            self.hear(message)
        self._early.clear()
        try:
            await self._ended.wait()
            await asyncio.sleep(0)  # what was heard last begins, at least
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                with anyio.CancelScope(shield=True):  # we may be cancelled ourselves
                    await asyncio.wait(self._tasks, timeout=PARTING)
            self.end()

    def end(self) -> None:
        """Nothing more will be heard."""
        self._ended.set()
        for sent in self._sent.values():
            if not sent.answer.done():
                sent.answer.set_exception(_closed())

    def hear(self, message: Message) -> None:
        """Deal with a message, at once."""
        if self._handlers is None:
            self._early.append(message)
        elif message.method is UNSET:
            self._settle(message)
        elif message.id is UNSET:
            self._hear_notification(message.method, message.params)
        elif message.id is not None:
            asked = Asked(self, message.id, message.params)
            self._asked[coerce_request_id(message.id)] = asked
            self._spawn(asked, self._answer(asked, message.method, message.params))

    def _settle(self, message: Message) -> None:
        if message.id is UNSET or message.id is None:
            return
        sent = self._sent.get(coerce_request_id(message.id))
        if sent is None or sent.answer.done():
            return  # it came too late
        if message.error is not UNSET:
            error = message.error
            sent.answer.set_exception(MCPError(code=error.code, message=error.message, data=error.data))
        elif message.result is not UNSET:
            sent.answer.set_result(message.result)

    def _hear_notification(self, method: str, params: Mapping[str, Any] | None) -> None:
        assert self._handlers is not None  # noqa: S101 - somebody listens
        _, on_notify, intercept = self._handlers
        said = params or {}
        if method == "notifications/cancelled":
            id = as_request_id(said.get("requestId"))
            asked = self._asked.get(coerce_request_id(id)) if id is not None else None
            if asked is not None:
                asked.cancel()
        elif method == "notifications/progress":
            self._hear_progress(said)
        if run_notify_intercept(intercept, method, params):
            return
        asked = Asked(self, None, params)
        self._spawn(asked, _contained(method, on_notify, asked, method, params))

    def _hear_progress(self, said: Mapping[str, Any]) -> None:
        token, progress = as_request_id(said.get("progressToken")), said.get("progress")
        sent = self._sent.get(coerce_request_id(token)) if token is not None else None
        if sent is None or sent.on_progress is None or not _is_number(progress):
            return
        total, message = said.get("total"), said.get("message")
        given = (
            float(progress),
            float(total) if _is_number(total) else None,
            message if isinstance(message, str) else None,
        )
        self._spawn(Asked(self, None, said), _contained("progress", sent.on_progress, *given))

    # --- requests of the other end ---

    def _spawn(self, asked: Asked, work: Coroutine[Any, Any, None]) -> None:
        asked.task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(asked.task)
        asked.task.add_done_callback(partial(self._done, asked))

    def _done(self, asked: Asked, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        key = coerce_request_id(asked.request_id) if asked.request_id is not None else None
        if key is not None and self._asked.get(key) is asked:
            del self._asked[key]

    async def _answer(self, asked: Asked, method: str, params: Mapping[str, Any] | None) -> None:
        assert self._handlers is not None  # noqa: S101 - somebody listens
        try:
            replied = self._reply(asked, {"result": await self._handlers[0](asked, method, params)})
        except asyncio.CancelledError:  # by the other end, or because we leave
            self._reply(asked, _refusal(ErrorData(code=CONNECTION_CLOSED, message="Connection closed")))
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the other end has to be told
            known = handler_exception_to_error_data(error)
            if known is None:
                _log.exception("%s could not be answered", method)
                known = ErrorData(code=INTERNAL_ERROR, message="Internal server error")
            replied = self._reply(asked, _refusal(known))
        if replied:
            await self._pipe.drained()

    def _reply(self, asked: Asked, said: dict[str, Any]) -> bool:
        if asked.cancelled:
            return False
        try:
            self._say({"id": asked.request_id, **said})
        except OSError:
            return False  # nobody waits for it any more
        return True


def _closed() -> MCPError:
    return MCPError(code=CONNECTION_CLOSED, message="Connection closed")


def _refusal(error: ErrorData) -> dict[str, Any]:
    return {"error": error.model_dump(mode="json", exclude_none=True)}


def _with_meta(params: Mapping[str, Any] | None, token: RequestId | None) -> dict[str, Any]:
    """Parameters with what goes with them: where to report progress to, and the trace we are in."""
    more: dict[str, Any] = {} if token is None else {"progressToken": token}
    if trace.get_current_span() is not trace.INVALID_SPAN:
        propagate.inject(more)
    if more:
        params = {**(params or {}), "_meta": {**((params or {}).get("_meta") or {}), **more}}
    return {"params": params} if params else {}


async def _contained(name: str, handle: Callable[..., Awaitable[None]], *given: Any) -> None:
    """What a notification leads to; whatever is wrong with that must not end the connection."""
    try:
        await handle(*given)
    except Exception:  # noqa: BLE001 - it is said, and nobody waits for more
        _log.exception("%s could not be dealt with", name)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
