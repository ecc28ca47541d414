"""`run --save`, and what `show` and `events` make of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

STEPS = """
    {id: again, uses: "py:tools:second_time", retry: {max_attempts: 2, backoff: 1ms}}
    {id: each, uses: "py:tools:echo", for_each: "[1, 2, 3]", with: {value: "${ item }"}}
    {id: bad, uses: "py:tools:boom", on_error: continue}
    {id: never, uses: "py:tools:boom", when: "false"}
"""
OUTPUTS = 'outputs: {list: "${ steps.each.output }"}'


@pytest.fixture
def saved(cli, write, folder: Path) -> Path:
    path = folder / "run.jsonl"
    assert cli("run", write(STEPS, OUTPUTS), "--quiet", "--save", path).code == 0
    return path


def test_a_saved_run_is_what_json_prints(cli, write, folder: Path) -> None:
    done = cli("run", write(STEPS, OUTPUTS), "--json", "--save", "run.jsonl")

    assert (folder / "run.jsonl").read_text() == done.stdout


def test_show_tells_status_steps_reasons_and_outputs(cli, saved: Path) -> None:
    done = cli("show", saved)

    assert done.code == 0
    assert done.stderr == ""
    head, *rest = done.stdout.splitlines()
    rows = {line.split()[1]: line for line in rest if line[:1] in "✓✗–" and line.strip()}
    assert head.startswith("flow  succeeded")
    assert "2 attempts" in rows["again"]
    assert "3 items" in rows["each"]
    assert "ValueError: no good" in rows["bad"]
    assert rows["never"].endswith("when is false: false")
    assert "━" in rows["again"]
    assert json.loads(done.stdout.partition("outputs\n")[2]) == {"list": [1, 2, 3]}


def test_show_json_is_the_line_that_ended_the_run(cli, saved: Path) -> None:
    assert cli("show", saved, "--json").stdout == saved.read_text().splitlines()[-1] + "\n"


def test_show_reads_stdin(cli, saved: Path) -> None:
    assert cli("show", "-", "--json", stdin=saved.read_text()).lines[0]["status"] == "succeeded"


def test_a_record_without_its_last_line_is_summed_up_the_same(cli, saved: Path, folder: Path) -> None:
    *events, last = saved.read_text().splitlines(keepends=True)
    (folder / "cut.jsonl").write_text("".join(events))

    mine, engine = cli("show", "cut.jsonl", "--json").lines[0], json.loads(last)

    assert mine.pop("duration_ms") == pytest.approx(engine.pop("duration_ms"), abs=0.01)
    assert mine == engine


def test_a_torn_last_line_is_left_out_and_told(cli, saved: Path) -> None:
    text = saved.read_text()
    saved.write_text(text[: text.rindex('"duration_ms"')])

    done = cli("show", saved, "--json")

    assert done.code == 0
    assert done.messages[0].endswith("the last line is incomplete and was left out")
    assert done.lines[0]["status"] == "succeeded"


def test_events_lists_every_event_on_a_line(cli, saved: Path) -> None:
    done = cli("events", saved)

    assert len(done.stdout.splitlines()) == len(saved.read_text().splitlines()) - 1
    assert any(
        "task_error" in line and "bad: ValueError: no good" in line for line in done.stdout.splitlines()
    )


def test_events_can_be_chosen_by_number_and_type(cli, saved: Path) -> None:
    late = cli("events", saved, "--after", "5", "--json").lines
    errors = cli("events", saved, "--type", "task_error", "--type", "task_skipped", "--json").lines

    assert [event["seq"] for event in late] == list(range(6, 6 + len(late)))
    assert {event["type"] for event in errors} == {"task_error", "task_skipped"}


def test_an_event_of_a_later_version_is_listed_not_hidden(cli, saved: Path) -> None:
    first, rest = saved.read_text().split("\n", 1)
    new = {**json.loads(first), "type": "comet_sighted", "seq": 2}
    saved.write_text(f"{first}\n{json.dumps(new)}\n{rest}")

    assert "comet_sighted (unknown to this version)" in cli("events", saved).stdout
    assert cli("show", saved).code == 0


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "there is no run in this file"),
        ("hello\n", "bad.jsonl:1: this is not a line of a saved run"),
        ('{"run_id": 3}\n', "bad.jsonl:1: this is not a line of a saved run"),
        ('{"run_id": "a"}\n', "bad.jsonl:1: this is not how a run is summed up"),
        (
            '{"run_id": "a", "type": "x"}\n{"run_id": "b", "type": "x"}\n',
            "bad.jsonl:2: this line is of another run",
        ),
    ],
)
def test_a_file_that_is_no_saved_run_is_refused(cli, folder: Path, text: str, part: str) -> None:
    (folder / "bad.jsonl").write_text(text)

    done = cli("show", "bad.jsonl")

    assert done.code == 2
    assert len(done.messages) == 1
    assert part in done.messages[0]


@pytest.mark.parametrize("args", [["show", "--at", 3], ["show", "--checkpoints"], ["events", "--follow"]])
def test_what_only_a_store_knows_is_not_asked_of_a_file(cli, saved: Path, args: list[object]) -> None:
    done = cli(*args, saved)

    assert done.code == 2
    assert "not a file" in done.stderr


def test_an_unknown_event_type_is_refused_with_a_suggestion(cli, saved: Path) -> None:
    done = cli("events", saved, "--type", "task_eror")

    assert done.code == 2
    assert "did you mean 'task_error'" in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(begin, folder: Path) -> None:
    line = (
        '{"type":"task_start","run_id":"r","seq":1,"at":"2026-01-01T00:00:00Z","step":"a","level":"info"}\n'
    )
    (folder / "long.jsonl").write_text(line * 50_000)

    process = begin("events", "long.jsonl")
    assert "task_start" in process.stdout.readline()
    process.stdout.close()

    assert process.wait(30) == 0
    assert process.stderr.read() == ""
