"""A run driven by one process, watched and steered from others."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from reading import until

FLOW = """
    {id: first, uses: "py:tools:look", with: {value: 1}}
    {id: slow, uses: "py:tools:held", with: {value: 2}, needs: [first]}
    {id: last, uses: "py:tools:look", with: {value: "${ steps.slow.output }"}}
"""
OUTPUT = 'outputs: {value: "${ steps.last.output }"}'


@pytest.fixture
def driver(begin, write):
    """A process that drives a run, in the middle of its second step."""
    process = begin("run", write(FLOW, OUTPUT), "--json")
    process.run = until(process, "task_start", step="slow")["run_id"]
    return process


def test_events_are_followed_as_they_happen_until_the_run_ends(begin, driver, folder: Path) -> None:
    follower = begin("events", driver.run, "--follow", "--json")
    until(follower, "task_start", step="slow")

    (folder / "go").touch()
    told, _ = follower.communicate(timeout=30)
    driver.communicate(timeout=30)

    assert follower.returncode == 0
    seen = [json.loads(line) for line in told.splitlines()]
    assert [event["seq"] for event in seen] == list(range(seen[0]["seq"], seen[0]["seq"] + len(seen)))
    assert seen[-1]["type"] == "workflow_complete"


def test_what_is_followed_is_what_the_run_itself_prints(begin, cli, write, folder: Path) -> None:
    (folder / "big.py").write_text("def big():\n    return 'x' * 100_000\n")
    process = begin("run", write('{id: big, uses: "py:big:big"}', 'outputs: {n: "${ 1 }"}'), "--json")
    out, _ = process.communicate(timeout=30)
    *events, summary = map(json.loads, out.splitlines())
    run = summary["run_id"]

    assert cli("events", run, "--json").lines == events
    assert cli("events", run, "--json", "--follow").lines == events
    assert cli("watch", run, "--json").lines == [*events, summary]
    assert cli("show", run, "--json").lines == [summary]


def test_a_run_is_watched_from_another_process_to_its_end(begin, driver, folder: Path) -> None:
    watcher = begin("watch", driver.run)
    while "start    slow" not in watcher.stderr.readline():
        assert watcher.poll() is None

    (folder / "go").touch()
    out, err = watcher.communicate(timeout=30)

    assert watcher.returncode == 0
    assert json.loads(out) == {"value": 2}
    assert "done     last" in err
    assert "flow succeeded in" in err


def test_the_live_view_works_from_another_terminal(terminal, driver, folder: Path) -> None:
    screen = terminal("watch", driver.run[:12])
    screen.until("slow")

    (folder / "go").touch()
    code, text = screen.finish()

    assert code == 0
    assert re.search(r"flow\S*  \w{16}  \S*succeeded", text)
    assert "3/3" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_watcher_that_leaves_changes_nothing(begin, driver, folder: Path, number: int, code: int) -> None:
    watcher = begin("watch", driver.run)
    while "start    slow" not in watcher.stderr.readline():
        assert watcher.poll() is None

    watcher.send_signal(number)
    assert watcher.wait(30) == code
    (folder / "go").touch()

    assert driver.wait(30) == 0


def test_a_watcher_says_when_the_driver_is_gone_and_goes_on_with_the_next(
    begin, cli, driver, folder: Path
) -> None:
    watcher = begin("watch", driver.run)
    driver.kill()
    driver.wait()
    while "nobody drives run" not in watcher.stderr.readline():
        assert watcher.poll() is None

    (folder / "go").touch()
    assert cli("resume", driver.run, "-q").code == 0

    assert watcher.wait(30) == 0


def test_the_exit_code_of_watching_is_the_run_s(cli, write) -> None:
    run = cli("run", write('{id: bad, uses: "py:tools:boom"}'), "--json").lines[-1]["run_id"]

    assert cli("watch", run).code == 1


def test_a_run_is_aborted_from_another_process(cli, driver) -> None:
    done = cli("abort", driver.run, "--reason", "enough", "--json")
    out, _ = driver.communicate(timeout=30)

    assert done.code == 0
    assert done.lines == [{"run_id": driver.run, "command": "abort", "accepted": True}]
    assert driver.returncode == 1
    assert json.loads(out.splitlines()[-1])["status"] == "aborted"
    assert "cancelled: enough" in out


def test_a_run_that_nobody_drives_is_aborted_without_running_anything(cli, driver, folder: Path) -> None:
    driver.kill()
    driver.wait()
    (folder / "go").touch()
    before = (folder / "ledger").read_text()

    done, again = cli("abort", driver.run), cli("abort", driver.run)

    assert done.code == 0
    assert cli("show", driver.run, "--json").lines[0]["status"] == "aborted"
    assert (folder / "ledger").read_text() == before
    assert again.code == 2
    assert f"run {driver.run} has ended (aborted)" in again.stderr


def test_the_children_of_an_aborted_run_are_aborted_too(cli, write, killed) -> None:
    write(FLOW, OUTPUT, name="child")
    run = killed(write('{id: call, uses: "workflow:child"}'), "call", noted="held")

    assert cli("abort", run).code == 0

    assert {one["status"] for one in cli("runs", "--all", "--json").lines} == {"aborted"}


def test_a_run_is_paused_changed_and_resumed_by_commands(cli, driver, folder: Path) -> None:
    paused = cli("send", driver.run, "pause", "reason=lunch")
    twice = cli("send", driver.run, "pause")
    changed = cli("send", driver.run, "modify_args", "step=last", 'args={"value": "007"}')
    (folder / "go").touch()
    resumed = cli("send", driver.run, "resume")
    out, _ = driver.communicate(timeout=30)

    assert [paused.code, changed.code, resumed.code] == [0, 0, 0]
    assert paused.messages == [f"run {driver.run}: pause accepted"]
    assert twice.code == 2
    assert twice.messages == ["the run is already paused"]
    assert json.loads(out.splitlines()[-1])["outputs"] == {"value": "007"}


def test_steps_are_injected_as_a_file_writes_them(cli, write, begin, folder: Path) -> None:
    write('{id: a, uses: "py:tools:look", with: {value: 1}}', name="extra")
    more = {"id": "more", "uses": "workflow:extra", "timeout": "50s", "retry": 3}
    process = begin("run", write(FLOW, OUTPUT), "--json")
    run = until(process, "task_start", step="slow")["run_id"]

    done = cli("send", run, "inject_tasks", f"steps={json.dumps([more])}")
    (folder / "go").touch()
    out, _ = process.communicate(timeout=30)

    assert done.code == 0
    assert json.loads(out.splitlines()[-1])["steps"]["more"]["status"] == "succeeded"


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["paus"], "did you mean 'pause'"),
        (["skip_step"], "step"),
        (["skip_step", "stpe=a"], "did you mean 'step'"),
        (["skip_layer", "layer=two"], "layer"),
        (["skip_step", "step"], "'step' is not KEY=VALUE"),
        (["inject_tasks", 'steps=[{"id": "x", "use": "a:b"}]'], "use"),
    ],
)
def test_a_command_that_is_none_is_refused_before_it_is_sent(cli, args: list[str], part: str) -> None:
    done = cli("send", "last", *args)

    assert done.code == 2
    assert part in done.stderr


def test_a_command_for_a_run_that_nobody_drives_is_answered_with_what_to_do(cli, driver) -> None:
    driver.kill()
    driver.wait()

    done = cli("send", driver.run, "pause")

    assert done.code == 2
    assert done.messages == [
        f"nobody drives run {driver.run} (running); penstock resume {driver.run} goes on with it"
    ]
