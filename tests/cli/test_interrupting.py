"""Ctrl-C and kill: the first stops the run, the second leaves at once."""

from __future__ import annotations

import json
import signal

import pytest
from reading import until


@pytest.mark.parametrize(
    ("number", "code", "reason"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_aborts_the_run_and_its_end_is_told(
    begin, write, number: int, code: int, reason: str
) -> None:
    process = begin(
        "run",
        write("""
            {id: endless, uses: "py:tools:forever"}
            {id: after, uses: "py:tools:echo", needs: [endless], with: {value: 1}}
        """),
        "--json",
    )
    until(process, "task_start")

    process.send_signal(number)
    out, err = process.communicate(timeout=30)

    last = json.loads(out.splitlines()[-1])
    assert process.returncode == code
    assert last["status"] == "aborted"
    assert last["steps"]["endless"]["reason"] == f"cancelled: {reason}"
    assert last["steps"]["after"]["status"] == "skipped"
    assert err == ""


def test_a_thread_that_cannot_be_stopped_does_not_hold_up_an_interrupt(begin, write) -> None:
    process = begin("run", write('{id: stuck, uses: "py:tools:stuck"}'), "--json")
    until(process, "task_start")

    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)

    assert process.returncode == 130
    assert json.loads(out.splitlines()[-1])["status"] == "aborted"


def test_a_second_interrupt_leaves_a_run_that_will_not_stop(begin, write) -> None:
    process = begin("run", write('{id: stubborn, uses: "py:tools:stubborn"}'), "--json")
    until(process, "task_start")

    process.send_signal(signal.SIGINT)
    until(process, "command_accepted")
    process.send_signal(signal.SIGINT)

    assert process.wait(4) == 130


def test_interrupts_work_while_a_step_holds_up_the_event_loop(begin, write, folder) -> None:
    (folder / "holding.py").write_text(
        "import sys, time\n"
        "async def hold():\n"
        "    print('holding', file=sys.stderr, flush=True)\n"
        "    while True: time.sleep(3600)\n"
    )
    process = begin("run", write('{id: deaf, uses: "py:holding:hold"}'), "--quiet")
    assert process.stderr.readline() == "holding\n"

    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)

    assert process.wait(30) in (130, 143)


def test_a_killed_run_leaves_whole_lines_that_show_can_read(begin, cli, write, folder) -> None:
    saved = folder / "run.jsonl"
    flow = write("""
        {id: first, uses: "py:tools:echo", with: {value: 1}}
        {id: endless, uses: "py:tools:forever", needs: [first]}
    """)
    process = begin("run", flow, "--quiet", "--save", saved)
    while not saved.exists() or '"step":"endless"' not in saved.read_text():
        assert process.poll() is None

    process.kill()
    process.wait()
    done = cli("show", saved, "--json")

    assert done.code == 0
    assert all(json.loads(line)["type"] for line in saved.read_text().splitlines())
    assert done.messages == [f"{saved}: the record ends before the run did"]
    assert done.lines[0]["status"] == "running"
    assert done.lines[0]["steps"]["first"]["status"] == "succeeded"
