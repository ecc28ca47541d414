"""Runs that follow another: `on_complete` and `on_failure` on the command line."""

from __future__ import annotations

from pathlib import Path

from reading import until

THEN = 'outputs: {said: "${ steps.say.output }"}'


def test_run_stays_until_what_follows_has_ended(cli, write, begin, ledger, folder: Path) -> None:
    write('{id: say, uses: "py:tools:deed", with: {name: follower}}', THEN, name="after")
    write('{id: one, uses: "py:tools:echo", with: {value: 1}}', "on_complete: after", name="before")

    process = begin("run", "before.yaml")
    while "follower" not in ledger():
        assert process.poll() is None, process.communicate()
    (folder / "go").touch()
    _, said = process.communicate(timeout=30)

    [after, before] = cli("runs", "--json").lines
    assert process.returncode == 0
    assert (after["run_id"], after["status"]) == (f"{before['run_id']}+after", "succeeded")
    assert f"followed by run {after['run_id']}" in said
    assert f"run {after['run_id']}: succeeded" in said


def test_a_run_that_follows_is_shown_by_its_id(cli, write) -> None:
    write('{id: say, uses: "py:tools:echo", with: {value: sorry}}', THEN, name="after")
    write('{id: one, uses: "py:tools:boom"}', "on_failure: after", name="before")

    done = cli("run", "before.yaml", "--json")
    run = done.lines[-1]["run_id"]

    assert (done.code, done.lines[-1]["status"]) == (1, "failed")
    assert cli("show", f"{run}+after", "--json").lines[-1]["outputs"] == {"said": "sorry"}
    assert "workflow_complete" in cli("events", f"{run}+after").stdout


def test_a_run_that_follows_and_asks_is_left_waiting(cli, write, flow) -> None:
    flow("ship")
    write('{id: one, uses: "py:tools:echo", with: {value: 1}}', "on_complete: ship", name="before")

    done = cli("run", "before.yaml")

    assert done.code == 0
    assert "+ship: waiting" in done.stderr
    assert [one["step"] for one in cli("decide", "--list", "--json").lines] == ["deploy"]


def test_ctrl_c_stops_what_follows(cli, write, begin, ledger) -> None:
    write('{id: say, uses: "py:tools:deed", with: {name: follower}}', THEN, name="after")
    write('{id: one, uses: "py:tools:echo", with: {value: 1}}', "on_complete: after", name="before")

    process = begin("run", "before.yaml", "--json")
    until(process, "workflow_complete")
    while "follower" not in ledger():
        assert process.poll() is None, process.communicate()
    process.terminate()
    process.communicate(timeout=30)

    assert [one["status"] for one in cli("runs", "--json").lines] == ["aborted", "succeeded"]
