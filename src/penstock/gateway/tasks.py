"""Runs as tasks of the protocol: a call that takes long is answered with a task, which is the run.

Two dialects. Since 2026-07-28 tasks are an extension: a client says with each request that it
knows them, and we answer with one when a run is not done in time. In 2025-11-25 the client asks
for a task. The SDK knows the words of both and speaks neither, so that is done here. A task's id is
the handle of its run: it is good after a reconnect and after a restart, and nobody can guess it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from penstock.errors import PenstockError
from penstock.gateway import asking
from penstock.gateway.calls import Call, Context, result
from penstock.gateway.service import MOST_WAIT, Session, Standing
from penstock.run.state import Run

EXTENSION: Final = "io.modelcontextprotocol/tasks"
RELATED: Final = "io.modelcontextprotocol/related-task"
CALLABLE: Final = "execute"
"""The tool whose calls may be tasks."""

POLL_MS: Final = 500
"""How often we would like to be asked."""

OFFERED: Final = types.ServerTasksCapability(
    list=types.TasksListCapability(),
    cancel=types.TasksCancelCapability(),
    requests=types.ServerTasksRequestsCapability(
        tools=types.TasksToolsCapability(call=types.TasksCallCapability())
    ),
)
"""What a client of 2025-11-25 is told."""

Status = Literal["working", "input_required", "completed", "cancelled"]


class TaskParams(types.RequestParams):
    """Which task is meant."""

    task_id: str


class TaskUpdate(TaskParams):
    input_responses: types.InputResponses


class Tasks:
    """Answers what clients ask about tasks."""

    def __init__(self, server: Server[Any]) -> None:
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", TaskUpdate, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)
        server.add_request_handler("tasks/result", TaskParams, self._result)
        server.add_request_handler("tasks/list", types.PaginatedRequestParams, self._list)
        server.middleware.append(self._asked_for)

    async def instead(self, call: Call, answer: Mapping[str, Any]) -> dict[str, Any] | None:
        """A task in place of an answer that says that a run goes on, for a client that knows tasks."""
        if answer.get("status") != "running" or not (call.modern and _knows_tasks(call.context)):
            return None
        standing = await call.session.standing(answer["run_id"], 0)
        return {"resultType": "task", **_modern(answer["run_id"], standing.run, "working")}

    # --- 2025-11-25: the client asks for a task ---

    async def _asked_for(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Calls that are to be tasks, caught before the SDK, which would not let their answer through."""
        params = ctx.params or {}
        if ctx.method != "tools/call" or "task" not in params or _is_modern(ctx):
            return await call_next(ctx)
        if params.get("name") != CALLABLE:
            raise MCPError(code=types.METHOD_NOT_FOUND, message=f"only {CALLABLE} can be a task")
        given = params.get("arguments")
        arguments = {**(given if isinstance(given, dict) else {}), "wait_s": 0}
        plain = {key: value for key, value in params.items() if key != "task"} | {"arguments": arguments}
        answer = await call_next(replace(ctx, params=plain))
        handle = _handle_in(answer)
        if not handle:
            return answer  # nothing was begun: what is wrong is said at once
        task = await self._task(ctx, ctx.lifespan_context.of(ctx, handle), handle)
        # The SDK's client takes no answer to a call that has no content.
        return {"task": task, "content": [], "_meta": {RELATED: {"taskId": handle}}}

    async def _list(self, context: Context, _params: types.PaginatedRequestParams) -> HandlerResult:
        _only_before(context, "tasks/list")
        session = context.lifespan_context.of(context, "")
        return {"tasks": [await self._task(context, session, handle) for handle in session.own]}

    async def _result(self, context: Context, params: TaskParams) -> HandlerResult:
        """What the call would have answered, when it is done; a person is asked meanwhile."""
        _only_before(context, "tasks/result")
        call = _call(context, params.task_id)
        while True:
            call.until = time.monotonic() + MOST_WAIT
            standing = await _standing(call.session, params.task_id, MOST_WAIT)
            answer = await call.put_to_person(standing.answer)
            status = _status(answer, person=call.has_person)
            if status == "cancelled":
                raise MCPError(code=types.INVALID_PARAMS, message="the task was cancelled")
            if status == "completed":
                return {**result(answer), "_meta": {RELATED: {"taskId": params.task_id}}}
            if status == "input_required":
                await call.session.changed(params.task_id)

    # --- both ---

    async def _get(self, context: Context, params: TaskParams) -> HandlerResult:
        return await self._task(context, _call(context, params.task_id).session, params.task_id)

    async def _cancel(self, context: Context, params: TaskParams) -> HandlerResult:
        session = _call(context, params.task_id).session
        await _standing(session, params.task_id, 0)
        answer = await session.call("abort", {"run_id": params.task_id, "reason": "the task was cancelled"})
        if _is_modern(context):
            return {}
        if "error" in answer:
            raise MCPError(code=types.INVALID_PARAMS, message=f"it cannot be cancelled: {answer['error']}")
        return await self._task(context, session, params.task_id)

    async def _update(self, context: Context, params: TaskUpdate) -> HandlerResult:
        session = _call(context, params.task_id).session
        await _standing(session, params.task_id, 0)
        await asking.heard(session, params.task_id, params.input_responses)
        return {}

    async def _task(self, context: Context, session: Session, handle: str) -> dict[str, Any]:
        person = _call(context, handle).has_person
        answer, run = await _standing(session, handle, 0)
        status = _status(answer, person=person)
        if not _is_modern(context):
            return _before(handle, run, status)
        task = _modern(handle, run, status)
        if status == "completed":
            task["result"] = {"resultType": "complete", **result(answer)}
        elif status == "input_required":
            asked = asking.requests(asking.for_people(answer["pending"]))
            task["inputRequests"] = {
                key: one.model_dump(by_alias=True, mode="json", exclude_none=True)
                for key, one in asked.items()
            }
        return task


