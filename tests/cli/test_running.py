"""What `penstock run` prints, where, and which code it leaves."""

from __future__ import annotations

import json

import pytest

SUMMARY = ["run_id", "status", "outputs", "steps", "pending", "duration_ms"]

TWO = """
    {id: first, uses: "py:tools:echo", with: {value: "${ inputs.word }"}}
    {id: second, uses: "py:tools:echo", with: {value: "${ steps.first.output + '!' }"}}
"""
TWO_REST = """
inputs: {word: {type: string, default: hello}, count: {type: integer, default: 1}}
outputs: {said: "${ steps.second.output }", count: "${ inputs.count }"}
"""


def test_outputs_are_json_on_stdout_and_progress_is_on_stderr(cli, write) -> None:
    done = cli("run", write(TWO, TWO_REST))

    assert done.code == 0
    assert json.loads(done.stdout) == {"said": "hello!", "count": 1}
    assert done.messages[0].startswith("flow: run ")
    words = [line.split()[1:3] for line in done.messages[3:-1]]
    assert words == [["start", "first"], ["done", "first"], ["start", "second"], ["done", "second"]]
    assert done.messages[-1].startswith("flow succeeded in ")
    assert "2 succeeded" in done.messages[-1]


def test_json_prints_events_in_order_and_ends_with_one_summary(cli, write) -> None:
    done = cli("run", write(TWO, TWO_REST), "--json")

    assert done.code == 0
    assert done.stderr == ""
    *events, last = done.lines
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["type"] for event in events][::-1][0] == "workflow_complete"
    assert {event["run_id"] for event in events} == {last["run_id"]}
    assert list(last) == SUMMARY
    assert last["status"] == "succeeded"
    assert last["outputs"] == {"said": "hello!", "count": 1}
    assert last["steps"]["second"] == {"status": "succeeded", "attempts": 1, "iterations": 1, "reason": ""}
    assert last["pending"] == []
    assert last["duration_ms"] >= 0


def test_quiet_leaves_only_the_outputs(cli, write) -> None:
    done = cli("run", write(TWO, TWO_REST), "--quiet")

    assert json.loads(done.stdout)["said"] == "hello!"
    assert done.stderr == ""


def test_inputs_from_the_command_line_are_read_by_their_types_and_win_over_the_file(cli, write) -> None:
    flow = write(TWO, TWO_REST)

    done = cli("run", flow, "-q", "-i", "count=7", "--inputs", "-", stdin='{"word": "hi", "count": 3}')

    assert json.loads(done.stdout) == {"said": "hi!", "count": 7}


def test_a_value_may_hold_equals_signs(cli, write) -> None:
    done = cli("run", write(TWO, TWO_REST), "-q", "-i", "word=a=b")

    assert json.loads(done.stdout)["said"] == "a=b!"


def test_a_failed_run_leaves_1_and_says_which_step_and_why(cli, write) -> None:
    flow = write("""
        {id: bad, uses: "py:tools:boom"}
        {id: after, uses: "py:tools:echo", needs: [bad], with: {value: 1}}
    """)

    done = cli("run", flow)

    assert done.code == 1
    assert done.stdout == ""
    assert any("failed" in line and "bad: ValueError: no good" in line for line in done.messages)
    assert any("skipped" in line and "after" in line for line in done.messages)
    assert done.messages[-2] == "step bad failed: ValueError: no good"


def test_a_run_says_how_to_watch_it_and_how_to_go_on(cli, write) -> None:
    flow = write('{id: bad, uses: "py:tools:boom"}')

    durable, elsewhere, gone = (
        cli("run", flow),
        cli("run", flow, "--store=sqlite:///a b.db"),
        cli("run", flow, "--store=memory:"),
    )

    run = durable.messages[0].split()[2].rstrip(",")
    hints = [line.strip().partition("   ")[0] for line in (*durable.messages[1:3], durable.messages[-1])]
    assert hints == [
        f"penstock watch {run}",
        f"penstock resume {run}",
        f"penstock resume {run} --from failed",
    ]
    assert "--store 'sqlite:///a b.db'" in elsewhere.messages[1]
    assert "penstock" not in gone.stderr


def test_a_quiet_run_that_fails_still_says_why(cli, write) -> None:
    done = cli("run", write('{id: bad, uses: "py:tools:boom"}'), "--quiet")

    assert done.code == 1
    assert done.messages == ["flow failed: step bad failed: ValueError: no good"]


def test_a_run_that_produced_only_some_outputs_leaves_4(cli, write) -> None:
    steps = """
        {id: good, uses: "py:tools:echo", with: {value: 1}}
        {id: bad, uses: "py:tools:boom"}
    """
    flow = write(steps, 'outputs: {one: "${ steps.good.output }", two: "${ steps.bad.output }"}')

    done = cli("run", flow, "--json")

    assert done.code == 4
    assert done.lines[-1]["status"] == "partial"
    assert done.lines[-1]["outputs"]["one"] == 1


@pytest.mark.parametrize("limit", ["--timeout=50ms", "config: {timeout: 50ms}"])
def test_a_run_ended_by_its_timeout_leaves_124(cli, write, limit: str) -> None:
    steps = """
        {id: endless, uses: "py:tools:forever"}
        {id: after, uses: "py:tools:echo", needs: [endless], with: {value: 1}}
    """
    flow = write(steps, "" if limit.startswith("-") else limit)

    done = cli("run", flow, "--json", *([limit] if limit.startswith("-") else []))

    assert done.code == 124
    last = done.lines[-1]
    assert last["steps"]["endless"]["status"] == "failed"
    assert "timed out after 0.05 s" in last["steps"]["after"]["reason"]


