"""The examples that adapt: each runs as its README says, offline and without a key."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pages
import pytest

import penstock

NAMES = ("author-critic", "build-gate", "deploy-approval", "discover-xml")
EXAMPLES = pages.ROOT / "examples"


class Outcome(NamedTuple):
    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.stdout.splitlines()]


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., Outcome]:
    """Run `penstock …` in an empty folder, from which the examples can be seen."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    source = str(Path(penstock.__file__).parents[1])

    def run(*args: str) -> Outcome:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**kept, "PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"},
            timeout=50,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


def file(name: str) -> str:
    return f"examples/{name}/{name}.yaml"


def of_type(done: Outcome, kind: str) -> list[dict[str, Any]]:
    return [line for line in done.lines if line.get("type") == kind]


def test_the_author_writes_until_the_critic_is_content(cli) -> None:
    done = cli("run", file("author-critic"), "--json")

    assert done.code == 0, done.stderr
    end = done.lines[-1]
    assert end["status"] == "succeeded"
    assert (end["outputs"]["rounds"], end["outputs"]["verdict"]) == (4, "VERIFIED")
    assert end["outputs"]["text"].endswith("10.5 metres wide.")
    routes = [(route["target"], route["rule"]) for route in of_type(done, "route_decision")]
    assert routes == [("author", "loop")] * 3 + [("publish", "condition")]
    assert end["steps"]["author"]["iterations"] == 4


def test_xml_that_nobody_expected_is_parsed_and_reported(cli) -> None:
    done = cli("run", file("discover-xml"), "--json")

    assert done.code == 0, done.stderr
    [change] = of_type(done, "dag_changed")
    assert ([step["id"] for step in change["added"]], change["by"]) == (["parse_xml"], "policy")
    files = ["orders-1.json", "orders-2.json", "orders-3.xml"]
    assert done.lines[-1]["outputs"]["report"] == {"files": files, "total": 97}


def test_without_xml_nothing_is_added(cli, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.json").write_text('[{"item": "valve", "count": 2}]')

    done = cli("run", file("discover-xml"), "-i", "folder=plain", "--json")

    assert done.code == 0, done.stderr
    assert of_type(done, "dag_changed") == []
    assert done.lines[-1]["outputs"]["report"] == {"files": ["a.json"], "total": 2}


def test_the_build_passes_its_gate_at_the_third_attempt(cli, tmp_path: Path) -> None:
    done = cli("run", file("build-gate"), "-i", f"folder={tmp_path / 'out'}", "--json")

    assert done.code == 0, done.stderr
    assert [gate.get("passed", False) for gate in of_type(done, "gate_result")] == [False, False, True]
    assert done.lines[-1]["steps"]["build"]["attempts"] == 3
    assert done.lines[-1]["outputs"] == {"message": "built 17 bytes at the attempt number 3"}
    assert (tmp_path / "out" / "app.bin").read_bytes() == b"the whole program"


def test_the_deploy_waits_and_is_approved_with_another_argument(cli) -> None:
    waits = cli("run", file("deploy-approval"), "--json")
    [asked] = waits.lines[-1]["pending"]
    done = cli("approve", asked["id"], "--args", '{"share": 10}', "--message", "a tenth first", "--json")
    shown = cli("show", "last").stdout

    assert waits.code == 3
    assert (asked["kind"], asked["step"]) == ("approval", "deploy")
    assert done.code == 0, done.stderr
    assert done.lines[-1]["outputs"] == {"message": "app-1.4.2.tar.gz is on 10 % of production"}
    assert re.search(r'deploy approval: edit \{"share":10\} by \S+: a tenth first', shown)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_readme_says_can_be_typed(cli, name: str) -> None:
    commands = re.findall(r"^penstock (.*)$", (EXAMPLES / name / "README.md").read_text(), re.MULTILINE)

    codes = [cli(*shlex.split(command)).code for command in commands]

    assert codes == ([3, 0, 0] if name == "deploy-approval" else [0, 0])


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_listed_where_people_look(name: str) -> None:
    for page in ("README.md", "docs/index.md"):
        assert f"examples/{name}/" in (pages.ROOT / page).read_text(encoding="utf-8")
