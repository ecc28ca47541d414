"""The HTTP API on a port of its own, in this process or in one of its own, and clients of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

import penstock as ps
from penstock.app import Penstock
from penstock.engines import waiting
from penstock.engines.pickup import PickUp
from penstock.listening import bound, url_of
from penstock.web.desk import Desk
from penstock.web.library import Library
from penstock.web.server import serve_api

TOKEN = "a-token-for-tests"  # noqa: S105 - not one that opens anything

ACTS = """
from pathlib import Path

import penstock as ps


@ps.tool(effect="destructive")
def deploy(env: str, share: int = 100):
    with Path("deployed").open("a") as ledger:
        ledger.write(f"{env} {share}\\n")
    return {"env": env, "share": share}


@ps.tool(effect="read")
def plain(value=None):
    return value


@ps.tool(effect="idempotent")
def build(size: int = 0, attempts=None):
    return {"size": size}


@ps.tool(effect="read")
async def held(file: str = "go"):
    import asyncio

    Path("begun").touch()
    while not Path(file).exists():
        await asyncio.sleep(0.01)
    return file


@ps.tool(effect="read")
async def ask(task: ps.Task):
    from penstock.tools.base import Inquiry

    wanted = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return (await task.ask(Inquiry("How many?", wanted, by="acts"))).content["n"]
"""

FLOWS = {
    "ship": """
name: ship
description: Packs and deploys.
inputs: {env: {type: string, default: prod}}
steps:
  - {id: pack, uses: "py:acts:plain", with: {value: app}}
  - {id: deploy, uses: "py:acts:deploy", needs: [pack], with: {env: "${ inputs.env }", share: 100}}
outputs: {where: "${ steps.deploy.output.env }", share: "${ steps.deploy.output.share }"}
""",
    "all": """
name: all
config:
  budget: {tool_calls: 3}
  ail: {after: [look], decider: external, timeout: 60s}
steps:
  - {id: look, uses: "py:acts:plain", with: {value: 1}}
  - id: build
    uses: "py:acts:build"
    needs: [look]
    with: {size: 1, attempts: "${ attempts }"}
    gate: {max_attempts: 2, checks: [{name: large, expr: "output.size > 5"}]}
  - {id: deploy, uses: "py:acts:deploy", needs: [build], with: {env: prod}}
outputs: {where: "${ steps.deploy.output.env }"}
""",
    "held": """
name: held
steps:
  - {id: wait, uses: "py:acts:held"}
  - {id: say, uses: "py:acts:plain", needs: [wait], with: {value: said}}
outputs: {said: "${ steps.say.output }"}
""",
    "busy": """
name: busy
steps:
  - {id: wait, uses: "py:acts:held"}
  - {id: deploy, uses: "py:acts:deploy", with: {env: prod}}
outputs: {where: "${ steps.deploy.output.env }"}
""",
    "many": """
name: many
steps:
  - id: deploy
    uses: "py:acts:deploy"
    for_each: "['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l']"
    max_parallel: 1
    with: {env: "${ item }"}
""",
    "curious": """
name: curious
steps:
  - {id: ask, uses: "py:acts:ask"}
outputs: {said: "${ steps.ask.output }"}
""",
    "family": """
name: family
steps:
  - {id: child, uses: "workflow:ship"}
