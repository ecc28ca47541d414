"""One owner per run: who may drive it, who may not, and what becomes of one who was silent for too long."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from house import House, shut, until
from zygote import Victim, Zygote

import penstock as ps
from penstock.ids import RunId
from penstock.run.events import WorkflowResumed

SHORT = {"lease": 0.6, "beat": 0.1}
"""A lease that is over soon."""


@pytest.fixture
def house(zygote: Zygote, folder: Path) -> House:
    return House(zygote, folder)


@pytest.mark.timeout(120)
def test_of_two_processes_that_reach_for_a_run_at_once_exactly_one_drives_it(house: House) -> None:
    winners = []
    with shut(house.door):
        house.owner().kill()
        for number in range(100):
            gate = house.folder / f"gate-{number}"
            with shut(gate) as open_gate:
                racers = [house.racer(gate=str(gate)) for _ in range(2)]
                for racer in racers:
                    racer.hear("ready")
                open_gate()
                told = [next(racer.listen()) for racer in racers]
            assert [sorted(one) for one in told] in (
                [["driving", "run"], ["owned", "run"]],
                [["owned", "run"], ["driving", "run"]],
            ), told
            first = next(i for i, one in enumerate(told) if "driving" in one)
            assert told[1 - first]["owned"] in (told[first]["driving"], "another process")
            winners.append(told[first]["driving"])
            for racer in racers:
                racer.kill()

    taken_up = [event.reason for event in house.journal() if isinstance(event, WorkflowResumed)]
    assert taken_up == [f"taken up by {winner}" for winner in winners]


@pytest.mark.parametrize("host", ["", "elsewhere"])
def test_an_owner_that_lives_is_never_displaced_and_named_to_whoever_tries(house: House, host: str) -> None:
    with shut(house.door) as open_door:
        owner = house.owner(host=host, **SHORT)
        name = owner.said[-1]["driving"]
        first = house.expires()
        tries = 0
        while house.expires() < first + 3 * SHORT["lease"]:
            assert house.racer(**SHORT).hear("owned")["owned"] == name
            tries += 1
        open_door()

        assert owner.hear("ended")["ended"] == "succeeded"
    assert tries > 1
    assert not any(isinstance(event, WorkflowResumed) for event in house.journal())


def test_a_dead_owner_is_replaced_at_once_however_long_its_lease(house: House) -> None:
    with shut(house.door) as open_door:
        house.owner(lease=3600.0).kill()
        owner = house.owner()
        open_door()

        assert owner.hear("ended")["ended"] == "succeeded"


def test_a_dead_owner_on_another_machine_is_replaced_when_its_lease_is_over(house: House) -> None:
    with shut(house.door) as open_door:
        house.owner(host="elsewhere", **SHORT).kill()
        assert "on elsewhere" in house.racer().hear("owned")["owned"]
        until(lambda: house.expires() < time.time())
        owner = house.owner()
        open_door()

        assert owner.hear("ended")["ended"] == "succeeded"


@pytest.fixture(params=["", "elsewhere"], ids=["here", "elsewhere"])
def sleeper(house: House, request: pytest.FixtureRequest) -> Iterator[Victim]:
    """An owner, on this machine or another, that was stopped for longer than its lease."""
    with shut(house.door) as house.open_door:
        sleeper = house.owner(host=request.param, **SHORT)
        sleeper.signal(signal.SIGSTOP)
        until(lambda: house.expires() < time.time())
        yield sleeper
        sleeper.kill()


def test_a_stopped_owner_that_wakes_after_the_end_is_told_and_writes_nothing(
    house: House, sleeper: Victim
) -> None:
    owner = house.owner()
    house.open_door()
    owner.hear("ended")
    before = house.journal()
    sleeper.signal(signal.SIGCONT)

    assert "lost" in sleeper.hear("lost")
    assert house.journal() == before


def test_a_stopped_owner_that_wakes_while_another_drives_is_told_and_writes_nothing(
    house: House, sleeper: Victim
) -> None:
    owner = house.owner()
    before = house.journal()
    sleeper.signal(signal.SIGCONT)
    house.open_door()  # now both of them have something to write

    assert "lost" in sleeper.hear("lost")
    assert owner.hear("ended")["ended"] == "succeeded"
    after = house.journal()
    assert after[: len(before)] == before
    assert [event.seq for event in after] == list(range(1, len(after) + 1))
    assert [event.reason for event in after if isinstance(event, WorkflowResumed)] == [
        f"taken up by {owner.said[0]['driving']}"
    ]


def test_a_stopped_owner_is_told_even_if_the_new_one_has_not_written_anything_yet(
    house: House, sleeper: Victim
) -> None:
    async def take() -> None:
        async with ps.open(house.url) as penstock:
            await penstock.store.reopen(RunId(house.run))
            sleeper.signal(signal.SIGCONT)
            house.open_door()
            await asyncio.to_thread(sleeper.hear, "lost")

    before = house.journal()
    asyncio.run(take())

    assert house.journal() == before
