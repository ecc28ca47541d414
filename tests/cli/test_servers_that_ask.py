"""An MCP server asks in the middle of a call: its question is in the inbox, and answered from elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from reading import until
from test_asking_inline import MORE, Talk

ERAS = ("newer", "older")


@pytest.fixture
def asking(folder: Path):
    """A workflow that calls one tool of a server, which speaks one of the two protocols."""

    def write(tool: str, *, era: str = "newer", **more: object) -> Path:
        args = ["-m", "penstock.testing.mcp_server", *(["--older"] if era == "older" else [])]
        server = {"command": sys.executable, "args": args}
        (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"shop": server}}))
        step = {"id": "call", "uses": f"shop:{tool}", **more}
        file = folder / "asks.yaml"
        file.write_text(
            f"name: asks\nsteps:\n  - {json.dumps(step)}\noutputs: {{got: '${{ steps.call.output }}'}}\n"
        )
        return file

    return write


@pytest.mark.parametrize("era", ERAS)
def test_a_question_of_a_server_is_answered_from_another_process(asking, begin, cli, era: str) -> None:
    driver = begin("run", asking("paint", era=era, **{"with": {"what": "door"}}), "--json")
    asked = until(driver, "decision_required")

    listed = cli("decide", "--list", "--json").lines
    assert [(one["id"], one["kind"], one["step"]) for one in listed] == [(asked["decision"], "input", "call")]
    assert "Which colour?" in listed[0]["summary"]

    bad = cli("decide", asked["decision"], "respond", "--args", '{"colour": 3}')
    assert bad.code == 2
    assert "3 is not of type 'string'" in bad.stderr
    assert cli("decide", "--list", "--json").lines == listed

    good = cli("decide", asked["decision"], "respond", "--args", '{"colour": "red"}')
    out, _ = driver.communicate(timeout=30)

    assert (good.code, driver.returncode) == (0, 0)
    assert json.loads(out.splitlines()[-1])["outputs"] == {"got": "door is red"}


@pytest.mark.parametrize("era", ERAS)
def test_a_rejected_question_is_declined(asking, begin, cli, era: str) -> None:
    driver = begin("run", asking("pick", era=era), "--json")
    asked = until(driver, "decision_required")

    assert cli("reject", asked["decision"]).code == 0
    driver.communicate(timeout=30)

    assert driver.returncode == 1


def test_a_question_by_url_is_approved(asking, begin, cli) -> None:
    driver = begin("run", asking("log_in", era="older"), "--json")
    asked = until(driver, "decision_required")

    assert asked["call"]["url"] == "https://login.example/a?b=c"
    assert cli("approve", asked["decision"]).code == 0
    out, _ = driver.communicate(timeout=30)

    assert json.loads(out.splitlines()[-1])["outputs"] == {"got": "accept"}


@pytest.mark.parametrize("era", ERAS)
def test_a_question_dies_with_its_process_and_is_asked_anew(asking, begin, cli, era: str) -> None:
    driver = begin("run", asking("pick", era=era), "--json")
    asked = until(driver, "decision_required")
    driver.kill()
    driver.wait(timeout=10)

    late = cli("decide", asked["decision"], "respond", "--args", '{"colour": "red"}')
    assert late.code == 2
    assert "the process that asked has gone" in late.stderr

    again = begin("resume", asked["run_id"], "--json")
    assert until(again, "decision_made")["verb"] == "withdrawn"
    anew = until(again, "decision_required")
    assert anew["decision"] != asked["decision"]
    cli("decide", anew["decision"], "respond", "--args", '{"colour": "blue"}')
    out, _ = again.communicate(timeout=30)

    assert json.loads(out.splitlines()[-1])["outputs"] == {"got": "blue"}


def test_a_write_that_asked_when_its_process_died_is_asked_about_instead(asking, begin, cli) -> None:
    driver = begin("run", asking("paint", **{"with": {"what": "door"}}), "--json")
    asked = until(driver, "decision_required")
    driver.kill()
    driver.wait(timeout=10)

    outcome = cli("resume", asked["run_id"], "--json")

    assert outcome.code == 3
    assert [one["kind"] for one in outcome.lines[-1]["pending"]] == ["orphan"]


def test_a_person_at_the_terminal_fills_in_what_a_server_asks_for(asking, terminal) -> None:
    talk = Talk(terminal("run", asking("pick"), EDITOR=""))
    code, text = (
        talk.after(MORE, "a")
        .after("colour (any will do): ", "")
        .after(MORE, "a")
        .after("colour (any will do): ", "red")
        .end()
    )

    assert code == 0
    assert "'colour' is a required property" in text
    assert text.rstrip().endswith("got: red")
