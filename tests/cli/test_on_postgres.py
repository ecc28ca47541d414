"""The command line on a real Postgres server: what it says is the same as on a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from reading import until

SLOW = """
    {id: first, uses: "py:tools:look", with: {value: 1}}
    {id: slow, uses: "py:tools:held", with: {value: 2}, needs: [first]}
    {id: last, uses: "py:tools:look", with: {value: "${ steps.slow.output + steps.first.output }"}}
"""
OUTPUT = 'outputs: {sum: "${ steps.last.output }"}'


@pytest.fixture
def store(url: str) -> dict[str, str]:
    """The environment that names a store of this test's own."""
    return {"PENSTOCK_STORE": url}


def test_a_killed_run_is_listed_shown_and_resumed(cli, begin, write, store, ledger, folder: Path) -> None:
    process = begin("run", write(SLOW, OUTPUT), "--json", **store)
    run = until(process, "task_start", step="slow")["run_id"]
    while "held" not in ledger():
        assert process.poll() is None, process.communicate()
    process.kill()
    process.wait()

    [listed] = cli("runs", "--json", **store).lines
    shown = cli("show", "last", "--json", **store).lines[-1]
    (folder / "go").touch()
    done = cli("resume", "last", "--json", **store)

    assert (listed["run_id"], listed["status"], listed["owner"]) == (run, "running", None)
    assert shown["steps"]["first"]["status"] == "succeeded"
    assert (done.code, done.lines[-1]["outputs"]) == (0, {"sum": 3})
    assert ledger() == ["look 1", "held", "held", "look 3"]
    assert cli("show", run, "--at", "4", "--json", **store).lines[-1]["steps"]["last"]["status"] == "waiting"


def test_a_command_from_another_process_reaches_the_run(cli, begin, write, store, folder: Path) -> None:
    process = begin("run", write(SLOW, OUTPUT), "--json", **store)
    until(process, "task_start", step="slow")

    refused = cli("resume", "last", **store)
    told = cli("send", "last", "modify_args", "step=last", 'args={"value": 40}', "--json", **store)
    (folder / "go").touch()
    out, _ = process.communicate(timeout=30)

    assert refused.code == 2
    assert "is being driven by process" in refused.stderr
    assert (told.code, told.lines[-1]["accepted"]) == (0, True)
    assert '"outputs":{"sum":40}' in out.splitlines()[-1]


def test_an_approval_is_listed_and_given(cli, flow, store, deployed) -> None:
    asked = cli("run", flow("ship"), **store)
    [listed] = cli("decide", "--list", "--json", **store).lines
    done = cli("approve", listed["id"], "--args", '{"share": 10}', "--json", **store)

    assert asked.code == 3
    assert done.code == 0
    assert deployed() == ["prod 10"]
    assert cli("decide", "--list", "--json", **store).lines == []


def test_a_server_that_is_not_there_is_a_message_without_the_password(cli, flow) -> None:
    done = cli("run", flow("ship"), PENSTOCK_STORE="postgresql://ada:hunter2@127.0.0.1:1/x")

    assert done.code == 2
    assert "127.0.0.1" in done.stderr
    assert "hunter2" not in done.stderr
