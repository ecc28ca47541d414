"""Runs as tasks, for clients that know them: the official client, in both eras of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError
from reached import Gateway, Served, answering

from penstock.gateway.tasks import EXTENSION

HELD = {"tool": "clocks:held", "wait_s": 0}
ERASE = [
    {"id": "wait", "uses": "clocks:held"},
    {"id": "erase", "uses": "disk:erase", "needs": ["wait"], "with": {"path": "f"}},
]


class Created(types.Result):
    """A task in place of a result, as 2026-07-28 has it."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    poll_interval_ms: int | None = None


class Detailed(types.Result):
    status: str
    result: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = None
    result_type: str = "complete"


class TaskParams(types.RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class Get(types.Request[TaskParams, Literal["tasks/get"]]):
    name_param = "taskId"
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams


class Update(types.Request[TaskParams, Literal["tasks/update"]]):
    name_param = "taskId"
    method: Literal["tasks/update"] = "tasks/update"
    params: TaskParams


class Cancel(types.Request[TaskParams, Literal["tasks/cancel"]]):
    name_param = "taskId"
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams


class KnowsTasks(ClientExtension):
    """What a client needs to understand tasks; it keeps those that it was given."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.given: list[Created] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Created, resolve=self._kept)]

    async def _kept(self, created: Created, _context: ClaimContext) -> types.CallToolResult:
        self.given.append(created)
        return types.CallToolResult(content=[types.TextContent(text=created.task_id)])


async def get(client: Client, task: str) -> Detailed:
    return await client.session.send_request(Get(params=TaskParams(task_id=task)), Detailed)


async def until(client: Client, task: str, *statuses: str) -> Detailed:
    while True:
        found = await get(client, task)
        if found.status in statuses:
            return found


async def begun(client: Client, knows: KnowsTasks, call: dict[str, Any]) -> str:
    await client.call_tool("execute", call)
    assert knows.given[-1].status == "working"
    return knows.given[-1].task_id


# --- 2026-07-28: an extension ---


async def test_a_run_that_is_not_done_in_time_is_a_task_that_survives_a_reconnect(
    gateway: Gateway, served: Served
) -> None:
    knows = KnowsTasks()
    async with served.client(extensions=[knows]) as client:
        task = await begun(client, knows, HELD)
    (gateway.folder / "go").touch()
    async with served.client(extensions=[KnowsTasks()]) as client:
        done = await until(client, task, "completed")

    assert done.result is not None
    assert done.result["structuredContent"]["results"] == {"call": "gone"}


async def test_a_task_survives_the_end_of_the_process_that_began_it(gateway: Gateway) -> None:
    knows = KnowsTasks()
    async with gateway.pipe(extensions=[knows]) as client:
        task = await begun(client, knows, HELD)
    (gateway.folder / "go").touch()
    async with gateway.pipe(extensions=[knows]) as client:
        done = await until(client, task, "completed")

    assert done.result is not None
    assert done.result["structuredContent"]["results"] == {"call": "gone"}


async def test_a_call_that_is_done_in_time_is_no_task(gateway: Gateway) -> None:
    knows = KnowsTasks()
    async with gateway.pipe(extensions=[knows]) as client:
        answer = await client.call_tool("execute", {"tool": "sums:add", "args": {"a": 1, "b": 2}})

    assert answer.structured_content["results"] == {"call": 3}
    assert knows.given == []


async def test_a_client_that_does_not_know_tasks_is_given_a_handle(gateway: Gateway) -> None:
    async with gateway.pipe() as client:
        answer = await client.call_tool("execute", HELD)

    assert answer.structured_content["status"] == "running"


async def test_cancelling_a_task_aborts_its_run(gateway: Gateway) -> None:
    knows = KnowsTasks()
    async with gateway.pipe(extensions=[knows]) as client:
        task = await begun(client, knows, HELD)
        await client.session.send_request(Cancel(params=TaskParams(task_id=task)), types.EmptyResult)
        await until(client, task, "cancelled")
        stands = await client.call_tool("status", {"run_id": task})

    assert stands.structured_content["status"] == "aborted"


async def test_a_task_asks_the_person_behind_the_client_and_goes_on_with_the_answer(gateway: Gateway) -> None:
    knows, (answer, _) = KnowsTasks(), answering("cancel")
    async with gateway.pipe(extensions=[knows], elicitation_callback=answer) as client:
        task = await begun(client, knows, {"steps": ERASE, "wait_s": 0})
        (gateway.folder / "go").touch()
        asked = await until(client, task, "input_required")
        (key,) = asked.input_requests or {}
        said = {key: {"action": "accept", "content": {"verb": "approve"}}}
        update = Update(params=TaskParams(task_id=task, input_responses=said))
        await client.session.send_request(update, types.EmptyResult)
        done = await until(client, task, "completed")

    assert "disk:erase" in (asked.input_requests or {})[key]["params"]["message"]
    assert done.result is not None
    assert done.result["structuredContent"]["results"]["erase"] == "erased f"


async def test_a_task_that_is_nobodys_is_refused(gateway: Gateway) -> None:
    async with gateway.pipe(extensions=[KnowsTasks()]) as client:
        with pytest.raises(MCPError, match="no run has the handle"):
            await get(client, "made-up~0123456789abcdef")


# --- 2025-11-25: the client asks for a task ---


def as_task(call: dict[str, Any]) -> types.CallToolRequest:
    task = types.TaskMetadata(ttl=60_000)
    return types.CallToolRequest(
        params=types.CallToolRequestParams(name="execute", arguments=call, task=task)
    )


async def test_a_client_of_the_older_protocol_asks_for_a_task_and_fetches_its_result(
    gateway: Gateway,
) -> None:
    async with gateway.pipe("legacy") as client:
        session, offered = client.session, client.server_capabilities.tasks
        created = await session.send_request(as_task({"tool": "clocks:held"}), types.CreateTaskResult)
        task = created.task
        listed = await session.send_request(types.ListTasksRequest(), types.ListTasksResult)
        (gateway.folder / "go").touch()
        wanted = types.GetTaskPayloadRequest(params=types.GetTaskPayloadRequestParams(task_id=task.task_id))
        done = await session.send_request(wanted, types.CallToolResult)
        asked = types.GetTaskRequest(params=types.GetTaskRequestParams(task_id=task.task_id))
        after = await session.send_request(asked, types.GetTaskResult)

    assert offered is not None
    assert offered.requests is not None
    assert task.status == "working"
    assert [one.task_id for one in listed.tasks] == [task.task_id]
    assert done.structured_content["results"] == {"call": "gone"}
    assert after.status == "completed"


async def test_a_person_is_asked_while_the_result_of_a_task_is_waited_for(gateway: Gateway) -> None:
    answer, asked = answering("accept", verb="approve")
    (gateway.folder / "go").touch()
    async with gateway.pipe("legacy", elicitation_callback=answer) as client:
        created = await client.session.send_request(as_task({"steps": ERASE}), types.CreateTaskResult)
        params = types.GetTaskPayloadRequestParams(task_id=created.task.task_id)
        done = await client.session.send_request(
            types.GetTaskPayloadRequest(params=params), types.CallToolResult
        )

    assert done.structured_content["results"]["erase"] == "erased f"
    assert len(asked) == 1


async def test_a_task_of_the_older_protocol_is_cancelled(gateway: Gateway) -> None:
    async with gateway.pipe("legacy") as client:
        created = await client.session.send_request(as_task({"tool": "clocks:held"}), types.CreateTaskResult)
        params = types.CancelTaskRequestParams(task_id=created.task.task_id)
        cancelled = await client.session.send_request(
            types.CancelTaskRequest(params=params), types.CancelTaskResult
        )

    assert cancelled.status == "cancelled"
