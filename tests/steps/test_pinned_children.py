"""A run keeps the versions of all that it calls, whatever becomes of their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import Unfinished
from penstock.testing import clock

PARENT = """
name: parent
steps:
  - {{id: first, uses: "py:beside:first"}}
  - {{id: call, uses: "workflow:{child}", needs: [first]}}
outputs: {{value: "${{ steps.call.output.value }}"}}
"""
CHILD = """
name: child
steps:
  - {{id: say, uses: "py:beside:say", with: {{value: {value}}}}}
outputs: {{value: "${{ steps.say.output }}"}}
"""
BETWEEN = """
name: between
steps:
  - {id: call, uses: "workflow:child"}
outputs: {value: "${ steps.call.output.value }"}
"""
BESIDE = """
import asyncio
from pathlib import Path

import penstock as ps

@ps.tool(effect="read")
async def first() -> None:
    if Path(__file__).with_name("held").exists():
        await asyncio.sleep(20)

@ps.tool(effect="read")
def say(value: int) -> int:
    return value
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "parent.yaml").write_text(PARENT.format(child="child"))
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "between.yaml").write_text(BETWEEN)
    child(tmp_path, 1)
    return tmp_path


def child(folder: Path, value: int) -> None:
    (folder / "child.yaml").write_text(CHILD.format(value=value))


async def began(folder: Path, store: str) -> str:
    """A run that was left behind before it called anything."""
    (folder / "held").touch()
    async with ps.open(store) as penstock:
        run = await penstock.start(str(folder / "parent.yaml"))
    with pytest.raises(Unfinished):
        await run.result()
    (folder / "held").unlink()
    return run.id


async def outputs(run: ps.RunHandle) -> dict[str, Any]:
    return (await run.result()).outputs


def test_a_child_whose_file_has_changed_is_read_again(files: Path) -> None:
    async def main() -> list[dict[str, Any]]:
        async with ps.open("memory:") as penstock:
            one = await outputs(await penstock.start(str(files / "parent.yaml")))
            child(files, 22)
            return [one, await outputs(await penstock.start(str(files / "parent.yaml")))]

    assert clock.run(main()) == [{"value": 1}, {"value": 22}]


def test_a_resumed_run_calls_the_child_it_began_with_beside_runs_that_call_a_newer_one(files: Path) -> None:
    store = f"sqlite:///{files}/runs.db"

    async def main() -> list[dict[str, Any]]:
        run = await began(files, store)
        child(files, 22)
        async with ps.open(store) as penstock:
            newer = await outputs(await penstock.start(str(files / "parent.yaml")))
            return [newer, await outputs(await penstock.resume(run))]

    assert clock.run(main()) == [{"value": 22}, {"value": 1}]


def test_a_childs_child_is_pinned_too_and_its_functions_are_found_from_any_folder(
    files: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "parent.yaml").write_text(PARENT.format(child="between"))
    store = f"sqlite:///{files}/runs.db"

    async def main() -> dict[str, Any]:
        run = await began(files, store)
        child(files, 22)
        monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
        async with ps.open(store) as penstock:
            return await outputs(await penstock.resume(run))

    assert clock.run(main()) == {"value": 1}


def test_children_of_the_same_name_in_two_folders_are_told_apart(files: Path) -> None:
    own = '  - {id: own, uses: "workflow:child"}'
    parent = PARENT.format(child="sub/between").replace("outputs:", f"{own}\noutputs:")
    (files / "parent.yaml").write_text(parent)
    sub = files / "sub"
    sub.mkdir()
    (sub / "beside.py").write_text(BESIDE)
    (sub / "between.yaml").write_text(BETWEEN)
    child(sub, 7)
    store = f"sqlite:///{files}/runs.db"

    async def main() -> dict[str, Any]:
        run = await began(files, store)
        async with ps.open(store) as penstock:
            return await outputs(await penstock.resume(run))

    assert clock.run(main()) == {"value": 7}


def test_a_run_under_way_keeps_a_childs_child_whose_file_changes(files: Path) -> None:
    (files / "parent.yaml").write_text(PARENT.format(child="between"))
    (files / "held").touch()

    async def main() -> dict[str, Any]:
        async with ps.open("memory:") as penstock:
            run = await penstock.start(str(files / "parent.yaml"))
            child(files, 22)
            return await outputs(run)

    assert clock.run(main()) == {"value": 1}
