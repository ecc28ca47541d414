"""A server made with the official SDK, over pipes and over HTTP."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving import VARIABLES, alive, eventually, mannered, settled, wait

from penstock.errors import LostCall, ServerDown, ToolFailed, ToolRefused
from penstock.ids import RunId, StepId
from penstock.testing.mcp_server import LONG_NAME
from penstock.tools.base import Answer, Inquiry, Task
from penstock.tools.catalog import TASK, Servers, ToolCatalog
from penstock.tools.mcp.config import Server
from penstock.tools.names import by_wire_name, wire_name

ERAS = ("", "--older")
TASK_1 = Task(RunId("r"), StepId("s"), 1, None, 1)


def using(use: Callable[[ToolCatalog], Awaitable[Any]], server: Server | None = None, **options: Any) -> Any:
    server = server or mannered()

    async def main() -> Any:
        catalog = ToolCatalog(servers=Servers({server.name: server}, variables=VARIABLES, **options))
        try:
            await catalog.start()
            return await use(catalog)
        finally:
            await catalog.close()

    return wait(main())


async def called(catalog: ToolCatalog, id: str, *, task: Task = TASK_1, **args: Any) -> Any:
    tool = catalog.find(id)
    checked = tool.convert(args) if tool.convert else args
    return await tool.call(**checked, **{TASK: task})


def test_tools_answer_with_what_they_have() -> None:
    async def use(catalog: ToolCatalog) -> None:
        assert await called(catalog, "good:echo", text="plain") == "plain"
        assert await called(catalog, "good:echo", text='{"a": [1]}') == {"a": [1]}
        assert await called(catalog, "good:add", a=1, b=2) == {"total": 3}
        picture = await called(catalog, "good:picture")
        assert picture["content"][0]["mimeType"] == "image/png"
        assert len(await called(catalog, "good:huge", size=5_000_000)) == 5_000_000
        with pytest.raises(ToolFailed, match=r"good:fail: .*out of paper"):
            await called(catalog, "good:fail", message="out of paper")
        assert catalog.health()["good"].state == "ok"  # a tool that fails is a server that works

    using(use)


def test_a_crash_in_mid_call_is_survived(tmp_path: Path) -> None:
    async def use(catalog: ToolCatalog) -> None:
        assert await called(catalog, "good:crash", marker=str(tmp_path / "crashed")) == "survived"
        with pytest.raises(LostCall):
            await catalog.pool.call("good", "crash", {}, effect="write")

    using(use)


@pytest.mark.parametrize("era", ERAS)
def test_a_question_of_the_server_reaches_whoever_answers_for_the_task(era: str) -> None:
    asked: list[Inquiry] = []

    async def ask(question: Inquiry) -> Answer:
        asked.append(question)
        return Answer("accept", {"colour": "red"}) if len(asked) == 1 else Answer("decline")

    task = replace(TASK_1, ask=ask)

    async def use(catalog: ToolCatalog) -> None:
        assert await called(catalog, "good:paint", task=task, what="door") == "door is red"
        with pytest.raises(ToolFailed):
            await called(catalog, "good:paint", task=task, what="door")

    using(use, mannered(*era.split()))
    assert (asked[0].message, asked[0].by) == ("Which colour?", "good:paint")
    assert asked[0].schema["required"] == ["colour"]


def test_a_question_by_url_is_answered_with_yes_or_no() -> None:
    asked: list[Inquiry] = []

    async def ask(question: Inquiry) -> Answer:
        asked.append(question)
        return Answer("accept", {})

    async def use(catalog: ToolCatalog) -> None:
        assert await called(catalog, "good:log_in", task=replace(TASK_1, ask=ask)) == "accept"

    using(use, mannered("--older"))
    assert [one.url for one in asked] == ["https://login.example/a?b=c"]


def test_a_question_that_nobody_answers_is_declined() -> None:
    async def use(catalog: ToolCatalog) -> None:
        with pytest.raises(ToolFailed):
            await called(catalog, "good:paint", what="door")

    using(use)


def test_a_long_name_has_a_short_one_on_the_wire() -> None:
    async def use(catalog: ToolCatalog) -> None:
        wire = wire_name(f"good:{LONG_NAME}")
        assert len(wire) == 64
        assert await called(catalog, by_wire_name(wire, catalog.ids())) == "long"

    using(use)


def test_a_tool_that_becomes_another_is_refused_until_it_is_approved_again(tmp_path: Path) -> None:
    marker = str(tmp_path / "m")

    async def use(catalog: ToolCatalog) -> None:
        echo = catalog.find("good:echo")
        assert await echo.call(text="hi") == "hi"
        await called(catalog, "good:change")
        assert await settled(lambda: catalog.changes != [])
        with pytest.raises(ToolRefused, match=r"\+.*contents of ~/\.ssh"):
            await echo.call(text="hi")
        with pytest.raises(ToolRefused, match="not what was approved"):
            catalog.find("good:echo")
        assert await called(catalog, "good:crash", marker=marker) == "survived"
        assert catalog.find("good:echo").id == "good:echo"  # started anew, it is as it was approved
        await called(catalog, "good:change")
        assert await settled(lambda: catalog.changes != [])
        assert [change.id for change in catalog.changes] == ["good:echo"]
        assert catalog.approve("good:echo")
        assert not catalog.approve("good:echo")
        assert await catalog.find("good:echo").call(text="hi", secrets="!") == "hi!"

    using(use)


def test_what_a_server_starts_does_not_outlive_the_pool() -> None:
    async def use(catalog: ToolCatalog) -> list[int]:
        return [await called(catalog, "good:sprout", detached=detached) for detached in (False, True)]

    pids = using(use)
    assert eventually(lambda: not any(map(alive, pids)))


def test_no_key_of_ours_is_seen_by_a_server() -> None:
    async def use(catalog: ToolCatalog) -> list[str]:
        return [await called(catalog, "good:variable", name=name) for name in ("OPENAI_API_KEY", "OWN")]

    server = mannered(env={"OWN": "x"})

    async def main() -> Any:
        variables = {**VARIABLES, "OPENAI_API_KEY": "sk-1"}
        catalog = ToolCatalog(servers=Servers({"good": server}, variables=variables))
        try:
            await catalog.start()
            return await use(catalog)
        finally:
            await catalog.close()

    assert wait(main()) == ["not set", "x"]


# --- over HTTP ---


@contextmanager
def listening(port: int) -> Iterator[None]:
    command = [sys.executable, "-m", "penstock.testing.mcp_server", "--http", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            assert eventually(lambda: _answers(port), within=20)
            yield
        finally:
            server.kill()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_at_an_address_may_go_and_come_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    server = Server(name="good", url=f"http://127.0.0.1:{port}/mcp", max_bytes=1_000_000)

    async def use(catalog: ToolCatalog) -> None:
        upstream = catalog.pool.upstreams["good"]
        with listening(port):
            await catalog.start()
            assert await called(catalog, "good:echo", text="hi") == "hi"
            assert await called(catalog, "good:add", a=1, b=2) == {"total": 3}
            with pytest.raises(ToolFailed):
                await called(catalog, "good:huge", size=5_000_000)
            calls = [called(catalog, "good:echo", text=f"t{n}") for n in range(20)]
            assert len(set(await asyncio.gather(*calls))) == 20
            with pytest.raises(LostCall):
                await upstream.call("crash", {}, effect="write")
        with pytest.raises(ServerDown, match="cannot be reached"):
            await upstream.call("echo", {"text": "hi"}, effect="write")
        with listening(port):
            assert await upstream.call("echo", {"text": "back"}, effect="write") == "back"
            assert upstream.health.state == "ok"

    using(use, server)
