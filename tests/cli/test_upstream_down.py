"""The code of a run that failed only because something it depends on did not answer."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.testing import mcp_faults

AGENTS = 'config: {agents: {writer: {prompt: "say hi", model: openai/gpt-4o}}}'

SERVER = f"""
import os, sys
from pathlib import Path

if not Path("up").exists():
    sys.exit("out of order")
os.execv(sys.executable, [sys.executable, {mcp_faults.__file__!r}, "well"])
"""


@pytest.fixture
def nobody() -> dict[str, str]:
    """Models are asked where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    return {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": "none"}


@pytest.fixture
def server(folder: Path) -> Callable[[bool], None]:
    """A server of tools that was there once; the function says whether it is now."""
    (folder / "server.py").write_text(SERVER)
    entry = {"command": sys.executable, "args": ["server.py"]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"aid": entry}}))

    def switch(on: bool) -> None:
        (folder / "up").touch() if on else (folder / "up").unlink()

    return switch


@pytest.mark.parametrize(
    "steps",
    [
        '{id: a, uses: "agent:writer"}',
        '{id: a, uses: "agent:writer", for_each: "[1, 2]"}',
        '{id: a, uses: "agent:writer"}\n{id: b, uses: "py:tools:echo", with: {value: "${ steps.a.output }"}}',
    ],
    ids=["a step", "a map", "a step that others need"],
)
def test_a_run_that_no_model_answers_leaves_with_6(cli, write, nobody, steps: str) -> None:
    done = cli("run", write(steps, AGENTS), **nobody)

    assert done.code == 6, done.stderr
    assert "no model can answer 'openai/gpt-4o' now" in done.stderr


def test_so_does_one_whose_child_run_fails_of_it(cli, write, nobody) -> None:
    write('{id: a, uses: "agent:writer"}', AGENTS, name="inner")

    done = cli("run", write('{id: outer, uses: "workflow:inner"}'), "--json", **nobody)

    assert done.code == 6, done.stderr
    failed = next(line for line in done.lines if line.get("type") == "task_error")
    assert (failed["kind"], failed["name"]) == ("unavailable", "child")


def test_resume_and_watch_leave_with_the_same_code(cli, write, nobody) -> None:
    run = cli("run", write('{id: a, uses: "agent:writer"}', AGENTS), "--json", **nobody).lines[-1]["run_id"]

    assert cli("watch", run, **nobody).code == 6
    assert cli("resume", run, "--from", "failed", **nobody).code == 6


def test_a_run_that_failed_for_another_reason_as_well_has_just_failed(cli, write, nobody) -> None:
    steps = '{id: a, uses: "agent:writer"}\n{id: b, uses: "py:tools:boom"}'

    assert cli("run", write(steps, AGENTS), **nobody).code == 1


def test_a_run_that_produced_something_all_the_same_is_partial(cli, write, nobody) -> None:
    steps = '{id: a, uses: "agent:writer"}\n{id: b, uses: "py:tools:echo", with: {value: 1}}'

    assert cli("run", write(steps, AGENTS + '\noutputs: {b: "${ steps.b.output }"}'), **nobody).code == 4


def test_a_run_whose_server_of_tools_is_down_leaves_with_6_until_it_is_back(cli, write, server) -> None:
    flow = write('{id: a, uses: "aid:echo", with: {text: hello}}')
    server(True)
    assert cli("run", flow).code == 0

    server(False)
    down = cli("run", flow)
    server(True)

    assert down.code == 6, down.stderr
    assert "aid: " in down.stderr
    assert cli("run", flow).code == 0
