"""Whatever is wrong with what the user gives: code 2, one clear message, nothing executed."""

from __future__ import annotations

from pathlib import Path

import pytest

RUNS = 'name: flow\nsteps:\n  - {id: mark, uses: "py:tools:touch", with: {path: ran}}\n'
"""A workflow that leaves a mark as soon as anything is executed."""

DEEP = "[" * 200 + "]" * 200

FILES = {
    "wrong YAML": (RUNS + "  - {id: b, uses: [unclosed\n", "flow.yaml:"),
    "a tab": (RUNS + "\tconfig: {}\n", "flow.yaml:4:"),
    "an unknown key": (RUNS.replace("with:", "depends_on: [], with:"), "needs"),
    "an unknown top key": (RUNS + "inputz: {}\n", "did you mean inputs"),
    "a wrong type": (RUNS + "config: {max_parallel: many}\n", "max_parallel"),
    "no steps": ("name: flow\n", "steps"),
    "an empty file": ("", "flow.yaml"),
    "a missing input": (RUNS + "inputs: {day: {type: string}}\n", "inputs.day"),
    "an unknown function": (RUNS + '  - {id: b, uses: "py:tools:tuoch"}\n', "did you mean 'touch'"),
    "an unknown module": (RUNS + '  - {id: b, uses: "py:nowhere:touch"}\n', "nowhere"),
    "an unknown tool": (RUNS + '  - {id: b, uses: "web:read"}\n', "unknown tool 'web:read'"),
    "an unknown step": (RUNS + '  - {id: b, uses: "py:tools:echo", needs: [marc]}\n', "did you mean 'mark'"),
    "an unknown step in an expression": (
        RUNS + '  - {id: b, uses: "py:tools:echo", with: {value: "${ steps.marc.output }"}}\n',
        "marc",
    ),
    "a need of itself": (RUNS + '  - {id: b, uses: "py:tools:echo", needs: [b]}\n', "itself"),
    "an id used twice": (RUNS + '  - {id: mark, uses: "py:tools:echo"}\n', "mark"),
    "needs in a circle": (
        RUNS + '  - {id: b, uses: "py:m:f", needs: [c]}\n  - {id: c, uses: "py:m:f", needs: [b]}\n',
        "b -> c -> b",
    ),
    "a type error in CEL": (RUNS.replace("with:", "when: \"1 + 'a' == 2\", with:"), "steps.mark.when"),
    "max_parallel: 0": (RUNS + "config: {max_parallel: 0}\n", "config.max_parallel"),
    "200 levels": (RUNS + f'  - {{id: b, uses: "py:tools:echo", with: {{value: {DEEP}}}}}\n', "deep"),
    "a wrong argument": (RUNS.replace("{path: ran}", "{path: ran, mode: x}"), "takes no argument 'mode'"),
    "something for later": (RUNS + "schedule: daily\n", "this version cannot run it yet"),
}


@pytest.mark.parametrize(("text", "part"), FILES.values(), ids=FILES)
def test_a_bad_file_is_refused_before_anything_runs(cli, folder: Path, text: str, part: str) -> None:
    (folder / "flow.yaml").write_text(text)

    done = cli("run", "flow.yaml")

    assert done.code == 2
    assert done.stdout == ""
    assert len(done.messages) == 1
    assert part in done.messages[0]
    assert not (folder / "ran").exists()


def test_a_file_of_50_megabytes_is_refused_unread(cli, folder: Path) -> None:
    with (folder / "flow.yaml").open("w") as file:
        file.write(RUNS)
        file.write(("# " + "x" * 1022 + "\n") * 51_200)

    done = cli("run", "flow.yaml")

    assert done.code == 2
    assert len(done.messages) == 1
    assert "MB" in done.messages[0]
    assert not (folder / "ran").exists()


COMMANDS = {
    "no such file": (["nothing.yaml"], "nothing.yaml: cannot read the file: No such file or directory"),
    "a folder": (["."], "cannot read the file"),
    "an unknown input": (["flow.yaml", "-i", "x=1"], "the workflow has no input 'x'"),
    "an input of the wrong type": (["typed.yaml", "-i", "n=two"], "inputs.n"),
    "inputs that are not JSON": (["flow.yaml", "--inputs", "flow.yaml"], "the inputs are not JSON"),
    "inputs that are no object": (["flow.yaml", "--inputs", "list.json"], "must be a JSON object"),
    "inputs that are not there": (["flow.yaml", "--inputs", "gone.json"], "cannot read the inputs"),
    "an unknown kind of store": (["flow.yaml", "--store", "carrier-pigeon:coop"], "carrier-pigeon:coop"),
}


@pytest.mark.parametrize(("args", "part"), COMMANDS.values(), ids=COMMANDS)
def test_a_bad_request_is_refused_before_anything_runs(cli, folder: Path, args: list[str], part: str) -> None:
    (folder / "flow.yaml").write_text(RUNS)
    (folder / "typed.yaml").write_text(RUNS + "inputs: {n: {type: integer}}\n")
    (folder / "list.json").write_text("[1]")

    done = cli("run", *args)

    assert done.code == 2
    assert done.stdout == ""
    assert len(done.messages) == 1
    assert part in done.messages[0]
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["-i", "x"], "'x' is not KEY=VALUE"),
        (["-i", "x=1", "-i", "x=2"], "'x' is given twice"),
        (["--timeout", "soon"], "'soon' is not a length of time"),
        (["--timeout", "0s"], "'0s' is not a length of time"),
        (["--save", "no/such/folder/run.jsonl"], "cannot write no/such/folder/run.jsonl"),
        (["--frobnicate"], "--frobnicate"),
    ],
)
def test_wrong_usage_is_refused_before_anything_runs(cli, folder: Path, args: list[str], part: str) -> None:
    (folder / "flow.yaml").write_text(RUNS)

    done = cli("run", "flow.yaml", *args)

    assert done.code == 2
    assert done.stdout == ""
    assert part in done.stderr
    assert not (folder / "ran").exists()


def test_every_problem_is_told_at_once_with_its_place(cli, folder: Path) -> None:
    (folder / "flow.yaml").write_text(RUNS + "config: {max_parallel: 0}\ninputz: {}\n")

    done = cli("run", "flow.yaml")

    assert [line.split(" ")[0] for line in done.messages] == ["flow.yaml:4:24:", "flow.yaml:5:1:"]


def test_a_fault_of_penstock_is_called_one_and_debug_shows_the_traceback(cli, folder: Path) -> None:
    (folder / "flow.yaml").write_text(RUNS)
    broken = folder / "broken"
    broken.mkdir()
    (broken / "msgspec.py").write_text("raise RuntimeError('out of order')")
    import penstock

    path = f"{broken}:{Path(penstock.__file__).parents[1]}"

    done = cli("run", "flow.yaml", PYTHONPATH=path)
    debug = cli("run", "flow.yaml", PYTHONPATH=path, PENSTOCK_DEBUG="1")

    assert done.code == debug.code == 1
    assert done.messages == [
        "penstock failed: RuntimeError: out of order",
        "This is a fault of Penstock. PENSTOCK_DEBUG=1 shows the traceback.",
    ]
    assert "Traceback" in debug.stderr
