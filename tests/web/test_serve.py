"""`penstock serve` as a command: what it says, how it ends, and which runs it takes up."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from surface import Server, server

import penstock


def refused(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "penstock", "serve", *args]
    path = str(Path(penstock.__file__).parents[1])
    return subprocess.run(
        line,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"PYTHONPATH": path, **env},
    )


async def winding_down(folder: Path, run: str) -> None:
    """Return when whoever drives a run has said that it starts nothing more."""
    async with penstock.open(f"sqlite:///{folder}/.penstock/penstock.db") as looking:
        while not (await looking.at(run)).paused:
            pass


def begun(folder: Path) -> None:
    """Return when the tool that waits has been called."""
    while not (folder / "begun").exists():
        pass


async def ended(there: Server, run: str) -> dict[str, Any]:
    async with there.client() as api:
        return await api.ended(run)


async def started(there: Server, workflow: str) -> str:
    async with there.client() as api:
        return await api.start(workflow)


def test_the_first_line_says_where_and_with_which_token_and_the_rest_is_for_people(folder: Path) -> None:
    with server(folder, "--token", "mine") as there:
        code, said = there.stop()
        assert there.process.stdout is not None

    assert there.url.startswith("http://127.0.0.1:")
    assert there.token == "mine"  # noqa: S105 - not a secret
    assert f"serving {there.url}" in said
    assert "Authorization: Bearer mine" in said
    assert code == 0


def test_a_token_is_made_when_none_is_given_and_the_environment_may_give_one(folder: Path) -> None:
    with server(folder) as one:
        pass
    with server(folder) as other:
        pass

    assert len(one.token) >= 32
    assert one.token != other.token
    assert "letters, digits" in refused(folder, "--port", "0", PENSTOCK_TOKEN="not one").stderr  # noqa: S106 - a bad one


def test_a_port_that_is_taken_is_told(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = refused(folder, "--port", str(port))

    assert done.returncode == 2
    assert done.stderr == f"127.0.0.1:{port} cannot be served: Address already in use\n"
    assert done.stdout == ""


def test_a_store_that_does_not_last_is_refused(folder: Path) -> None:
    done = refused(folder, "--port", "0", "--store", "memory:")

    assert (done.returncode, done.stdout) == (2, "")
    assert "name another store" in done.stderr


def test_other_machines_are_let_in_only_when_that_is_said(folder: Path) -> None:
    done = refused(folder, "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - refused
    with server(folder, "--host", "0.0.0.0", "--remote") as there:  # noqa: S104 - for a moment, with a token
        _, said = there.stop()

    assert (done.returncode, "add --remote" in done.stderr) == (2, True)
    assert "warning: other machines can reach it" in said


async def test_a_run_whose_server_was_killed_is_taken_up_by_the_next(folder: Path) -> None:
    with server(folder) as first:
        run = await started(first, "held")
        begun(folder)
        first.process.kill()
        first.process.communicate()
    (folder / "go").touch()
    with server(folder) as second:
        shown = await ended(second, run)
        _, said = second.stop()

    assert shown["outputs"] == {"said": "said"}
    assert f"run {run} (held) taken up after event" in said


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_cleanly_and_leaves_the_run_to_the_next(
    folder: Path, sign: signal.Signals
) -> None:
    with server(folder) as first:
        run = await started(first, "held")
        begun(folder)
        first.process.send_signal(sign)
        await winding_down(folder, run)
        (folder / "go").touch()  # its task may finish, and nothing new starts
        first.process.communicate()
    with server(folder, "--no-pickup") as second:
        async with second.client() as api:
            left = (await api.get(f"/api/runs/{run}")).body
    with server(folder) as third:
        shown = await ended(third, run)

    assert first.process.returncode == 0
    steps = {name: step["status"] for name, step in left["steps"].items()}
    assert (steps["wait"], steps["say"] == "succeeded") == ("succeeded", False)
    assert shown["status"] == "succeeded"


async def test_with_no_pickup_a_run_is_left_alone_until_somebody_steers_it(folder: Path) -> None:
    with server(folder) as first:
        run = await started(first, "held")
        begun(folder)
        first.process.kill()
        first.process.communicate()
    (folder / "go").touch()
    with server(folder, "--no-pickup") as second:
        async with second.client() as api:
            before = (await api.get("/api/runs")).body["runs"][0]
            said = await api.post(f"/api/runs/{run}/commands", {"command": "message", "text": "go on"})
            shown = await api.ended(run)

    assert (before["status"], before["owner"]) == ("running", None)
    assert said.status == 200
    assert shown["status"] == "succeeded"


async def test_a_waiting_run_of_a_program_that_left_goes_on_here_when_it_is_answered(folder: Path) -> None:
    with server(folder) as there:
        left = there.penstock("run", "ship.yaml", "--json", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        printed, _ = left.communicate(timeout=30)
        asked = json.loads(printed.splitlines()[-1])["pending"][0]["id"]
        async with there.client() as api:
            said = await api.answer(asked, "approve")
            shown = await api.ended(asked.partition(":")[0])

    assert left.returncode == 3
    assert said.status == 200
    assert shown["outputs"]["where"] == "prod"


def test_the_help_of_every_verb_is_printed_without_what_only_serving_needs() -> None:
    code = (
        "import sys, runpy; sys.argv = ['penstock', '--help']\n"
        "try: runpy.run_module('penstock', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "heavy = {'fastapi', 'starlette', 'pydantic', 'uvicorn', 'penstock.web.server'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout
