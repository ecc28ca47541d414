"""What was run: lists, any moment of a run, and new runs from old ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reading import until

FLOW = """
    {id: one, uses: "py:tools:look", with: {value: 1}}
    {id: two, uses: "py:tools:look", with: {value: "${ steps.one.output + 1 }"}}
    {id: three, uses: "py:tools:look", with: {value: "${ steps.two.output + 1 }"}}
"""
OUTPUT = 'outputs: {value: "${ steps.three.output }"}'
BROKEN = """
    {id: one, uses: "py:tools:look", with: {value: 1}}
    {id: two, uses: "py:tools:fixable", needs: [one]}
    {id: three, uses: "py:tools:look", with: {value: "${ steps.two.output }"}}
"""


@pytest.fixture
def ended(cli, write) -> str:
    run: str = cli("run", write(FLOW, OUTPUT), "--json").lines[-1]["run_id"]
    return run


@pytest.fixture
def paced(begin, write, folder: Path) -> str:
    """A run that had time to keep a checkpoint before its second step was over."""
    slow = FLOW.replace(
        '"py:tools:look", with: {value: "${ steps.one', '"py:tools:held", with: {value: "${ steps.one'
    )
    process = begin("run", write(slow, OUTPUT), "--json")
    run: str = until(process, "task_start", step="two")["run_id"]
    (folder / "go").touch()
    process.communicate(timeout=30)
    return run


def seq_of(cli, run: str, kind: str, step: str) -> int:
    events = cli("events", run, "--json", "--type", kind).lines
    return next(event["seq"] for event in events if event["step"] == step)


def test_runs_are_listed_the_newest_first_and_chosen_by_status_and_workflow(cli, write, ended: str) -> None:
    failed = cli("run", write('{id: bad, uses: "py:tools:boom"}', name="bad"), "--json").lines[-1]["run_id"]

    every = cli("runs", "--json").lines

    assert [(one["run_id"], one["status"], one["workflow"]) for one in every] == [
        (failed, "failed", "bad"),
        (ended, "succeeded", "flow"),
    ]
    assert every[0]["reason"] == "step bad failed: ValueError: no good"
    assert [one["run_id"] for one in cli("runs", "--status", "failed", "--json").lines] == [failed]
    assert [one["run_id"] for one in cli("runs", "--workflow", "flow", "--json").lines] == [ended]
    assert [one["run_id"] for one in cli("runs", "--limit", 1, "--json").lines] == [failed]
    table = cli("runs").stdout.splitlines()
    assert [line.split()[:3] for line in table] == [[failed, "failed", "bad"], [ended, "succeeded", "flow"]]


def test_child_runs_are_listed_only_when_asked_for(cli, write, ended: str) -> None:
    parent = write('{id: call, uses: "workflow:flow"}', name="parent")
    run = cli("run", parent, "--json").lines[-1]["run_id"]

    assert [one["run_id"] for one in cli("runs", "--json").lines] == [run, ended]
    assert [one["run_id"] for one in cli("runs", "--limit", 2, "--json").lines] == [run, ended]
    assert [one["parent"] for one in cli("runs", "--all", "--json").lines] == [run, None, None]
    assert cli("show", f"{run}/call.1.1", "--json").lines[0]["outputs"] == {"value": 3}


def test_where_nothing_was_run_there_are_no_runs_and_none_is_made(cli, folder: Path) -> None:
    done, decisions = cli("runs", "--json"), cli("decide", "--list", "--json")

    assert (done.code, done.stdout) == (decisions.code, decisions.stdout) == (0, "")
    assert "nothing has been run here" in done.stderr
    assert not (folder / ".penstock").exists()


def test_show_tells_how_a_run_went_where_it_came_from_and_what_was_kept(
    cli, ended: str, folder: Path
) -> None:
    done = cli("show", ended)

    assert done.code == 0
    assert done.stdout.startswith("flow  succeeded")
    assert f"defined in {folder / 'flow.yaml'}, sha256:" in done.stdout
    assert json.loads(done.stdout.partition("outputs\n")[2]) == {"value": 3}


def test_a_run_is_shown_as_it_stood_after_any_event(cli, ended: str) -> None:
    at = seq_of(cli, ended, "task_complete", "one")
    steps = [cli("show", ended, "--at", n, "--json").lines[0]["steps"] for n in (0, at, at + 2)]

    assert [[step["status"] for step in one.values()] for one in steps] == [
        ["waiting", "waiting", "waiting"],
        ["succeeded", "waiting", "waiting"],
        ["succeeded", "running", "waiting"],
    ]
    past = cli("show", ended, "--at", at)
    assert f"as it stood after event {at} of " in past.stdout
    assert past.stdout.startswith("flow  running")
    assert "outputs" not in past.stdout
    assert "nobody drives it" not in past.stdout
    assert cli("show", ended, "--at", 0).stdout.startswith(
        f"flow  pending  0 ms\nrun {ended}, not started, 0"
    )


@pytest.mark.usefixtures("ended")
def test_what_is_neither_a_run_nor_a_file_is_said_to_be_neither(cli) -> None:
    done = cli("show", "nope")

    assert done.code == 2
    assert "No such file" in done.stderr
    assert "no run has such an id" in done.stderr


@pytest.mark.parametrize("verb", [["runs", "--limit", "99999"], ["show", "last", "--all"]])
def test_whoever_has_seen_enough_of_a_list_is_no_error(begin, verb: list[str], write) -> None:
    begin(
        "run",
        write("\n".join(f'{{id: s{n}, uses: "py:tools:echo", with: {{value: 1}}}}' for n in range(3))),
        "-q",
    ).wait(30)

    process = begin(*verb)
    process.stdout.close()

    assert process.wait(30) == 0
    assert process.stderr.read() == ""


@pytest.mark.parametrize(
    "verb", [["runs"], ["show", "last"], ["show", "last", "--json"], ["fork", "last", "--at", "2", "-q"]]
)
@pytest.mark.usefixtures("ended")
def test_a_full_disk_is_not_called_a_fault_of_penstock(folder: Path, environment, verb: list[str]) -> None:
    import subprocess
    import sys

    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *verb],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment, check=False,
        )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr.endswith("cannot write: No space left on device\n")
    assert "fault of Penstock" not in done.stderr


def test_the_first_characters_of_an_id_are_enough_when_they_fit_one_run(cli, ended: str) -> None:
    assert cli("show", ended[:15], "--json").lines[0]["run_id"] == ended
    assert cli("show", "last", "--json").lines[0]["run_id"] == ended
    assert cli("events", ended[:15], "--json").lines[0]["run_id"] == ended


def test_first_characters_that_fit_several_runs_are_refused(cli, ended: str) -> None:
    other = cli("run", "flow.yaml", "--json").lines[-1]["run_id"]

    done = cli("show", ended[:3])

    assert done.code == 2
    assert f"'{ended[:3]}' could be {other}, {ended}; give more of the id" in done.stderr


UNKNOWN = {
    "show": ["show", "zzz"], "events": ["events", "zzz"], "watch": ["watch", "zzz"],
    "resume": ["resume", "zzz"], "fork": ["fork", "zzz", "--at", 3], "send": ["send", "zzz", "pause"],
    "abort": ["abort", "zzz"], "decide": ["decide", "zzz:3", "retry"],
}  # fmt: skip


@pytest.mark.parametrize("args", UNKNOWN.values(), ids=UNKNOWN)
@pytest.mark.usefixtures("ended")
def test_an_unknown_run_is_refused(cli, args: list[object]) -> None:
    done = cli(*args)

    assert done.code == 2
    assert done.stdout == ""
    assert done.messages == ["no run 'zzz' in this store"]


OUT_OF_RANGE = {
    "show": ["show", "last", "--at", 999], "fork": ["fork", "last", "--at", 999],
    "fork at 0": ["fork", "last", "--at", 0], "events": ["events", "last", "--after", 999],
}  # fmt: skip


@pytest.mark.parametrize("args", OUT_OF_RANGE.values(), ids=OUT_OF_RANGE)
@pytest.mark.usefixtures("ended")
def test_an_event_that_is_not_there_is_refused(cli, args: list[object]) -> None:
    done = cli(*args)

    assert done.code == 2
    assert "there is no event" in done.stderr
    assert len(cli("runs", "--json").lines) == 1


# --- forks ---


def test_a_fork_goes_on_from_an_event_and_leaves_the_other_run_alone(cli, ended: str, ledger) -> None:
    at = seq_of(cli, ended, "task_complete", "one")
    before = cli("events", ended).stdout

    done = cli("fork", ended, "--at", at, "--set", "three.value=10", "--json")

    last = done.lines[-1]
    assert done.code == 0
    assert last["outputs"] == {"value": 10}
    assert last["run_id"] != ended
    assert done.lines[0]["seq"] > at
    assert ledger() == ["look 1", "look 2", "look 3", "look 2", "look 10"]
    assert cli("events", ended).stdout == before
    new = cli("runs", "--json").lines[0]
    assert (new["run_id"], new["fork_of"], new["fork_at"]) == (
        last["run_id"],
        ended,
        done.lines[0]["seq"] - 1,
    )
    whole = cli("events", last["run_id"], "--json").lines
    assert [event["seq"] for event in whole] == list(range(1, len(whole) + 1))


def test_show_names_every_run_that_a_fork_comes_from(cli, ended: str) -> None:
    at = seq_of(cli, ended, "task_complete", "one")
    second = cli("fork", ended, "--at", at, "--json").lines[-1]["run_id"]
    third = cli("fork", second, "--at", at, "--json").lines[-1]["run_id"]

    text = cli("show", third).stdout

    assert text.index(f"forked from run {second} at event") < text.index(f"forked from run {ended} at event")


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["--at", 4, "--set", "nine.value=1"], "no step 'nine'"),
        (["--set", "one.value=1"], "one has ended by then"),
        (["--set", "value=1"], "'value=1' is not STEP.ARG=VALUE"),
        ([], "nothing is left to run"),
    ],
)
def test_a_fork_that_makes_no_sense_is_refused(cli, ended: str, args: list[object], part: str) -> None:
    done = cli("fork", ended, *args)

    assert done.code == 2
    assert part in done.stderr
    assert len(cli("runs", "--json").lines) == 1


def test_a_running_run_is_forked_only_by_force(begin, cli, write, folder: Path) -> None:
    flow = write(
        '{id: slow, uses: "py:tools:held", with: {value: 1}}', 'outputs: {v: "${ steps.slow.output }"}'
    )
    driver = begin("run", flow, "--json")
    run = until(driver, "task_start")["run_id"]

    refused = cli("fork", run, "--at", 2)
    step = cli("resume", run, "--from", "slow")
    (folder / "go").touch()
    driver.communicate(timeout=30)

    assert refused.code == step.code == 2
    assert f"run {run} is running, driven by process {driver.pid}" in refused.stderr
    assert f"penstock send {run} pause" in refused.stderr
    assert f"penstock fork {run} --force" in step.stderr
    assert len(cli("runs", "--json").lines) == 1


def test_force_forks_a_running_run(begin, write, folder: Path) -> None:
    flow = write(
        '{id: slow, uses: "py:tools:held", with: {value: 1}}', 'outputs: {v: "${ steps.slow.output }"}'
    )
    driver = begin("run", flow, "--json")
    run = until(driver, "task_start")["run_id"]
    fork = begin("fork", run, "--at", "3", "--force", "--json")
    until(fork, "workflow_resumed")

    (folder / "go").touch()
    mine, other = fork.communicate(timeout=30)[0], driver.communicate(timeout=30)[0]

    assert json.loads(mine.splitlines()[-1])["outputs"] == {"v": 1}
    assert json.loads(other.splitlines()[-1])["outputs"] == {"v": 1}


# --- from a point ---


def test_what_failed_is_tried_again_in_place(cli, write, folder: Path, ledger) -> None:
    run = cli("run", write(BROKEN, OUTPUT), "--json").lines[-1]["run_id"]
    (folder / "fixed").touch()

    done = cli("resume", run, "--from", "failed", "--json")

    assert done.code == 0
    assert done.lines[-1]["run_id"] == run
    assert done.lines[-1]["outputs"] == {"value": "whole"}
    assert ledger() == ["look 1", "look whole"]
    assert cli("show", run).stdout.count("✓") == 3


def test_a_run_goes_on_from_a_step_as_a_new_run(cli, ended: str, ledger) -> None:
    done = cli("resume", ended, "--from", "two", "--json")

    assert done.code == 0
    assert done.lines[-1]["run_id"] != ended
    assert done.lines[-1]["outputs"] == {"value": 3}
    assert ledger() == ["look 1", "look 2", "look 3", "look 2", "look 3"]
    assert f"forked from run {ended}" in done.stderr


def test_a_run_goes_on_from_a_checkpoint_as_a_new_run(cli, paced: str, ledger) -> None:
    *_, kept = cli("show", paced, "--checkpoints", "--json").lines
    listed = cli("show", paced, "--checkpoints").stdout

    done = cli("resume", paced, "--from", f"checkpoint:{kept['checkpoint']}", "--json")

    assert kept["run_id"] == paced
    assert listed.splitlines()[-1].startswith(kept["checkpoint"])
    assert kept["checkpoint"] in cli("show", paced).stdout
    assert done.code == 0
    assert done.lines[-1]["run_id"] != paced
    assert done.lines[-1]["outputs"] == {"value": 3}
    assert done.lines[0]["seq"] > kept["seq"]
    assert ledger()[:3] == ["look 1", "held", "look 3"]
    assert "look 1" not in ledger()[3:]


def test_a_point_that_is_not_in_the_run_is_refused(cli, write, paced: str) -> None:
    *_, kept = cli("show", paced, "--checkpoints", "--json").lines
    ended = cli("run", write(FLOW, OUTPUT, name="other"), "--json").lines[-1]["run_id"]

    step = cli("resume", ended, "--from", "nine")
    checkpoint = cli("resume", ended, "--from", f"checkpoint:{kept['checkpoint']}")
    unknown = cli("resume", ended, "--from", "checkpoint:none")
    nothing = cli("resume", ended, "--from", "failed")

    assert [done.code for done in (step, checkpoint, unknown, nothing)] == [2, 2, 2, 2]
    assert "no step 'nine' in this run" in step.stderr
    assert f"{kept['checkpoint']} is one of run {paced} (flow), not of run {ended}" in checkpoint.stderr
    assert "there is no checkpoint 'none'" in unknown.stderr
    assert "has ended (succeeded)" in nothing.stderr
    assert len(cli("runs", "--json").lines) == 2


# --- a changed definition ---


@pytest.fixture
def repaired(cli, write) -> str:
    """A failed run whose file was put right afterwards, and got a step more."""
    run: str = cli("run", write(BROKEN, OUTPUT), "--json").lines[-1]["run_id"]
    fixed = BROKEN.replace('"py:tools:fixable"', '"py:tools:look", with: {value: 5}')
    write(fixed + '{id: four, uses: "py:tools:look", with: {value: "${ steps.three.output }"}}', OUTPUT)
    return run


def test_a_changed_definition_is_told_and_not_run_unless_agreed_to(cli, repaired: str, ledger) -> None:
    done = cli("resume", repaired, "--definition", "current")

    assert done.code == 2
    words = [line.split("   (")[0].split() for line in done.messages[1:-1]]
    assert words == [
        ["changed", "two"],
        ["added", "four"],
        ["kept", "one"],
        ["to", "run", "two,", "three,", "four"],
    ]
    assert "--yes" in done.messages[-1]
    assert ledger() == ["look 1"]
    assert len(cli("runs", "--json").lines) == 1


def test_a_changed_definition_goes_on_as_a_new_run_that_keeps_what_it_can(cli, repaired: str, ledger) -> None:
    done = cli("resume", repaired, "--definition", "current", "--yes", "--json")

    assert done.code == 0
    assert done.lines[-1]["run_id"] != repaired
    assert done.lines[-1]["outputs"] == {"value": 5}
    assert ledger() == ["look 1", "look 5", "look 5", "look 5"]
    assert cli("show", repaired, "--json").lines[0]["status"] == "failed"
    assert cli("show", "last").stdout.count("✓") == 4


def test_on_a_terminal_a_changed_definition_is_asked_about(terminal, repaired: str) -> None:
    no = terminal("resume", repaired, "--definition", "current")
    no.until("[y/N] ")
    no.type("\n")
    refused, _ = no.finish()
    yes = terminal("resume", repaired, "--definition", "current")
    yes.until("[y/N] ")
    yes.type("y\n")
    code, text = yes.finish()

    assert (refused, code) == (2, 0)
    assert "value: 5" in text


def test_a_definition_that_has_not_changed_goes_on_in_place(cli, write, folder: Path) -> None:
    run = cli("run", write(BROKEN, OUTPUT), "--json").lines[-1]["run_id"]
    (folder / "fixed").touch()

    done = cli("resume", run, "--from", "failed", "--definition", "current", "--json")

    assert done.code == 0
    assert done.lines[-1]["run_id"] == run
    assert "has not changed" in done.stderr


def test_a_file_that_is_another_workflow_now_or_gone_is_refused(cli, repaired: str, folder: Path) -> None:
    path = folder / "flow.yaml"
    path.write_text(path.read_text().replace("name: flow", "name: other"))
    other = cli("resume", repaired, "--definition", "current", "--yes")
    path.unlink()
    gone = cli("resume", repaired, "--definition", "current", "--yes")

    assert other.code == gone.code == 2
    assert "is the workflow 'other' now" in other.stderr
    assert "cannot read the file" in gone.stderr
