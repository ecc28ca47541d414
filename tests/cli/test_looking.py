"""`validate`, `graph`, `schema`, help and version: everything that runs nothing."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import penstock

VERBS = (
    "run", "runs", "show", "events", "watch", "resume", "fork", "send", "decide", "approve", "reject",
    "abort", "lessons", "worker", "gc", "rotate-key", "validate", "graph", "schema",
)  # fmt: skip
FLOW = """
    {id: a, uses: "py:missing_on_purpose:echo"}
    {id: b, uses: "py:missing_on_purpose:echo", needs: [a]}
    {id: c, uses: "py:missing_on_purpose:echo", needs: [a, b]}
"""


def test_a_valid_file_is_summed_up_on_one_line_without_importing_anything(cli, write) -> None:
    flow = write(FLOW)

    done = cli("validate", flow)

    assert done.code == 0
    assert done.stderr == ""
    assert done.stdout.startswith(f"{flow}: flow is valid: 3 steps, 3 layers, 3 needs, sha256:")


def test_problems_of_all_files_are_lines_on_stderr(cli, write, folder: Path) -> None:
    good = write(FLOW, name="good")
    (folder / "bad.yaml").write_text('name: bad\nsteps:\n  - {id: a, uses: "py:m:f", need: [b]}\n')
    (folder / "worse.yaml").write_text("name: [\n")

    done = cli("validate", "bad.yaml", good, "worse.yaml")

    assert done.code == 2
    assert len(done.stdout.splitlines()) == 1
    assert done.messages[0].startswith("bad.yaml:3:29: steps.a")
    assert "did you mean needs" in done.messages[0]
    assert done.messages[1].startswith("worse.yaml:")


def test_validate_json_is_an_object_for_each_file(cli, write, folder: Path) -> None:
    good = write(FLOW, "config: {speculation: true}", name="good")
    (folder / "bad.yaml").write_text("name: bad\nsteps: []\nspeed: 3\n")

    done = cli("validate", good, "bad.yaml", "--json")

    first, second = done.lines
    assert done.code == 2
    assert done.stderr == ""
    assert (first["valid"], first["name"], first["steps"], first["layers"]) == (True, "good", 3, 3)
    assert first["notes"][0]["where"] == "config.speculation"
    assert first["notes"][0]["line"] == 2
    assert second["valid"] is False
    assert {"file", "line", "column", "where", "message", "hint"} == set(second["problems"][0])


def test_what_this_version_does_not_carry_out_is_noted_with_its_place(cli, write) -> None:
    flow = write('{id: a, uses: "py:m:f"}', "schedule: daily")

    done = cli("validate", flow)

    assert done.code == 0
    assert done.messages[0].startswith(f"note: {flow}:2:")
    assert "schedule" in done.messages[0]


def test_a_graph_is_drawn_as_tree_mermaid_and_svg(cli, write) -> None:
    flow = write(FLOW)

    tree, mermaid = cli("graph", flow), cli("graph", flow, "--format", "mermaid")
    svg = cli("graph", flow, "--format", "svg")

    assert (tree.code, mermaid.code, svg.code) == (0, 0, 0)
    assert all(name in tree.stdout for name in "abc")
    assert "\nflowchart " in mermaid.stdout
    assert ET.fromstring(svg.stdout).tag.endswith("svg")  # noqa: S314 - our own output


@pytest.mark.parametrize(("name", "start"), [("x.svg", "<"), ("x.mmd", "%% flow"), ("x.txt", "flow")])
def test_the_name_of_the_output_says_what_to_draw(cli, write, folder: Path, name: str, start: str) -> None:
    done = cli("graph", write(FLOW), "-o", name)

    assert (done.code, done.stdout) == (0, "")
    assert (folder / name).read_text().startswith(start)


def test_a_graph_as_data_has_needs_and_routes(cli, flow) -> None:
    done = cli("graph", flow("looped"), "--json")

    [told] = done.lines
    assert done.code == 0
    assert told["name"] == "looped"
    steps = {step["id"]: step for step in told["steps"]}
    assert steps["judge"]["needs"] == ["draft"]
    assert [(way["kind"], way["target"]) for way in steps["judge"]["routes"]] == [
        ("route", "done"), ("loop", "draft"), ("route", "done"),
    ]  # fmt: skip
    assert [step["layer"] for step in told["steps"]] == [0, 1, 2]
    assert cli("graph", "looped.yaml", "--json", "--format", "svg").code == 2


def test_a_graph_that_cannot_be_written_is_refused(cli, write) -> None:
    done = cli("graph", write(FLOW), "-o", "no/such/folder/x.svg")

    assert done.code == 2
    assert "cannot write no/such/folder/x.svg" in done.stderr


def test_the_schema_is_json(cli) -> None:
    assert json.loads(cli("schema").stdout)["$schema"].startswith("https://json-schema.org/")


def test_version_is_the_version_of_the_package(cli) -> None:
    assert cli("--version").stdout == f"penstock {penstock.__version__}\n"


def test_help_begins_with_examples_and_names_every_verb(cli) -> None:
    text = cli("--help").stdout

    assert text.index("Examples:") < text.index("Options:") < text.index("Commands:")
    assert all(f"\n  {verb} " in text for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(cli, verb: str) -> None:
    done = cli(verb, "--help")

    assert done.code == 0
    assert done.stdout.startswith(f"Usage: penstock {verb}")
