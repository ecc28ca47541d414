"""Runs that are killed, really killed, at every moment there is: nothing is lost, nothing is done twice.

The long version of this is `chaos.py`.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import wilds
from campaign import Campaign, Stop
from zygote import Fresh, Zygote

SEEDS = (9, 20, 28, 32, 36, 53)
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


def test_a_process_that_shares_nothing_with_the_one_that_was_killed_takes_the_run_up(folder: Path) -> None:
    campaign = Campaign(Fresh(), folder, seed=16)
    campaign.case("fresh", [Stop(campaign.moments // 2), Stop(3), Stop(5)])

    assert campaign.tally.violations == []
    assert campaign.tally.kills == 3