def test_a_timeout_given_on_the_command_line_is_part_of_the_version_that_the_run_is_pinned_to(
    cli, write
) -> None:
    flow = write(TWO, TWO_REST)

    own, limited = (cli("run", flow, "--json", *more).lines[0]["hash"] for more in ([], ["--timeout", "5m"]))

    assert own in cli("validate", flow).stdout
    assert limited != own


def test_retries_maps_and_skips_are_in_the_lines_and_in_the_summary(cli, write) -> None:
    flow = write("""
        {id: again, uses: "py:tools:second_time", retry: {max_attempts: 2, backoff: 1ms}}
        {id: each, uses: "py:tools:echo", for_each: "[1, 2]", with: {value: "${ item }"}}
        {id: never, uses: "py:tools:boom", when: "1 > 2"}
    """)

    plain, data = cli("run", flow), cli("run", flow, "--json")

    assert plain.code == data.code == 0
    assert any(
        "retry" in line and "again: ConnectionError: busy (again in" in line for line in plain.messages
    )
    assert any("done" in line and "each[1]" in line for line in plain.messages)
    assert any("skipped" in line and "never: when is false" in line for line in plain.messages)
    steps = data.lines[-1]["steps"]
    assert steps["again"]["attempts"] == 2
    assert steps["never"] == {
        "status": "skipped",
        "attempts": 0,
        "iterations": 1,
        "reason": "when is false: 1 > 2",
    }


def test_what_a_step_prints_never_mixes_with_the_data(cli, write) -> None:
    done = cli("run", write('{id: loud, uses: "py:tools:noisy"}'), "--json")

    assert done.code == 0
    assert done.lines[-1]["status"] == "succeeded"
    assert sorted(done.messages) == ["printed by a child process", "printed by a step"]


def test_a_step_that_leaves_the_process_is_never_a_success(cli, write) -> None:
    done = cli("run", write('{id: quitter, uses: "py:tools:leave", with: {code: 0}}'))

    assert done.code == 1
    assert "Traceback" not in done.stderr


def test_a_thread_that_cannot_be_stopped_does_not_hold_up_the_exit(cli, write) -> None:
    done = cli("run", write('{id: stuck, uses: "py:tools:stuck", timeout: 50ms}'), "--json")

    assert done.code == 1
    assert "timed out" in done.lines[-1]["steps"]["stuck"]["reason"]


def test_text_that_is_not_unicode_still_makes_whole_lines(cli, write, folder) -> None:
    (folder / "bytes_names.py").write_text("def name():\n    raise OSError('caf\\udce9')\n")

    done = cli("run", write('{id: odd, uses: "py:bytes_names:name"}'), "--json")

    assert done.code == 1
    assert done.lines[-1]["steps"]["odd"]["reason"].startswith("OSError: caf")


def test_control_characters_in_errors_do_not_reach_the_terminal(cli, write) -> None:
    flow = write(r'{id: bad, uses: "py:tools:boom", with: {message: "\e[31mred\e]0;title\a"}}')

    assert "\x1b" not in cli("run", flow).stderr


def test_dry_run_finds_everything_and_runs_nothing(cli, write, folder) -> None:
    mark = folder / "ran"
    flow = write(f'{{id: touch, uses: "py:tools:touch", with: {{path: "{mark}"}}}}')

    done = cli("run", flow, "--dry-run")
    data = cli("run", flow, "--dry-run", "--json")

    assert done.code == data.code == 0
    assert "touch" in done.stdout
    assert done.messages == ["Everything was found; nothing was run."]
    assert data.lines[0]["steps"] == [{"id": "touch", "uses": "py:tools:touch", "layer": 0, "needs": []}]
    assert not mark.exists()


def test_a_reader_that_leaves_changes_nothing_about_the_run(begin, write, folder) -> None:
    mark = folder / "ran"
    flow = write(f"""
        {{id: first, uses: "py:tools:echo", with: {{value: 1}}}}
        {{id: last, uses: "py:tools:touch", needs: [first], with: {{path: "{mark}"}}}}
    """)

    process = begin("run", flow, "--json")
    process.stdout.close()

    assert process.wait(30) == 0
    assert process.stderr.read() == ""
    assert mark.read_text() == "ran"


def test_a_run_that_could_not_be_saved_is_not_a_success(cli, write) -> None:
    done = cli("run", write(TWO, TWO_REST), "--save", "/dev/full")

    assert done.code == 1
    assert "/dev/full: [Errno 28] No space left on device" in done.stderr


def test_ten_thousand_events_and_more_arrive_without_a_gap(cli, write) -> None:
    flow = write(
        '{id: many, uses: "py:tools:quick", for_each: "inputs.list", with: {value: "${ item }"}}',
        "inputs: {list: {type: array}}\nconfig: {max_parallel: 10000}",
    )
    (flow.parent / "tools.py").write_text("async def quick(value):\n    return value\n")

    done = cli("run", flow, "--json", "--inputs", "-", stdin=json.dumps({"list": list(range(6000))}))

    *events, last = done.lines
    assert last["status"] == "succeeded"
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert len(events) > 12_000
