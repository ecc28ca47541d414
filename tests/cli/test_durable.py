"""Runs that outlive their process: kill -9, resume, decide, worker."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from reading import line_with, until

READS = """
    {id: first, uses: "py:tools:look", with: {value: 1}}
    {id: slow, uses: "py:tools:held", with: {value: 2}, needs: [first]}
    {id: last, uses: "py:tools:look", with: {value: "${ steps.slow.output + steps.first.output }"}}
"""
OUTPUT = 'outputs: {sum: "${ steps.last.output }"}'

WRITES = """
    {id: first, uses: "py:tools:look", with: {value: 1}}
    {id: mail, uses: "py:tools:deed", with: {name: mail}, needs: [first]}
    {id: last, uses: "py:tools:look", with: {value: "${ steps.mail.output }"}}
"""
SENT = 'outputs: {sent: "${ steps.last.output }"}'


def pending(done) -> list[str]:
    return [asked["id"] for asked in done.lines[-1]["pending"]]


def test_a_killed_run_goes_on_where_it_was_and_does_nothing_twice(
    cli, write, killed, ledger, folder: Path
) -> None:
    run = killed(write(READS, OUTPUT), "slow", noted="held")
    (folder / "go").touch()

    done = cli("resume", run, "--json")

    *events, last = done.lines
    assert done.code == 0
    assert last["status"] == "succeeded"
    assert last["run_id"] == run
    assert last["outputs"] == {"sum": 3}
    assert ledger() == ["look 1", "held", "held", "look 3"]
    assert (events[0]["type"], events[0]["by"]) == ("workflow_resumed", "process")
    assert {event["step"] for event in events if "step" in event} == {"slow", "last"}


def test_a_run_is_resumed_from_another_folder_with_the_functions_beside_its_file(
    write, killed, folder: Path, environment
) -> None:
    import subprocess
    import sys

    run = killed(write(READS, OUTPUT), "slow", noted="held")
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "go").touch()

    done = subprocess.run(
        [sys.executable, "-m", "penstock", "resume", run, "-q", "--store", "sqlite:///../.penstock/penstock.db"],
        cwd=folder / "elsewhere", env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"sum": 3}


def test_progress_after_a_resume_begins_with_what_is_new(cli, write, killed, folder: Path) -> None:
    run = killed(write(READS, OUTPUT), "slow", noted="held")
    (folder / "go").touch()

    done = cli("resume", run)

    assert done.code == 0
    assert done.messages[0].startswith(f"flow: run {run}, 3 steps, from event ")
    assert [line.split()[1:3] for line in done.messages[4:-1]] == [
        ["done", "slow"], ["start", "last"], ["done", "last"],
    ]  # fmt: skip
    assert done.messages[-1].endswith("3 succeeded")


def test_a_write_under_way_when_the_process_died_waits_for_a_person(cli, write, killed, ledger) -> None:
    run = killed(write(WRITES, SENT), "mail", noted="mail")

    done, listed, shown = cli("resume", run), cli("decide", "--list", "--json"), cli("show", run, "--json")

    assert done.code == 3
    assert done.stdout == ""
    [asked] = listed.lines
    assert (asked["run_id"], asked["kind"], asked["step"]) == (run, "orphan", "mail")
    assert asked["options"] == ["retry", "accept", "skip", "reject"]
    assert f"penstock decide {asked['id']} retry   (or accept, skip, reject)" in done.messages
    assert pending(shown) == [asked["id"]]
    assert shown.lines[0]["status"] == "waiting"
    assert cli("runs", "--status", "waiting", "--json").lines[0]["owner"] is None
    assert ledger() == ["look 1", "mail"]


@pytest.mark.parametrize(
    ("answer", "status", "code", "outputs", "deeds"),
    [
        (["retry"], "succeeded", 0, {"sent": "mail"}, 2),
        (["accept", "--args", '{"output": "by hand"}'], "succeeded", 0, {"sent": "by hand"}, 1),
        (["skip", "--message", "never mind"], "succeeded", 0, {"sent": None}, 1),
        (["reject"], "failed", 1, {"sent": None}, 1),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_an_answer_is_carried_out_here_when_nobody_drives_the_run(
    cli, write, killed, ledger, folder: Path, answer, status: str, code: int, outputs, deeds: int
) -> None:
    run = killed(write(WRITES, SENT), "mail", noted="mail")
    [decision] = pending(cli("resume", run, "--json"))
    (folder / "go").touch()

    done = cli("decide", decision, *answer, "--json")

    assert done.code == code
    assert done.lines[-1]["status"] == status
    assert done.lines[-1]["outputs"] == outputs
    assert done.lines[-1]["pending"] == []
    assert ledger().count("mail") == deeds


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (["explode"], "choose one of retry, accept, skip, reject"),
        (["accept"], "accept needs the output"),
        (["--message", "yes"], "Give a VERB, too"),
        (["retry", "--args", "[1]"], "not a JSON object"),
    ],
)
def test_an_answer_that_is_none_changes_nothing(cli, write, killed, answer: list[str], part: str) -> None:
    run = killed(write(WRITES, SENT), "mail", noted="mail")
    [decision] = pending(cli("resume", run, "--json"))
    before = cli("events", run).stdout

    done = cli("decide", decision, *answer)

    assert done.code == 2
    assert part in done.stderr
    assert cli("events", run).stdout == before


def test_an_unknown_decision_is_refused(cli, write, killed) -> None:
    run = killed(write(WRITES, SENT), "mail", noted="mail")
    cli("resume", run, "-q")

    assert f"no open decision {run}:99" in cli("decide", f"{run}:99", "retry").stderr
    assert cli("decide", "last", "skip").code == 0
    assert "waits for no decision" not in cli("decide", "last", "skip").stderr
    assert "has ended (succeeded)" in cli("decide", "last", "skip").stderr


def test_an_answer_reaches_the_process_that_drives_the_run(begin, cli, write, killed, folder: Path) -> None:
    steps = WRITES + '{id: beside, uses: "py:tools:held", with: {file: later}}'
    run = killed(write(steps, SENT), "mail", noted="mail")
    driver = begin("resume", run, "--json")
    decision = until(driver, "decision_required")["decision"]

    done = cli("decide", decision, "accept", "--args", '{"output": "sent"}', "--json")
    until(driver, "decision_made")
    (folder / "later").touch()
    out, _ = driver.communicate(timeout=30)

    assert done.code == 0
    assert done.lines == [{"id": decision, "run_id": run, "verb": "accept", "accepted": True}]
    assert driver.returncode == 0
    assert json.loads(out.splitlines()[-1])["outputs"] == {"sent": "sent"}


def test_an_answer_in_a_paused_run_counts_and_the_run_stays_paused(
    begin, cli, write, killed, folder: Path
) -> None:
    steps = WRITES + '{id: beside, uses: "py:tools:held", with: {file: later}}'
    run = killed(write(steps, SENT), "mail", noted="mail")
    driver = begin("resume", run, "--json")
    decision = until(driver, "decision_required")["decision"]
    assert cli("send", run, "pause").code == 0
    driver.kill()
    driver.wait()
    (folder / "later").touch()

    done = cli("decide", decision, "accept", "--args", '{"output": "sent"}', "--json")

    assert done.code == 3
    assert done.lines[-1]["status"] == "paused"
    assert done.lines[-1]["pending"] == []
    assert cli("resume", run, "--json").lines[-1]["outputs"] == {"sent": "sent"}


def test_a_child_run_that_waits_makes_its_parent_wait(cli, write, killed, ledger) -> None:
    write(WRITES, SENT, name="child")
    parent = write('{id: call, uses: "workflow:child"}', 'outputs: {sent: "${ steps.call.output.sent }"}')
    run = killed(parent, "call", noted="mail")

    waits, shown = cli("resume", run, "--json"), cli("show", run, "--json")
    [decision] = pending(waits)
    done = cli("decide", decision, "accept", "--args", '{"output": "by hand"}', "--json")

    assert waits.code == 3
    assert waits.lines[-1]["status"] == "waiting"
    assert decision.startswith(f"{run}/call.1.1:")
    assert shown.lines[0]["pending"] == waits.lines[-1]["pending"]
    assert done.code == 0
    assert done.lines[-1]["run_id"] == run
    assert done.lines[-1]["outputs"] == {"sent": "by hand"}
    assert ledger() == ["look 1", "mail", "look by hand"]


def test_on_a_terminal_the_person_is_asked_at_once(terminal, cli, write, killed) -> None:
    run = killed(write(WRITES, SENT), "mail", noted="mail")

    screen = terminal("resume", run)
    screen.until("? more] ")
    screen.type("perhaps\n")
    screen.until("'perhaps' is no answer here")
    screen.type("accept\n")
    screen.until("as JSON: ")
    screen.type('"typed"\n')
    code, text = screen.finish()

    assert code == 0
    assert "sent: typed" in text
    assert cli("show", run, "--json").lines[0]["outputs"] == {"sent": "typed"}


def test_a_person_who_does_not_answer_leaves_the_decision_open(terminal, cli, write, killed) -> None:
    run = killed(write(WRITES, SENT), "mail", noted="mail")

    screen = terminal("resume", run)
    screen.until("? more] ")
    screen.type("\n")
    code, _ = screen.finish()

    assert code == 3
    assert cli("show", run, "--json").lines[0]["status"] == "waiting"


def test_a_run_that_is_driven_is_not_resumed_and_its_owner_is_named(begin, cli, write) -> None:
    driver = begin("run", write('{id: slow, uses: "py:tools:held"}'), "--json")
    run = until(driver, "task_start")["run_id"]

    done = cli("resume", run)

    assert done.code == 2
    assert done.messages[0].startswith(f"run {run} is being driven by process {driver.pid} on ")
    assert f"penstock watch {run} follows it, penstock send {run} … steers it" in done.messages[0]
    assert cli("events", run, "--type", "workflow_resumed").stdout == ""


def test_a_run_that_has_ended_is_not_resumed(cli, write) -> None:
    run = cli("run", write('{id: a, uses: "py:tools:look", with: {value: 1}}'), "--json").lines[-1]["run_id"]

    done = cli("resume", run)

    assert done.code == 2
    assert f"run {run} has ended (succeeded); penstock fork {run} --at N runs on" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_can_go_on_from_what_was_cancelled(
    begin, cli, write, folder: Path, number: int
) -> None:
    driver = begin("run", write(READS, OUTPUT), "--json")
    run = until(driver, "task_start", step="slow")["run_id"]
    driver.send_signal(number)
    driver.communicate(timeout=30)
    (folder / "go").touch()

    done = cli("resume", run, "--from", "failed", "--json")

    assert done.code == 0
    assert done.lines[-1]["outputs"] == {"sum": 3}


# --- the worker ---


def test_a_worker_takes_up_what_nobody_drives_and_leaves_alone_what_waits(
    cli, write, killed, folder: Path, ledger
) -> None:
    read = killed(write(READS, OUTPUT, name="reads"), "slow", noted="held")
    waits = killed(write(WRITES, SENT, name="writes"), "mail", noted="mail")
    (folder / "go").touch()

    first, second = cli("worker", "--once", "--json"), cli("worker", "--once", "--json")

    assert first.code == second.code == 0
    assert {line["run_id"]: line["status"] for line in first.lines} == {read: "succeeded", waits: "waiting"}
    assert second.lines == []
    assert ledger().count("mail") == 1


def test_a_worker_notices_runs_that_are_left_behind(begin, write, killed, folder: Path) -> None:
    (folder / "penstock.toml").write_text("")
    worker = begin("worker", "--json")
    line_with(worker, "looks for unfinished runs")

    run = killed(write(READS, OUTPUT), "slow", noted="held")
    (folder / "go").touch()
    done = json.loads(worker.stdout.readline())

    assert (done["run_id"], done["status"]) == (run, "succeeded")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0


def test_a_worker_that_is_stopped_lets_tasks_finish_and_the_run_go(
    begin, cli, write, killed, folder: Path, ledger
) -> None:
    steps = """
        {id: slow, uses: "py:tools:held", with: {value: 2}}
        {id: mail, uses: "py:tools:deed", with: {name: mail, file: later}, needs: [slow]}
        {id: last, uses: "py:tools:look", with: {value: "${ steps.mail.output }"}}
    """
    run = killed(write(steps, SENT), "slow", noted="held")
    (folder / "go").touch()
    worker = begin("worker")
    while "mail" not in ledger():
        assert worker.poll() is None

    worker.send_signal(signal.SIGTERM)
    line_with(worker, "stopping")
    (folder / "later").touch()

    assert worker.wait(30) == 0
    [left] = cli("runs", "--json").lines
    assert left["owner"] is None
    assert "look mail" not in ledger()
    assert cli("worker", "--once", "--json").lines[-1]["outputs"] == {"sent": "mail"}
    assert ledger().count("mail") == 1
    assert cli("show", run, "--json").lines[0]["status"] == "succeeded"


def test_a_worker_passes_over_what_it_cannot_run(cli, write, killed, folder: Path) -> None:
    run = killed(write(READS, OUTPUT), "slow", noted="held")
    (folder / "tools.py").unlink()

    done = cli("worker", "--once")

    assert done.code == 0
    assert f"run {run} (flow) was not taken up" in done.stderr


def test_a_worker_leaves_a_paused_run_paused_and_resume_does_not(begin, cli, write, folder: Path) -> None:
    driver = begin("run", write(READS, OUTPUT), "--json")
    run = until(driver, "task_start", step="slow")["run_id"]
    assert cli("send", run, "pause").code == 0
    driver.kill()
    driver.wait()
    (folder / "go").touch()

    left, done = cli("worker", "--once", "--json"), cli("resume", run, "--json")

    assert left.lines == []
    assert done.lines[-1]["outputs"] == {"sum": 3}
