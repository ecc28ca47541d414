"""A store that may only be read can be looked at, and whoever would write to it is told what to do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from reading import until

FLOW = '{id: a, uses: "py:tools:echo", with: {value: 1}}'
SETPRIV = ("setpriv", "--inh-caps=-all", "--bounding-set=-all")
"""Root may write anywhere; root without capabilities may not."""

pytestmark = pytest.mark.skipif(
    os.geteuid() == 0 and not shutil.which("setpriv"), reason="root cannot be kept from writing without it"
)


@pytest.fixture
def humble(cli) -> Callable[..., Any]:
    """Run `penstock …` as someone whom the modes of files concern."""
    return partial(cli, before=SETPRIV if os.geteuid() == 0 else ())


@pytest.fixture
def locked(cli, folder: Path, write) -> Iterator[Path]:
    """A store with one run in it, in a folder where nothing can be written."""
    write(FLOW)
    assert cli("run", "flow.yaml", "-q").code == 0
    database = folder / ".penstock" / "penstock.db"
    places = {database: 0o444, database.parent: 0o555, folder: 0o555}
    before = {place: place.stat().st_mode for place in places}
    for place, mode in places.items():
        place.chmod(mode)
    yield database
    for place, mode in before.items():
        place.chmod(mode)


@pytest.mark.usefixtures("locked")
def test_a_store_that_may_only_be_read_can_be_looked_at(humble) -> None:
    assert [one["status"] for one in humble("runs", "--json").lines] == ["succeeded"]
    assert humble("show", "last", "--json").lines[0]["status"] == "succeeded"
    assert humble("events", "last", "--json").lines[-1]["type"] == "workflow_complete"
    assert humble("decide", "--list").code == 0


@pytest.mark.parametrize("args", [["run", "flow.yaml"], ["fork", "last", "--at", "1"]], ids=lambda a: a[0])
def test_whoever_would_write_to_it_is_told_what_to_do(humble, locked: Path, args: list[str]) -> None:
    before = locked.read_bytes()

    done = humble(*args)

    assert done.code == 2
    [message] = done.messages
    assert message.startswith(".penstock/penstock.db may only be read; allow writing to it")
    assert locked.read_bytes() == before


def test_a_store_that_cannot_be_made_says_why_and_what_to_do(humble, folder: Path, write) -> None:
    write(FLOW)
    mode = folder.stat().st_mode
    folder.chmod(0o555)
    try:
        done = humble("run", "flow.yaml")
    finally:
        folder.chmod(mode)

    assert done.code == 2
    assert done.messages == [
        ".penstock/penstock.db cannot be made: Permission denied; choose another file with --store"
    ]


def test_a_folder_in_place_of_a_store_is_said_to_be_one(cli, folder: Path, write) -> None:
    write(FLOW)
    (folder / "place").mkdir()

    done = cli("run", "flow.yaml", "--store", "sqlite:///place")

    assert done.code == 2
    assert done.messages == ["place is a folder; name a file in it with --store"]


def test_what_someone_else_is_writing_is_seen_by_whoever_may_only_look(
    humble, begin, folder: Path, write
) -> None:
    write('{id: a, uses: "py:tools:held"}')
    driver = begin("run", "flow.yaml", "--json")
    until(driver, "task_start")
    files = sorted((folder / ".penstock").glob("penstock.db*"))
    before = {place: place.stat().st_mode for place in (*files, folder / ".penstock")}
    for place in files:
        place.chmod(0o444)
    (folder / ".penstock").chmod(0o555)
    try:
        seen = humble("events", "last", "--json")
    finally:
        for place, mode in before.items():
            place.chmod(mode)
    (folder / "go").touch()

    assert "task_start" in seen.stdout
    driver.communicate(timeout=30)
    assert driver.returncode == 0
