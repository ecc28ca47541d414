"""An agent whose process dies, or whose parent runs out of money: nothing is paid for twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import penstock
import penstock as ps
from penstock.models.base import Answer, Request, ToolCall, Usage
from penstock.run.commands import Decide
from penstock.run.events import TaskCompleted
from penstock.testing.models import ModelServer
from penstock.testing.wires import Called, Says
from penstock.tools.names import wire_name

TOOLS = """
import asyncio
from pathlib import Path
import penstock as ps

@ps.tool(effect="write")
def note(what: str):
    with open("notes", "a") as file:
        file.write(what + "\\n")
    return "noted"

@ps.tool(effect="read")
async def wait():
    Path("waiting").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "went"
"""

FLOW = """
name: survive
config:
  agents:
    worker: {prompt: Work., tools: ["py:tools:note", "py:tools:wait"], max_turns: 5}
steps:
  - {id: work, uses: "agent:worker", with: {task: do it}}
outputs: {said: "${ steps.work.output.text }"}
"""


def store(folder: Path) -> str:
    return f"sqlite:///{folder}/penstock.db"


@asynccontextmanager
async def command(folder: Path, server: ModelServer, *args: str) -> AsyncIterator[asyncio.subprocess.Process]:
    clean = {name: value for name, value in os.environ.items() if "KEY" not in name and "TOKEN" not in name}
    env = {
        **clean,
        "ANTHROPIC_API_KEY": "sk-made-up-0123456789",
        "ANTHROPIC_BASE_URL": server.endpoint("anthropic").base,
        "PENSTOCK_STORE": store(folder),
        "PYTHONPATH": str(Path(penstock.__file__).parents[1]),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock", *args,
        cwd=folder, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def noted(folder: Path, run: str) -> bool:
    """Whether the end of both the first turn and its call is on record."""
    async with ps.open(store(folder)) as there:
        events = [
            event
            for found in await there.store.runs()
            if found.run.startswith(f"{run}/")
            for event in await there.store.load(found.run)
        ]
    return sum(isinstance(event, TaskCompleted) for event in events) >= 3  # two turns and a call


async def test_a_process_that_is_killed_in_an_agent_asks_and_does_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "flow.yaml").write_text(FLOW)
    async with ModelServer() as server, asyncio.timeout(60):
        server.script(
            "anthropic",
            Says(
                text="", calls=[Called(name=wire_name("py:tools:note"), arguments={"what": "once"}, id="a")]
            ),
            Says(text="", calls=[Called(name=wire_name("py:tools:wait"), id="b")]),
            Says(text="All done."),
        )
        async with command(tmp_path, server, "run", "flow.yaml", "--json") as first:
            assert first.stdout is not None
            run = json.loads(await first.stdout.readline())["run_id"]
            while not (tmp_path / "waiting").exists() or not await noted(tmp_path, run):
                assert first.returncode is None
                await asyncio.sleep(0.05)
            first.send_signal(signal.SIGKILL)
            await first.wait()
        assert len(server.asked("anthropic")) == 2

        (tmp_path / "go").touch()
        async with command(tmp_path, server, "resume", run, "--json") as second:
            out, said = await second.communicate()

    last = json.loads(out.decode().splitlines()[-1])
    assert (second.returncode, last["status"]) == (0, "succeeded"), said.decode()
    assert last["outputs"] == {"said": "All done."}
    assert (tmp_path / "notes").read_text() == "once\n"
    assert len(server.asked("anthropic")) == 3
    told = server.asked("anthropic")[2].body["messages"]
    assert "noted" in str(told)
    assert "went" in str(told)


class Spender:
    """A model that always wants one more call, and costs a cent each time."""

    def __init__(self) -> None:
        self.asked = 0

    async def chat(self, request: Request, *, tier: str = "", model: str = "") -> Answer:  # noqa: ARG002
        self.asked += 1
        call = ToolCall(str(self.asked), "files__look", {})
        return Answer(tool_calls=(call,), finish="tool_calls", usage=Usage(10, 5), cost=0.01)


@ps.tool(id="files:look", effect="read")
async def look() -> str:
    return "nothing new"


async def question(there: ps.Penstock) -> tuple[Any, Any]:
    async with asyncio.timeout(10):
        while True:
            for drive in there.engine.live.values():
                if drive.run.decisions:
                    return drive, next(iter(drive.run.decisions.values()))
            await asyncio.sleep(0)


async def test_an_agent_spends_no_more_than_its_parent_has_left() -> None:
    models = Spender()
    made = ps.Workflow(
        "spending",
        budget={"usd": 0.025},
        agents={"s": {"prompt": "?", "tools": ["files:look"], "max_turns": 9}},
    )
    made.step("work", "agent:s", text="go on")
    async with ps.open("memory:", tools=[look], models=models) as there:
        run = await there.start(made)
        drive, asked = await question(there)
        assert (drive.id.startswith(run.id), asked.kind) == (True, "budget")
        await drive.send(Decide(decision=asked.decision, verb="abort"))
        result = await run.result()

    assert models.asked == 3  # the third went over; a fourth is not asked for
    assert result.status in ("failed", "aborted")
