"""What runs ask, and how they stand, for those who drive none of them: read from the store."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from penstock.engines.base import Result, Runs, result_of
from penstock.ids import RunId
from penstock.run.events import DecisionRequired
from penstock.run.state import Run
from penstock.store.base import RunRecord
from penstock.store.listing import EVERY, FINAL, descendants, root_of

OPEN: Final = ("waiting", "running", "paused")
"""How a run may stand that asks something."""


async def every(runs: Runs) -> list[tuple[RunRecord, DecisionRequired]]:
    """Every open decision there is, of the oldest run first."""
    asked: list[tuple[RunRecord, DecisionRequired]] = []
    for status in OPEN:
        for one in await runs.store.runs(status=status, limit=EVERY):
            if (await root_of(runs.store, one)).status not in FINAL:
                asked += [(one, each) for each in (await state_of(runs, one.run)).decisions.values()]
    return sorted(asked, key=lambda pair: (pair[0].run, pair[1].seq))


async def of_family(runs: Runs, record: RunRecord) -> list[DecisionRequired]:
    """What a run asks, and what its children ask."""
    asked: list[DecisionRequired] = []
    for one in [record, *await descendants(runs.store, record.run)]:
        if one.status in OPEN:
            asked += (await state_of(runs, one.run)).decisions.values()
    return asked


async def state_of(runs: Runs, run: RunId) -> Run:
    """A run as it stands: of one that is driven here it is known already."""
    drive = runs.engine.live.get(run)
    return drive.state if drive is not None else await runs.at(run)


async def standing(
    runs: Runs, record: RunRecord, at: int | None = None
) -> tuple[Result, list[DecisionRequired]]:
    """How a run stands, or stood after event `at`, and what is asked in it.

    The questions of its child runs are among them when the present is meant.
    """
    run = await runs.at(record.run, at)
    if run.ended:
        return result_of(run), []
    asked = await of_family(runs, record) if at is None else list(run.decisions.values())
    result = result_of(run)
    if asked and at is None and not record.owner and result.status == "running":
        result = structs.replace(result, status="waiting")  # only its children wait, and nobody drives it
    return result, asked