outputs: {where: "${ steps.child.output.where }"}
""",
}


class Said(NamedTuple):
    """An answer."""

    status: int
    body: Any

    @property
    def error(self) -> str:
        kind: str = self.body["error"]["type"]
        return kind


class Frame(NamedTuple):
    """A part of a stream."""

    name: str
    id: str
    data: Any


class Api:
    """A client, and the server's inside for those tests that need it."""

    def __init__(self, url: str, http: aiohttp.ClientSession, penstock: Penstock, desk: Desk) -> None:
        self.url = url
        self.http = http
        self.penstock = penstock
        self.desk = desk

    async def get(self, path: str, **options: Any) -> Said:
        return await self.ask("GET", path, **options)

    async def post(self, path: str, json: Any, **options: Any) -> Said:
        return await self.ask("POST", path, json=json, **options)

    async def ask(self, method: str, path: str, **options: Any) -> Said:
        async with self.http.request(method, f"{self.url}{path}", **options) as answer:
            text = await answer.read()
            return Said(answer.status, json.loads(text) if text else None)

    async def start(self, workflow: str, **inputs: Any) -> str:
        said = await self.post("/api/runs", {"workflow": workflow, "inputs": inputs})
        assert said.status == 201, said
        run: str = said.body["run_id"]
        return run

    async def asked(self, run: str = "") -> list[dict[str, Any]]:
        """What is asked, as soon as something is."""
        while True:
            open_ = (await self.get("/api/decisions")).body["decisions"]
            if found := [one for one in open_ if one["run_id"].startswith(run)]:
                return found
            await asyncio.sleep(0.02)

    async def let_go(self) -> None:
        """Return when nothing is driven any more: a run that waits holds nothing."""
        await waiting.until(lambda: not self.penstock.engine.live, glance=0.01)

    async def answer(self, decision: str, verb: str, **more: Any) -> Said:
        return await self.post(f"/api/decisions/{decision}", {"verb": verb, **more})

    async def frames(self, run: str, *, query: str = "", **headers: str) -> AsyncIterator[Frame]:
        path = f"{self.url}/api/runs/{run}/events{query}"
        async with self.http.get(path, headers=headers) as answer:
            assert answer.status == 200
            async for frame in frames_of(answer.content):
                yield frame

    async def ended(self, run: str) -> dict[str, Any]:
        """How the run stands when it has ended."""
        async for frame in self.frames(run):
            if frame.name == "end":
                break
        shown: dict[str, Any] = (await self.get(f"/api/runs/{run}")).body
        return shown


async def frames_of(lines: aiohttp.StreamReader) -> AsyncIterator[Frame]:
    fields: dict[str, str] = {}
    async for raw in lines:
        line = raw.decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            if "data" in fields:
                yield Frame(fields.get("event", ""), fields.get("id", ""), json.loads(fields["data"]))
            fields = {}


@contextlib.asynccontextmanager
async def served(
    folder: Path, *, looks: bool = True, library: Library | None = None, faults: list[Exception] | None = None
) -> AsyncIterator[Api]:
    """The API of a folder with workflows in it."""
    furnish(folder)
    heard: list[Exception] = [] if faults is None else faults
    async with ps.open(f"sqlite:///{folder}/.penstock/penstock.db") as penstock:
        pick_up, stop = PickUp(penstock, most=16), asyncio.Event()
        desk = Desk(
            runs=penstock, pick_up=pick_up, library=library or Library(folder), stop=stop, version="1.2.3"
        )
        place = bound("127.0.0.1", 0)
        async with asyncio.TaskGroup() as group:
            group.create_task(serve_api(desk, at=place, token=TOKEN, host="127.0.0.1", fault=heard.append))
            group.create_task(pick_up.work(looks=looks))
            async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as http:
                try:
                    yield Api(url_of("127.0.0.1", place), http, penstock, desk)
                finally:
                    stop.set()
                    pick_up.stop()
    assert faults is heard or heard == []


def furnish(folder: Path) -> None:
    (folder / "acts.py").write_text(ACTS)
    for name, text in FLOWS.items():
        (folder / f"{name}.yaml").write_text(text.lstrip())


class Server:
    """`penstock serve` in a process of its own."""

    def __init__(self, folder: Path, *args: str) -> None:
        furnish(folder)
        self.folder = folder
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        self.env = {**kept, "PYTHONPATH": str(Path(ps.__file__).parents[1])}
        line = [sys.executable, "-m", "penstock", "serve", "--port", "0", "--json", *args]
        self.process = subprocess.Popen(
            line, cwd=folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        assert first, self.process.communicate()
        where = json.loads(first)
        self.url, self.token = where["url"], where["token"]

    def penstock(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        """Another process in the same folder."""
        line = [sys.executable, "-m", "penstock", *args]
        return subprocess.Popen(line, cwd=self.folder, env=self.env, text=True, **options)

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Api]:
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {self.token}"}) as http:
            yield Api(self.url, http, None, None)  # type: ignore[arg-type]  # they are elsewhere

    def stop(self) -> tuple[int, str]:
        """Ask it to stop; how it left, and what it said."""
        self.process.terminate()
        said = self.process.communicate(timeout=30)[1]
        return self.process.returncode, said


@contextlib.contextmanager
def server(folder: Path, *args: str) -> Iterator[Server]:
    made = Server(folder, *args)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.process.communicate()
