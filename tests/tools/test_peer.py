"""One end of a pipe with JSON-RPC on it: who asks is answered, told why not, or told that nobody is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_PARAMS, REQUEST_TIMEOUT

from penstock.tools.mcp.peer import Asked, Peer, decode

Params = Mapping[str, Any] | None
Answer = Callable[[Asked, str, Params], Awaitable[dict[str, Any]]]


class Said:
    """A pipe that remembers what was said."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.broken = False
        self._more = asyncio.Event()

    def write(self, line: bytes) -> None:
        if self.broken:
            raise BrokenPipeError
        assert line.endswith(b"\n")
        self.lines.append(json.loads(line))
        self._more.set()

    async def drained(self) -> None:
        return

    async def until(self, count: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(5):
            while len(self.lines) < count:
                self._more.clear()
                await self._more.wait()
        return self.lines


class End:
    """A peer, and what the other end of its pipe hears and says."""

    def __init__(self) -> None:
        self.said = Said()
        self.peer = Peer(self.said)

    def hears(self, **message: Any) -> None:
        self.peer.hear(decode(json.dumps({"jsonrpc": "2.0", **message}).encode()))


async def refuses(_asked: Asked, method: str, _params: Params) -> dict[str, Any]:
    raise MCPError(code=-32601, message=f"no {method}")


async def passes(_asked: Asked, _method: str, _params: Params) -> None:
    return


@asynccontextmanager
async def running(answer: Answer = refuses, note: Any = passes, intercept: Any = None) -> Any:
    end = End()
    task = asyncio.create_task(end.peer.run(answer, note, intercept))
    await asyncio.sleep(0)
    try:
        yield end
    finally:
        end.peer.end()
        await task


# --- what we ask ---


async def test_a_request_has_the_result_of_its_own_answer() -> None:
    async with running() as end:
        calls = [asyncio.create_task(end.peer.send_raw_request("sum", {"n": n})) for n in range(2)]
        first, second = await end.said.until(2)
        end.hears(id=second["id"], result={"sum": 1})
        end.hears(id=str(first["id"]), result={"sum": 0})  # some echo a number as a text

        assert [await call for call in calls] == [{"sum": 0}, {"sum": 1}]
        assert first == {"jsonrpc": "2.0", "id": first["id"], "method": "sum", "params": {"n": 0}}


async def test_a_request_that_is_refused_says_why() -> None:
    async with running() as end:
        call = asyncio.create_task(end.peer.send_raw_request("sum", None))
        (asked,) = await end.said.until(1)
        end.hears(id=asked["id"], error={"code": -7, "message": "not today", "data": [1]})

        with pytest.raises(MCPError, match="not today") as caught:
            await call
        assert (caught.value.error.code, caught.value.error.data) == (-7, [1])


async def test_the_other_end_is_told_of_a_request_that_was_cancelled_and_may_still_answer() -> None:
    async with running() as end:
        call = asyncio.create_task(end.peer.send_raw_request("sum", {}))
        (asked,) = await end.said.until(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        end.hears(id=asked["id"], result={})

        told = (await end.said.until(2))[1]
        assert told["method"] == "notifications/cancelled"
        assert told["params"]["requestId"] == asked["id"]


async def test_a_request_that_takes_too_long_is_given_up_and_the_other_end_told() -> None:
    async with running() as end:
        with pytest.raises(MCPError, match="timed out") as caught:
            await end.peer.send_raw_request("sum", {}, {"timeout": 0.01})

        assert caught.value.error.code == REQUEST_TIMEOUT
        assert [one["method"] for one in end.said.lines] == ["sum", "notifications/cancelled"]


async def test_nothing_is_said_of_a_greeting_that_is_given_up() -> None:
    async with running() as end:
        with pytest.raises(MCPError):
            await end.peer.send_raw_request("initialize", {}, {"timeout": 0.01, "cancel_on_abandon": False})

        assert [one["method"] for one in end.said.lines] == ["initialize"]


async def test_progress_is_told_to_whoever_asked_for_it() -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with running() as end:
        call = asyncio.create_task(end.peer.send_raw_request("sum", {"n": 1}, {"on_progress": on_progress}))
        (asked,) = await end.said.until(1)
        token = asked["params"]["_meta"]["progressToken"]
        end.hears(method="notifications/progress", params={"progressToken": token, "progress": 1, "total": 2})
        end.hears(method="notifications/progress", params={"progressToken": token, "progress": True})
        end.hears(method="notifications/progress", params={"progressToken": 99, "progress": 3})
        end.hears(id=asked["id"], result={})
        await call

    assert heard == [(1.0, 2.0, None)]


async def test_when_nothing_more_is_heard_whoever_waits_is_told() -> None:
    async with running() as end:
        call = asyncio.create_task(end.peer.send_raw_request("sum", {}))
        await end.said.until(1)
        end.peer.end()

        for late in (call, end.peer.send_raw_request("sum", {})):
            with pytest.raises(MCPError, match="Connection closed") as caught:
                await late
            assert caught.value.error.code == CONNECTION_CLOSED


async def test_what_cannot_be_said_is_not_sent() -> None:
    async with running() as end:
        end.said.broken = True

        with pytest.raises(MCPError, match="Connection closed"):
            await end.peer.send_raw_request("sum", {})
        await end.peer.notify("notifications/anything", {})  # nobody hears it


async def test_an_id_that_is_taken_is_not_used_twice() -> None:
    async with running() as end:
        own = asyncio.create_task(end.peer.send_raw_request("listen", {}, {"request_id": "1"}))
        await end.said.until(1)
        other = asyncio.create_task(end.peer.send_raw_request("sum", {}))
        ids = [one["id"] for one in await end.said.until(2)]
        with pytest.raises(ValueError, match="already in flight"):
            await end.peer.send_raw_request("listen", {}, {"request_id": "1"})
        for id in ids:
            end.hears(id=id, result={"of": id})

        assert [await own, await other] == [{"of": "1"}, {"of": 2}]


# --- what we are asked ---


async def test_a_request_of_the_other_end_is_answered_with_what_comes_of_it() -> None:
    async def answer(_asked: Asked, method: str, params: Params) -> dict[str, Any]:
        return {"did": method, "with": params}

    async with running(answer) as end:
        end.hears(id="a", method="work", params={"n": 1})

        assert await end.said.until(1) == [
            {"jsonrpc": "2.0", "id": "a", "result": {"did": "work", "with": {"n": 1}}}
        ]


async def test_an_error_of_ours_is_told_without_its_words() -> None:
    async def answer(_asked: Asked, method: str, _params: Params) -> dict[str, Any]:
        if method == "known":
            raise MCPError(code=INVALID_PARAMS, message="no such thing")
        raise RuntimeError("a secret")

    async with running(answer) as end:
        end.hears(id=1, method="known")
        end.hears(id=2, method="unknown")
        known, unknown = await end.said.until(2)

    assert known["error"] == {"code": INVALID_PARAMS, "message": "no such thing"}
    assert unknown["error"] == {"code": INTERNAL_ERROR, "message": "Internal server error"}


async def test_a_request_that_the_other_end_cancels_is_stopped_and_not_answered() -> None:
    stopped = asyncio.Event()

    async def answer(asked: Asked, method: str, _params: Params) -> dict[str, Any]:
        if method == "quick":
            return {}
        try:
            await asyncio.Event().wait()
        finally:
            assert asked.cancel_requested.is_set()
            stopped.set()
        raise AssertionError

    async with running(answer) as end:
        end.hears(id=1, method="slow")
        await asyncio.sleep(0)
        end.hears(method="notifications/cancelled", params={"requestId": 7})  # nobody's
        end.hears(method="notifications/cancelled", params={"requestId": 1})
        await stopped.wait()
        end.hears(id=2, method="quick")

        assert [one["id"] for one in await end.said.until(1)] == [2]


async def test_who_waits_for_our_answer_is_told_when_we_leave() -> None:
    async def answer(_asked: Asked, _method: str, _params: Params) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async with running(answer) as end:
        end.hears(id=1, method="slow")
        await asyncio.sleep(0)

    (told,) = end.said.lines
    assert told["error"]["code"] == CONNECTION_CLOSED


async def test_a_handler_may_report_progress_and_ask_back() -> None:
    async def answer(asked: Asked, _method: str, _params: Params) -> dict[str, Any]:
        await asked.progress(1, 3, "one of three")
        return await asked.send_raw_request("ask", {"what": "name"})

    async with running(answer) as end:
        end.hears(id=1, method="work", params={"_meta": {"progressToken": "t"}})
        progress, question = await end.said.until(2)
        end.hears(id=question["id"], result={"name": "Ada"})
        reply = (await end.said.until(3))[2]

    assert progress["params"] == {
        "progressToken": "t", "progress": 1, "total": 3, "message": "one of three"
    }  # fmt: skip
    assert reply["result"] == {"name": "Ada"}


async def test_where_servers_may_not_ask_a_handler_cannot() -> None:
    async def answer(asked: Asked, _method: str, _params: Params) -> dict[str, Any]:
        with pytest.raises(NoBackChannelError):
            await asked.send_raw_request("ask", {})
        return {"can": asked.can_send_request, "transport": asked.transport.can_send_request}

    async with running(answer) as end:
        end.peer.may_ask = False
        end.hears(id=1, method="work")
        (reply,) = await end.said.until(1)

    assert reply["result"] == {"can": False, "transport": False}


async def test_what_is_heard_before_anyone_listens_is_dealt_with_in_order() -> None:
    order: list[str] = []

    async def answer(_asked: Asked, method: str, _params: Params) -> dict[str, Any]:
        order.append(method)
        return {}

    end = End()
    end.hears(id=1, method="first")
    end.hears(id=2, method="second")
    task = asyncio.create_task(end.peer.run(answer, passes))
    await end.said.until(2)
    end.peer.end()
    await task

    assert order == ["first", "second"]


async def test_a_notification_that_cannot_be_dealt_with_does_no_harm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[str] = []

    async def note(_asked: Asked, method: str, _params: Params) -> None:
        heard.append(method)
        raise RuntimeError("cannot")

    def intercept(method: str, _params: Params) -> bool:
        return method == "taken"

    async def answer(_asked: Asked, _method: str, _params: Params) -> dict[str, Any]:
        return {}

    async with running(answer, note, intercept) as end:
        end.hears(method="taken")
        end.hears(method="given", params={})
        end.hears(id=1, method="work")
        await end.said.until(1)

    assert heard == ["given"]
    assert "given could not be dealt with" in caplog.text


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"jsonrpc": "2.0"}',
        b'{"jsonrpc": "1.0", "id": 1, "method": "x"}',
        b'{"jsonrpc": "2.0", "id": true, "method": "x"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": 5}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "x", "params": []}',
        b'{"jsonrpc": "2.0", "id": 1, "result": 5}',
        b'{"jsonrpc": "2.0", "id": 1, "result": {}, "method": "x"}',
        b'{"jsonrpc": "2.0", "id": 1, "error": "no"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "x"} {}',
    ],
)
def test_what_is_no_message_is_none(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of any kind
        decode(line)
