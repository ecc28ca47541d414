"""Servers that other people made, as they come from PyPI and npm."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import VARIABLES, eventually, wait

from penstock.errors import LostCall, ToolFailed
from penstock.ids import RunId, StepId
from penstock.tools.base import Answer, Inquiry, Task
from penstock.tools.catalog import TASK, Servers, ToolCatalog
from penstock.tools.mcp.config import Server

Programs = Callable[[str], str]

pytestmark = [pytest.mark.third_party, pytest.mark.timeout(300)]


@asynccontextmanager
async def catalog_of(*servers: Server, **options: Any) -> AsyncIterator[ToolCatalog]:
    known = {server.name: server for server in servers}
    catalog = ToolCatalog(servers=Servers(known, variables=VARIABLES, **options))
    try:
        failed = [one for one in await catalog.start() if one.state != "ready"]
        assert not failed, failed
        yield catalog
    finally:
        await catalog.close()


async def called(catalog: ToolCatalog, id: str, *, task: Task | None = None, **args: Any) -> Any:
    tool = catalog.find(id)
    return await tool.call(**(tool.convert(args) if tool.convert else args), **{TASK: task})


def test_time(from_pypi: Programs) -> None:
    async def main() -> None:
        async with catalog_of(Server(name="time", command=from_pypi("mcp-server-time"))) as catalog:
            assert catalog.find("time:convert_time").effect == "read"
            there = await called(
                catalog,
                "time:convert_time",
                source_timezone="UTC",
                time="12:00",
                target_timezone="Asia/Tokyo",
            )
            assert "21:00" in json.dumps(there)
            with pytest.raises(ToolFailed):
                await called(catalog, "time:get_current_time", timezone="Middle/Earth")
            with pytest.raises(ValueError, match="'timezone' is a required property"):
                await called(catalog, "time:get_current_time")

    wait(main())


def test_git(from_pypi: Programs, tmp_path: Path) -> None:
    who = {f"GIT_{role}_{part}": "x@x.org" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "a.txt").write_text("a")
    args = ("--repository", str(tmp_path))
    server = Server(name="git", command=from_pypi("mcp-server-git"), args=args, env=who)

    async def main() -> None:
        async with catalog_of(server) as catalog:
            repo = str(tmp_path)
            effects = {id: catalog.find(id).effect for id in ("git:git_log", "git:git_add", "git:git_reset")}
            assert list(effects.values()) == ["read", "idempotent", "destructive"]
            await called(catalog, "git:git_add", repo_path=repo, files=["a.txt"])
            await called(catalog, "git:git_commit", repo_path=repo, message="first")
            assert "first" in json.dumps(await called(catalog, "git:git_log", repo_path=repo))
            with pytest.raises(ToolFailed):
                await called(catalog, "git:git_log", repo_path="/nowhere")

    wait(main())


def test_sqlite_with_the_older_sdk(from_pypi: Programs, tmp_path: Path) -> None:
    args = ("--db-path", str(tmp_path / "a.db"))
    server = Server(name="sqlite", command=from_pypi("mcp-server-sqlite"), args=args)

    async def main() -> None:
        async with catalog_of(server) as catalog:
            assert {"sqlite:read_query", "sqlite:write_query", "sqlite:list_tables"} <= set(catalog.ids())
            await called(catalog, "sqlite:create_table", query="CREATE TABLE t (a INTEGER)")
            await called(catalog, "sqlite:write_query", query="INSERT INTO t VALUES (41), (42)")
            found = await called(catalog, "sqlite:read_query", query="SELECT max(a) AS m FROM t")
            assert found == "[{'m': 42}]"
            said = await called(catalog, "sqlite:read_query", query="SELECT * FROM nowhere")
            assert "no such table" in said  # its way of failing is to say so and succeed
            with pytest.raises(ValueError, match="'query' is a required property"):
                await called(catalog, "sqlite:read_query")

    wait(main())


def test_calculator(from_pypi: Programs) -> None:
    server = Server(name="calc", command=from_pypi("mcp-server-calculator"))

    async def main() -> None:
        async with catalog_of(server) as catalog:
            assert catalog.ids() == ["calc:calculate"]
            assert await called(catalog, "calc:calculate", expression="6 * 7") == {"result": "42"}
            with pytest.raises(ToolFailed, match="division by zero"):
                await called(catalog, "calc:calculate", expression="1 / 0")
            with pytest.raises(ValueError, match="42 is not of type 'string'"):
                await called(catalog, "calc:calculate", expression=42)

    wait(main())


def test_sequential_thinking(from_npm: Path) -> None:
    server = Server(name="think", command=str(from_npm / "mcp-server-sequential-thinking"))
    thought = {"thought": "water flows down", "thoughtNumber": 1, "totalThoughts": 2}

    async def main() -> None:
        async with catalog_of(server) as catalog:
            tool = catalog.find("think:sequentialthinking")
            assert (tool.effect, "thoughtHistoryLength" in tool.output_schema["properties"]) == ("read", True)
            first = await called(catalog, tool.id, **thought, nextThoughtNeeded=True)
            assert (first["nextThoughtNeeded"], first["thoughtHistoryLength"]) == (True, 1)
            second = {**thought, "thoughtNumber": 2, "nextThoughtNeeded": False}
            assert (await called(catalog, tool.id, **second))["thoughtHistoryLength"] == 2
            with pytest.raises(ValueError, match="'thought' is a required property"):
                await called(catalog, tool.id, nextThoughtNeeded=False)
            with pytest.raises(ToolFailed):  # what we let through, it refuses itself
                await catalog.pool.call("think", "sequentialthinking", {"thought": 1})

    wait(main())


class Page(http.server.BaseHTTPRequestHandler):
    """A page for everyone, and one that robots shall not read."""

    def do_GET(self) -> None:
        robots = b"User-agent: *\nDisallow: /secret\n"
        body = robots if self.path == "/robots.txt" else b"<html><body><p>water, gated</p></body></html>"
        self.send_response(404 if self.path == "/nowhere" else 200)
        self.send_header("Content-Type", "text/plain" if body is robots else "text/html")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def site() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_fetch(from_pypi: Programs) -> None:
    program = from_pypi("mcp-server-fetch")
    trusting = Server(name="fetch", command=program, args=("--allow-private-ips",))

    async def main(url: str) -> None:
        async with catalog_of(trusting, Server(name="wary", command=program)) as catalog:
            assert "water, gated" in str(await called(catalog, "fetch:fetch", url=f"{url}/page"))
            assert "<p>" in str(await called(catalog, "fetch:fetch", url=f"{url}/page", raw=True))
            with pytest.raises(ToolFailed, match="404"):
                await called(catalog, "fetch:fetch", url=f"{url}/nowhere")
            with pytest.raises(ToolFailed, match=r"robots\.txt"):
                await called(catalog, "fetch:fetch", url=f"{url}/secret")
            with pytest.raises(ToolFailed, match="allow-private-ips"):
                await called(catalog, "wary:fetch", url=f"{url}/page")
            with pytest.raises(ValueError, match="'url' is a required property"):
                await called(catalog, "fetch:fetch")

    with site() as url:
        wait(main(url))


def test_filesystem(from_npm: Path, tmp_path: Path) -> None:
    server = Server(
        name="fs", command=str(from_npm / "mcp-server-filesystem"), args=(str(tmp_path.resolve()),)
    )
    file = str(tmp_path.resolve() / "a.txt")

    async def main() -> None:
        async with catalog_of(server) as catalog:
            assert catalog.find("fs:write_file").effect == "destructive"
            await called(catalog, "fs:write_file", path=file, content="grüße")
            assert "grüße" in str(await called(catalog, "fs:read_text_file", path=file))
            with pytest.raises(ToolFailed, match="denied"):
                await called(catalog, "fs:read_text_file", path="/etc/passwd")

    wait(main())


def test_memory(from_npm: Path, tmp_path: Path) -> None:
    env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    server = Server(name="memory", command=str(from_npm / "mcp-server-memory"), env=env)

    async def main() -> None:
        async with catalog_of(server) as catalog:
            entity = {"name": "penstock", "entityType": "gate", "observations": ["lets water through"]}
            await called(catalog, "memory:create_entities", entities=[entity])
            assert "lets water through" in str(await called(catalog, "memory:read_graph"))
            with pytest.raises(ToolFailed):  # what we let through, it refuses itself
                await catalog.pool.call("memory", "create_entities", {"entities": "none"})

    wait(main())


def test_everything_and_a_question_in_the_older_protocol(from_npm: Path) -> None:
    asked: list[Inquiry] = []

    async def ask(question: Inquiry) -> Answer:
        asked.append(question)
        return Answer("accept", {"name": "Ada", "check": True})

    server = Server(name="all", command=str(from_npm / "mcp-server-everything"))
    task = Task(RunId("r"), StepId("s"), 1, None, 1, ask=ask)

    async def main() -> None:
        async with catalog_of(server) as catalog:
            assert await called(catalog, "all:echo", message="hi") == "Echo: hi"
            assert "5" in str(await called(catalog, "all:get-sum", a=2, b=3))
            picture = await called(catalog, "all:get-tiny-image")
            assert any(block["type"] == "image" for block in picture["content"])
            found = await called(catalog, "all:get-structured-content", location="Chicago")
            assert {"temperature", "conditions", "humidity"} <= set(found)
            with pytest.raises(ToolFailed):
                await catalog.pool.call("all", "get-sum", {"a": "two"})
            assert "Ada" in str(await called(catalog, "all:trigger-elicitation-request", task=task))

    wait(main())
    assert asked[0].by == "all:trigger-elicitation-request"
    assert "name" in asked[0].schema["properties"]


def test_a_crash_in_mid_call_and_after_it(from_npm: Path) -> None:
    server = Server(name="all", command=str(from_npm / "mcp-server-everything"))

    async def main() -> None:
        async with catalog_of(server) as catalog:
            upstream = catalog.pool.upstreams["all"]

            async def kill() -> None:
                await asyncio.sleep(0.3)
                os.killpg(max(catalog.pool._watchdog._groups), 9)

            slow = upstream.call("trigger-long-running-operation", {"duration": 30, "steps": 3})
            lost, _ = await asyncio.gather(slow, kill(), return_exceptions=True)
            assert isinstance(lost, LostCall)
            assert await called(catalog, "all:echo", message="again") == "Echo: again"

    wait(main())


def test_a_slow_call_is_waited_for_and_one_that_is_too_slow_is_given_up(from_npm: Path) -> None:
    server = Server(name="all", command=str(from_npm / "mcp-server-everything"), timeout=3)

    async def main() -> None:
        async with catalog_of(server) as catalog:
            upstream = catalog.pool.upstreams["all"]
            slow = await upstream.call("trigger-long-running-operation", {"duration": 1, "steps": 2})
            assert "completed" in str(slow)
            with pytest.raises(LostCall, match="no answer within 3 s"):
                await upstream.call("trigger-long-running-operation", {"duration": 60, "steps": 2})
            assert await called(catalog, "all:echo", message="still here") == "Echo: still here"

    wait(main())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


@contextmanager
def listening(program: Path, port: int) -> Iterator[None]:
    with subprocess.Popen(
        [str(program), "streamableHttp"],
        env={**VARIABLES, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            assert eventually(lambda: _answers(port), within=20)
            yield
        finally:
            server.kill()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_over_http_a_session_that_the_server_forgot_is_opened_again(from_npm: Path) -> None:
    port = free_port()
    program = from_npm / "mcp-server-everything"

    async def main() -> None:
        server = Server(name="all", url=f"http://127.0.0.1:{port}/mcp")
        catalog = ToolCatalog(servers=Servers({"all": server}, variables=VARIABLES))
        try:
            with listening(program, port):
                await catalog.start()
                assert await called(catalog, "all:echo", message="one") == "Echo: one"
            with listening(program, port):  # redeployed: it knows nothing of us
                upstream = catalog.pool.upstreams["all"]
                assert await upstream.call("echo", {"message": "two"}, effect="write") == "Echo: two"
                assert upstream.health.state == "ok"
        finally:
            await catalog.close()

    wait(main())
