"""`penstock tools`, as it is typed: who says what of a tool, what changed, and no secret."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from serving import FAULTS, VARIABLES

SECRETS = ("sk-verysecret-1", "sk-verysecret-2", "hunter2hunter2")


class Folder:
    """A folder with servers and rules, and a terminal in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.serve()

    def serve(self, *args: str, **others: Any) -> None:
        good = {
            "command": sys.executable,
            "args": ["-m", "penstock.testing.mcp_server", *args],
            "env": {"API_KEY": "${MY_KEY}", "OTHER": SECRETS[1]},
            "x-penstock": {"effects": {"append": "idempotent"}},
        }
        (self.path / ".mcp.json").write_text(json.dumps({"mcpServers": {"good": good, **others}}))

    def typed(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "penstock", *words],
            cwd=self.path,
            env={**VARIABLES, "MY_KEY": SECRETS[0], "HOME": str(self.path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    def rows(self, *words: str, key: str = "id") -> dict[str, dict[str, Any]]:
        found = self.typed(*words, "--json").stdout.splitlines()
        return {row[key]: row for row in map(json.loads, found)}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "penstock.toml").write_text(
        '[tools]\nask = ["good:p*"]\ndeny = ["http:*"]\n[tools.effects]\n"good:slow" = "write"\n'
    )
    return Folder(tmp_path)


def test_rule_and_effect_are_listed_with_who_says_so(folder: Folder) -> None:
    folder.serve(bad={"command": sys.executable, "args": ["-S", FAULTS, "bombs"]})
    rows = folder.rows("tools")

    def said(id: str) -> tuple[str, str, str, str]:
        row = rows[id]
        return row["state"], row["rule_from"], row["effect"], row["effect_from"]

    assert said("good:picture") == (
        "ask", "penstock.toml [tools] ask: good:p*", "read", "hints of the server",
    )  # fmt: skip
    assert said("http:get") == ("deny", "penstock.toml [tools] deny: http:*", "read", "built in")
    assert said("good:slow") == ("allow", "", "write", "penstock.toml [tools.effects] good:slow")
    assert said("good:append")[2:] == ("idempotent", ".mcp.json x-penstock.effects")
    assert said("good:sprout")[2:] == ("write", "nothing says otherwise")
    assert rows["bad:heavy"]["state"] == "unusable"
    assert "bytes" in rows["bad:heavy"]["trouble"]
    assert len(next(row for row in rows.values() if len(row["id"]) > 64)["wire_name"]) == 64


def test_no_secret_is_ever_shown(folder: Folder) -> None:
    url = f"http://user:{SECRETS[2]}@127.0.0.1:9/mcp?token={SECRETS[1]}"
    folder.serve(web={"url": url, "headers": {"Authorization": "Bearer ${MY_KEY}"}})

    shown = folder.typed("tools", "servers")
    rows = folder.typed("tools", "servers", "--json")

    everything = shown.stdout + shown.stderr + rows.stdout + rows.stderr
    assert not [secret for secret in SECRETS if secret in everything]
    good, web = map(json.loads, rows.stdout.splitlines())
    assert (good["file"], good["env"], good["state"]) == (".mcp.json", ["API_KEY", "OTHER"], "ready")
    assert (web["state"], web["headers"]) == ("failed", ["Authorization"])
    assert "API_KEY=***, OTHER=***" in shown.stdout


def test_a_changed_tool_is_shown_with_its_difference_and_approved(folder: Folder) -> None:
    folder.typed("tools", "show", "good:echo")
    folder.serve("--changed")

    listed = folder.rows("tools", "show", "good:echo")["good:echo"]
    refused = folder.typed("tools", "approve", "good:echo")
    approved = folder.typed("tools", "approve", "good:echo", "--yes")

    assert listed["state"] == "changed"
    assert '+ "description": "Say it back, slyly.",' in refused.stdout
    assert (refused.returncode, "nothing was approved" in refused.stderr) == (2, True)
    assert (approved.returncode, "is approved as it is now" in approved.stderr) == (0, True)
    assert "is what was approved" in folder.typed("tools", "approve", "good:echo", "--yes").stderr


def test_what_results_look_like_is_learned_kept_and_shown(folder: Folder) -> None:
    folder.serve(bad={"command": sys.executable, "args": ["-S", FAULTS]})
    (folder.path / "flow.yaml").write_text(
        "name: flow\nsteps:\n"
        "  - {id: a, uses: 'bad:echo', with: {text: '{\"n\": 1}'}}\n"
        '  - {id: b, uses: \'bad:echo\', with: {text: \'{"n": 2, "m": "x"}\'}}\n'
    )
    ran = folder.typed("run", "flow.yaml", "--quiet", "--store", "memory:")
    row = folder.rows("tools", "show", "bad:echo")["bad:echo"]

    assert ran.returncode == 0, ran.stderr
    assert row["learned_from"] == 2
    assert row["output_schema"]["properties"] == {"n": {"type": "integer"}, "m": {"type": "string"}}
    assert row["output_schema"]["required"] == ["n"]
    assert "result (learned from 2 results):" in folder.typed("tools", "show", "bad:echo").stdout


def test_a_tool_that_is_not_there_is_said_with_a_suggestion(folder: Folder) -> None:
    done = folder.typed("tools", "show", "good:ecko")

    assert done.returncode == 2
    assert "there is no tool good:ecko (did you mean 'good:echo'?)" in done.stderr
