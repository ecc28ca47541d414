"""When storage fails, runs wait for it, say why, and lose nothing that anyone was told."""

from __future__ import annotations

import contextlib
import os
import resource
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest
from house import House, shut, until
from zygote import Victim, Zygote

from penstock.run.events import WorkflowPaused, WorkflowResumed

NOBODY = 65534


class Trouble(Protocol):
    """Something that keeps a process from writing, and its end."""

    house: House

    def begin(self, racer: Victim) -> None: ...

    def end(self, racer: Victim) -> None: ...


class FullDisk:
    """A small disk of its own, filled to the last byte."""

    def __init__(self, zygote: Zygote, folder: Path, disk: Path) -> None:
        self.house = House(zygote, folder, store=disk)
        self._filler = disk / "filler"

    def begin(self, racer: Victim) -> None:
        del racer
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(512))

    def end(self, racer: Victim) -> None:
        del racer
        self._filler.unlink()


class NoLargerFiles:
    """A limit on the size of files, below everything there is."""

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        self.house = House(zygote, folder)

    def begin(self, racer: Victim) -> None:
        resource.prlimit(racer.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    def end(self, racer: Victim) -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(racer.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


@pytest.fixture
def disk(folder: Path) -> Iterator[Path]:
    """A disk of one megabyte, where we may have one."""
    place = folder / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a disk of our own needs the right to mount one")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture(params=["full disk", "no larger files"])
def trouble(request: pytest.FixtureRequest, zygote: Zygote, folder: Path) -> Trouble:
    if request.param == "full disk":
        return FullDisk(zygote, folder, request.getfixturevalue("disk"))
    return NoLargerFiles(zygote, folder)


def hear_status(racer: Victim, status: str) -> str:
    """Wait until a process says that its run stands like this; the reason it gives."""
    for line in racer.listen():
        if line.get("status") == status:
            reason: str = line["reason"]
            return reason
    raise AssertionError(f"never {status}: {racer.said[-3:]} {racer.errors()}")


def test_a_run_pauses_with_the_reason_and_goes_on_when_storage_is_back(trouble: Trouble) -> None:
    house = trouble.house
    with shut(house.door) as open_door:
        racer = house.owner()
        trouble.begin(racer)
        open_door()

        assert hear_status(racer, "paused").startswith("storage: ")
        assert house.done() == []  # what writes has not begun
        trouble.end(racer)
        assert racer.hear("ended")["ended"] == "succeeded"
        racer.kill()

    assert house.violations(racer) == []
    pauses = [event.by for event in house.journal() if isinstance(event, WorkflowPaused | WorkflowResumed)]
    assert pauses == ["storage", "storage"]
    assert sorted(house.done()) == ["last", "much0", "much1", "much2", "much3", "send"]


def test_a_run_whose_end_cannot_be_written_ends_when_it_can(trouble: Trouble) -> None:
    house = trouble.house
    with shut(house.door) as open_door:
        racer = house.owner(short=True)
        trouble.begin(racer)
        open_door()
        hear_status(racer, "succeeded")
        assert racer.survives(0.6)
        assert not any("ended" in line for line in racer.said)  # it knows, and tells nobody
        trouble.end(racer)

        assert racer.hear("ended")["ended"] == "succeeded"
        racer.kill()
    assert house.violations(racer) == []


def test_a_process_that_dies_while_storage_fails_has_lost_nothing_it_announced(trouble: Trouble) -> None:
    house = trouble.house
    with shut(house.door) as open_door:
        dead = house.owner()
        trouble.begin(dead)
        open_door()
        hear_status(dead, "paused")
        dead.kill()
        trouble.end(dead)
        racer = house.owner()
        racer.hear("ended")
        racer.kill()

    assert house.violations(dead, racer) == []
    assert sorted(house.done()) == ["last", "much0", "much1", "much2", "much3", "send"]


def test_a_run_that_cannot_even_begin_is_an_error_that_says_why(
    zygote: Zygote, folder: Path, disk: Path
) -> None:
    trouble = FullDisk(zygote, folder, disk)
    house = trouble.house
    with shut(house.door):
        first = house.owner()  # the file is there, and in order
        trouble.begin(first)
        house.run = ""
        second = house.racer()

        told = second.hear("error")
        assert told["error"] == "StoreError"
        assert "full" in told["message"]
        trouble.end(first)
        assert "driving" in house.racer().hear("driving")


@pytest.fixture
def keeper(folder: Path) -> int:
    """A user who may be refused things; only root may become another."""
    folder.chmod(0o777)
    return NOBODY if os.geteuid() == 0 else 0


def test_a_run_goes_on_when_its_folder_is_closed_behind_it(zygote: Zygote, folder: Path, keeper: int) -> None:
    place = folder / "closed"
    place.mkdir()
    place.chmod(0o777)
    house = House(zygote, folder, store=place)
    with shut(house.door) as open_door:
        racer = house.owner(user=keeper)
        place.chmod(0)
        open_door()

        assert racer.hear("ended")["ended"] == "succeeded"
        racer.kill()
        place.chmod(0o777)
    assert house.violations(racer) == []


@pytest.mark.parametrize("mode", [0o000, 0o555], ids=["closed", "read-only"])
def test_a_folder_where_nothing_may_be_written_is_an_error_that_names_it(
    zygote: Zygote, folder: Path, keeper: int, mode: int
) -> None:
    place = folder / "closed"
    place.mkdir()
    place.chmod(mode)
    house = House(zygote, folder, store=place)

    told = house.racer(user=keeper).hear("error")
    assert told["error"] == "StoreError"
    assert str(place) in told["message"]
    place.chmod(0o777)


def test_a_file_that_may_not_be_written_is_an_error_that_names_it(
    zygote: Zygote, folder: Path, keeper: int
) -> None:
    house = House(zygote, folder)
    with shut(house.door):
        house.owner().kill()
        house.run = ""
        for file in folder.glob("store.db*"):
            file.chmod(0o444)

        told = house.racer(user=keeper).hear("error")
        assert told["error"] == "StoreError"
        assert str(house.file) in told["message"]


def test_a_database_that_another_process_keeps_locked_is_waited_for(zygote: Zygote, folder: Path) -> None:
    house = House(zygote, folder)
    with shut(house.door) as open_door, closing(sqlite3.connect(house.file, isolation_level=None)) as db:
        racer = house.owner()
        run = house.run
        db.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        open_door()
        house.run = ""
        second = house.racer()  # opens, begins a run and reads while nothing can be written
        until(lambda: time.monotonic() > began + 6.0)  # longer than SQLite itself waits
        db.execute("COMMIT")

        assert racer.hear("ended")["ended"] == "succeeded"
        assert second.hear("ended")["ended"] == "succeeded"
        for each, id in ((racer, run), (second, second.said[0]["run"])):
            each.kill()
            house.run = id
            assert house.violations(each) == []
            assert not any("error" in line for line in each.said)
            assert b"locked" not in repr(each.said).encode()


def test_processes_that_make_the_same_new_database_at_once_all_succeed(zygote: Zygote, folder: Path) -> None:
    for number in range(15):
        place = folder / f"new-{number}"
        place.mkdir()
        house = House(zygote, folder, store=place)
        house.door.touch()
        gate = folder / f"gate-{number}"
        with shut(gate) as open_gate:
            racers = [house.racer(gate=str(gate), gate_before_opening=True) for _ in range(4)]
            for racer in racers:
                racer.hear("ready")
            open_gate()
            for racer in racers:
                assert racer.hear("ended")["ended"] == "succeeded", racer.said
                racer.kill()