def _call(context: Context, handle: str) -> Call:
    return Call(context, types.CallToolRequestParams(name="", arguments={"run_id": handle}))


async def _standing(session: Session, handle: str, wait_s: float) -> Standing:
    try:
        return await session.standing(handle, wait_s)
    except PenstockError as error:
        raise MCPError(code=types.INVALID_PARAMS, message=str(error)) from None


def _is_modern(context: Context) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def _only_before(context: Context, method: str) -> None:
    if _is_modern(context):
        raise MCPError(code=types.METHOD_NOT_FOUND, message="Method not found", data=method)


def _knows_tasks(context: Context) -> bool:
    has = context.session.client_capabilities
    return has is not None and EXTENSION in (has.extensions or {})


def _handle_in(answer: HandlerResult) -> str:
    shown = answer.get("structuredContent") if isinstance(answer, dict) else None
    return str(shown.get("run_id", "")) if isinstance(shown, dict) else ""


def _status(answer: Mapping[str, Any], *, person: bool) -> Status:
    """A run that waits for a decision is done with as a call, unless there is a person to be asked."""
    if answer["status"] in ("running", "pending"):
        return "working"
    if answer["status"] == "aborted":
        return "cancelled"
    return "input_required" if person and asking.for_people(answer["pending"]) else "completed"


def _modern(handle: str, run: Run, status: Status) -> dict[str, Any]:
    return {**_common(handle, run, status), "ttlMs": None, "pollIntervalMs": POLL_MS}


def _before(handle: str, run: Run, status: Status) -> dict[str, Any]:
    return {**_common(handle, run, status), "ttl": None, "pollInterval": POLL_MS}


def _common(handle: str, run: Run, status: Status) -> dict[str, Any]:
    return {
        "taskId": handle,
        "status": status,
        "statusMessage": run.reason or f"the run is {run.status}",
        "createdAt": _moment(run.started_at),
        "lastUpdatedAt": _moment(run.at),
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
