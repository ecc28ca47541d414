"""Answers from the command line: approve, reject, decide, send, and what waits when nobody is asked."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from reading import until


@pytest.fixture
def waiting(cli, flow):
    """Run a workflow until it waits; its open decisions, as the last line has them."""

    def make(name: str) -> list[dict[str, str]]:
        done = cli("run", flow(name), "--json")
        assert done.code in (3, 5), done.stderr
        assert done.lines[-1]["status"] == "waiting"
        return done.lines[-1]["pending"]

    return make


def test_a_run_that_waits_says_what_for_and_exits_with_3(cli, flow, deployed) -> None:
    done = cli("run", flow("ship"))

    [asked] = cli("decide", "--list", "--json").lines
    assert done.code == 3
    assert done.stdout == ""
    assert "waiting for a decision: deploy would call py:acts:deploy." in done.messages
    assert f"penstock decide {asked['id']} approve   (or reject, edit, skip, abort)" in done.messages
    assert (asked["kind"], asked["step"], asked["workflow"]) == ("approval", "deploy", "ship")
    assert asked["call"] == {"uses": "py:acts:deploy", "args": {"env": "prod", "share": 100}}
    assert len(asked["digest"]) == 64
    assert asked["deadline"] is None
    assert deployed() == []


def test_pending_of_the_last_line_has_id_kind_step_and_summary(waiting) -> None:
    [asked] = waiting("ship")

    assert set(asked) == {"id", "kind", "step", "summary"}
    assert (asked["kind"], asked["step"]) == ("approval", "deploy")


def test_approve_makes_the_call_as_it_is(cli, waiting, deployed) -> None:
    [asked] = waiting("ship")

    done = cli("approve", asked["id"], "--message", "fine", "--json")

    assert done.code == 0
    assert done.lines[-1]["outputs"] == {"where": "prod", "share": 100}
    assert deployed() == ["prod 100"]
    assert "deploy approval: approve by " in cli("show", "last").stdout
    assert cli("show", "last").stdout.count(": fine") == 1


def test_approve_with_arguments_makes_the_call_with_those(cli, waiting, deployed) -> None:
    waiting("ship")

    done = cli("approve", "last", "--args", '{"share": 10}', "--json")

    assert done.code == 0
    assert done.lines[-1]["outputs"] == {"where": "prod", "share": 10}
    assert deployed() == ["prod 10"]


def test_reject_fails_the_step_and_says_why(cli, waiting, deployed) -> None:
    waiting("ship")

    done = cli("reject", "last", "--message", "not on a Friday", "--json")

    assert done.code in (1, 4)
    assert done.lines[-1]["steps"]["deploy"]["reason"] == "not on a Friday"
    assert deployed() == []


def test_a_question_is_shown_with_the_call_word_for_word(cli, write, folder: Path) -> None:
    (folder / "acts.py").write_text("def wipe(path: str, why: str):\n    return path\n")
    why = "because " * 40
    args = f'{{path: "/srv/data/prod.db", why: "{why}"}}'
    write(f'{{id: wipe, uses: "py:acts:wipe", approval: true, with: {args}}}')
    cli("run", "flow.yaml", "-q")

    shown = cli("decide", "last")
    [told] = cli("decide", "last", "--json").lines

    assert (shown.code, shown.stderr) == (0, "")
    assert '"/srv/data/prod.db"' in shown.stdout
    assert why in shown.stdout
    assert f"penstock decide {told['id']} approve   (or reject, edit, skip, abort)" in shown.stdout
    assert told["call"]["args"]["path"] == "/srv/data/prod.db"


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["approve", "last", "--args", '{"nope": 1}'], "the call has no argument 'nope'"),
        (["approve", "last", "--args", "[1]"], "not a JSON object"),
        (["decide", "last", "retry"], "choose one of approve, reject, edit, skip, abort"),
        (["decide", "last", "edit"], "edit needs the arguments"),
        (["decide", "last", "--message", "fine"], "Give a VERB, too"),
        (["approve", "zzz:3"], "zzz"),
        (["approve", "last:99"], ":99"),
    ],
)
def test_what_is_no_answer_changes_nothing(cli, waiting, args: list[str], part: str) -> None:
    [asked] = waiting("ship")
    before = cli("events", "last").stdout

    done = cli(*args)

    assert done.code == 2
    assert part in done.stderr
    assert cli("events", "last").stdout == before
    assert [one["id"] for one in cli("decide", "--list", "--json").lines] == [asked["id"]]


def test_a_run_that_asks_several_things_is_refused_with_the_list(cli, waiting, deployed) -> None:
    first, second = waiting("two")

    done = cli("approve", "last")

    assert done.code == 2
    assert "asks 2 things; choose one:" in done.stderr
    assert all(f"  {one['id']}  approval  " in done.stderr for one in (first, second))
    assert deployed() == []


def test_answers_go_to_their_own_questions_in_any_order(cli, waiting, deployed) -> None:
    first, second = waiting("two")

    one = cli("approve", second["id"], "--json")
    two = cli("approve", first["id"], "--args", '{"env": "south"}', "--json")

    assert one.code == 3
    assert [asked["id"] for asked in one.lines[-1]["pending"]] == [first["id"]]
    assert two.code == 0
    assert two.lines[-1]["outputs"] == {"east": "south", "west": "west"}
    assert deployed() == ["west 100", "south 100"]


def test_the_same_answer_twice_is_refused(cli, waiting, deployed) -> None:
    first, _ = waiting("two")
    assert cli("approve", first["id"], "--json").code == 3

    done = cli("approve", first["id"])

    assert done.code == 2
    assert f"no open decision {first['id']}" in done.stderr
    assert deployed() == ["east 100"]


def test_a_spent_budget_exits_with_5_and_can_be_raised_or_finished(cli, flow) -> None:
    done = cli("run", flow("spent"), "--json")
    raised = cli("decide", "last", "raise", "--args", '{"tool_calls": 9}', "--json")
    cli("run", flow("spent"), "-q")
    finished = cli("decide", "last", "finish", "--json")

    assert done.code == 5
    assert [asked["kind"] for asked in done.lines[-1]["pending"]] == ["budget"]
    assert raised.code == 0
    assert raised.lines[-1]["outputs"] == {"c": 3}
    assert finished.code in (1, 4)
    assert finished.lines[-1]["steps"]["c"]["status"] == "skipped"


def test_a_route_is_chosen_by_name(cli, waiting) -> None:
    waiting("routed")

    wrong = cli("decide", "last", "respond", "--args", '{"target": "up"}')
    done = cli("decide", "last", "respond", "--args", '{"target": "left"}', "--json")

    assert wrong.code == 2
    assert "one of left, right, end" in wrong.stderr
    assert done.code == 0
    assert {id: step["status"] for id, step in done.lines[-1]["steps"].items()} == {
        "look": "succeeded", "left": "succeeded", "right": "skipped",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "code", "size"),
    [
        (["accept"], 0, 1),
        (["edit", "--args", '{"size": 9}'], 0, 9),
        (["retry"], 3, None),
        (["abort"], 1, None),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_gate_that_called_a_person_takes_each_answer(cli, waiting, answer, code: int, size) -> None:
    waiting("gated")

    done = cli("decide", "last", *answer, "--json")

    assert done.code == code
    assert (done.lines[-1]["outputs"]["size"] if code == 0 else None) == size


def test_what_a_gate_refused_is_a_lesson(cli, waiting) -> None:
    waiting("gated")

    listed, text, other = (
        cli("lessons", "--json"),
        cli("lessons", "--step", "build"),
        cli("lessons", "--step", "x"),
    )

    [lesson] = listed.lines
    assert (lesson["workflow"], lesson["step"], lesson["tool"]) == ("gated", "build", "py:acts:build")
    assert lesson["expires"] > lesson["at"]
    assert "large: " in text.stdout
    assert other.stdout == ""
    assert other.messages == ["no such lesson"]


def test_there_are_no_lessons_where_nothing_was_run(cli) -> None:
    done = cli("lessons")

    assert done.code == 0
    assert "nothing has been run here" in done.stderr


def test_an_agent_that_is_asked_may_answer_from_the_command_line(cli, waiting) -> None:
    [asked] = waiting("agreed")

    done = cli("decide", asked["id"], "respond", "--message", "go on, carefully", "--json")

    assert asked["kind"] == "ail"
    assert done.code == 0
    assert done.lines[-1]["outputs"] == {"b": 2}
    assert "go on, carefully" in cli("events", "last", "--type", "state_updated").stdout


def test_a_deadline_is_shown(cli, flow) -> None:
    done = cli("run", flow("agreed"))

    [asked] = cli("decide", "--list", "--json").lines
    assert done.code == 3
    assert "left), then the run goes on." in done.stderr
    assert asked["deadline"] > asked["asked"]
    assert "answers itself at" in cli("show", "last").stdout


def test_a_question_that_answers_itself_soon_is_waited_for(cli, flow) -> None:
    done = cli("run", flow("impatient"), "--json")

    assert done.code == 0
    assert done.lines[-1]["outputs"] == {"b": 2}


def test_a_worker_goes_on_with_a_run_whose_question_has_run_out_of_time(cli, flow) -> None:
    assert cli("run", flow("patient"), "-q").code == 3
    [asked] = cli("decide", "--list", "--json").lines
    assert cli("worker", "--once").stderr == ""
    while time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) <= asked["deadline"][:19]:
        time.sleep(0.05)

    done = cli("worker", "--once", "--json")

    assert done.lines[-1]["status"] == "succeeded"
    assert done.lines[-1]["outputs"] == {"b": 2}


def test_a_command_reaches_a_run_that_waits(cli, waiting, deployed) -> None:
    [asked] = waiting("ship")

    said = cli("send", "last", "message", "text=hello")
    changed = cli("send", "last", "modify_args", "step=deploy", 'args={"env": "stage"}', "--json")
    [again] = cli("decide", "--list", "--json").lines
    skipped = cli("send", "last", "skip_step", "step=deploy", "--json")

    assert said.code == 0
    assert said.messages[-1].endswith("message accepted; it is waiting")
    assert changed.lines[-1]["accepted"] is True
    assert changed.lines[-1]["status"] == "waiting"
    assert again["id"] != asked["id"]
    assert again["call"]["args"]["env"] == "stage"
    assert skipped.lines[-1]["status"] == "succeeded"
    assert deployed() == []


def test_a_decision_can_be_requested_of_a_run_that_waits_and_of_one_that_runs(
    begin, cli, waiting, folder: Path
) -> None:
    waiting("ship")
    asked = cli("send", "last", "request_decision", "summary=look at this")
    kinds = [one["kind"] for one in cli("decide", "--list", "--json").lines]
    (folder / "busy.yaml").write_text(
        "name: busy\nsteps:\n  - {id: a, uses: 'py:acts:held'}\n"
        "  - {id: b, uses: 'py:acts:plain', needs: [a], with: {value: 1}}\n"
    )
    driver = begin("run", "busy.yaml", "--json")
    run = until(driver, "task_start", step="a")["run_id"]
    live = cli("send", run, "request_decision", "summary=wait")
    decision = until(driver, "decision_required")["decision"]
    (folder / "go").touch()
    out, _ = driver.communicate(timeout=30)

    assert asked.code == live.code == 0
    assert kinds == ["approval", "requested"]
    assert driver.returncode == 3
    assert [one["id"] for one in json.loads(out.splitlines()[-1])["pending"]] == [decision]
    assert cli("approve", decision, "--json").lines[-1]["status"] == "succeeded"


def test_steps_are_added_to_a_run_that_waits(cli, waiting, folder: Path) -> None:
    waiting("ship")
    (folder / "extra.yaml").write_text("name: extra\nsteps:\n  - {id: x, uses: 'py:acts:plain'}\n")

    done = cli("send", "last", "inject_tasks", 'steps=[{"id": "more", "uses": "workflow:extra"}]', "--json")
    bad = cli("send", "last", "inject_tasks", 'steps=[{"id": "bad", "uses": "py:acts:plain"}]')

    assert done.code == 0
    assert cli("show", "last", "--json").lines[0]["steps"]["more"]["status"] == "succeeded"
    assert bad.code == 2
    assert "allowed only in workflow files" in bad.stderr


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["checkpoint"], 0),
        (["pause", "reason=lunch"], 0),
        (["abort", "reason=enough"], 0),
        (["skip_layer", "layer=1"], 0),
        (["replan_dag", "requirement=parse XML"], 2),
        (["retry_step", "step=pack"], 2),
        (["resume"], 2),
        (["decide", "decision=ID", "verb=approve"], 0),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_every_command_can_be_sent_to_a_run_that_waits(cli, waiting, command: list[str], code: int) -> None:
    [asked] = waiting("ship")

    done = cli("send", "last", *(part.replace("ID", asked["id"]) for part in command))

    assert done.code == code, done.stderr


def test_without_a_terminal_decide_only_lists(cli, waiting) -> None:
    [asked] = waiting("ship")

    done = cli("decide")

    assert done.code == 0
    assert done.stdout.startswith(f"{asked['id']}  ship  approval  deploy would call py:acts:deploy.")
    assert len(done.stdout.splitlines()) == 1
