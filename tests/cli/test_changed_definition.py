"""`resume --definition current`: every change is noticed, and what is told is what happens."""

from __future__ import annotations

from pathlib import Path

CHILD = """
name: child
steps:
  - {id: say, uses: "py:tools:look", with: {value: 1}}
outputs: {value: "${ steps.say.output }"}
"""
LOOK = '{id: one, uses: "py:tools:look", with: {value: 0}}'
PARENT = f"""
    {LOOK}
    {{id: call, uses: "workflow:child", needs: [one]}}
"""
OUTPUT = 'outputs: {value: "${ steps.call.output.value }"}'


def told(messages: list[str]) -> dict[str, str]:
    """What `resume` says about each part of a definition, without the notes."""
    lines = (line.split("   (")[0] for line in messages if line.startswith("  "))
    return {line[2:10].strip(): line[11:] for line in lines}


def test_a_child_that_has_changed_is_a_change_of_the_step_that_calls_it(cli, write, folder: Path) -> None:
    (folder / "child.yaml").write_text(CHILD)
    run = cli("run", write(PARENT, OUTPUT), "--json").lines[-1]["run_id"]
    (folder / "child.yaml").write_text(CHILD.replace("value: 1", "value: 11"))

    done = cli("resume", run, "--definition", "current", "--yes", "--json")

    assert told(done.messages) == {"changed": "call", "kept": "one", "to run": "call"}
    assert done.lines[-1]["outputs"] == {"value": 11}


def test_an_agent_that_has_changed_is_a_change_of_the_step_that_asks_it(cli, write) -> None:
    flow = '{id: one, uses: "py:tools:fixable"}\n{id: ask, uses: "agent:writer", needs: [one]}'
    agent = "config: {agents: {writer: {prompt: Write.}}}"
    run = cli("run", write(flow, agent), "--json").lines[-1]["run_id"]
    write(flow, agent.replace("Write.", "Write well."))

    done = cli("resume", run, "--definition", "current")

    assert told(done.messages) == {"changed": "ask", "besides": "config", "to run": "one, ask"}


def test_settings_that_have_changed_hold_for_what_is_left_to_run(cli, write, folder: Path, ledger) -> None:
    flow = f'{LOOK}\n{{id: two, uses: "py:tools:fixable", needs: [one]}}'
    run = cli("run", write(flow), "--json").lines[-1]["run_id"]
    (folder / "fixed").touch()
    write(flow, 'outputs: {value: "${ steps.two.output }"}')

    done = cli("resume", run, "--from", "failed", "--definition", "current", "--yes", "--json")

    assert told(done.messages) == {"besides": "outputs", "kept": "one", "to run": "two"}
    assert done.lines[-1]["outputs"] == {"value": "whole"}
    assert ledger() == ["look 0"]


def test_from_a_step_on_nothing_after_it_is_said_to_be_kept(cli, write, ledger) -> None:
    flow = f'{LOOK}\n{{id: two, uses: "py:tools:look", with: {{value: 1}}, needs: [one]}}'
    run = cli("run", write(flow), "--json").lines[-1]["run_id"]
    write(flow.replace("value: 1}", "value: 2}"))

    done = cli("resume", run, "--from", "one", "--definition", "current", "--yes", "--json")

    assert told(done.messages) == {"changed": "two", "to run": "one, two"}
    assert ledger() == ["look 0", "look 1", "look 0", "look 2"]
