"""What becomes of runs that are forgotten, and of what they shared with others."""

# ruff: noqa: S101 - this is a test suite; whoever runs it rewrites its assertions

from __future__ import annotations

import asyncio
from typing import Any

from penstock.errors import StoreError, UnknownRun
from penstock.ids import RunId, StepId
from penstock.run.events import Event, TaskCompleted, WorkflowCompleted
from penstock.store.base import NewRun
from penstock.testing.conformance.places import (
    A,
    B,
    C,
    Place,
    batch,
    begin,
    beginning,
    checkpoint,
    flow,
    new,
    opened,
    post,
    refused,
    sentence,
)

LARGE = "x" * 100_000


async def ended(store: Any, run: RunId, *, output: Any = None, made: NewRun | None = None) -> None:
    """A run that is over, and that nobody drives."""
    made = made or new(run)
    first: list[Event] = batch(made.fork_at + 1) if made.fork_at else beginning(made.workflow)
    journal = await store.create(made, first)
    at = first[0].seq
    journal.append([TaskCompleted(at + 1, 1.0, StepId("s"), output)])
    journal.note("succeeded", "")
    journal.append([WorkflowCompleted(at + 2, 2.0, "succeeded")])
    journal.release()
    await journal.sync()


async def names(store: Any) -> set[str]:
    return {found.run for found in await store.runs()}


@sentence("upkeep")
async def a_family_is_forgotten_with_all_that_belongs_to_it(place: Place) -> None:
    async with opened(place) as store:
        await ended(store, A, output=LARGE)
        await ended(store, B, made=new(B, parent=A))
        await ended(store, C)
        store.checkpoints.save(checkpoint("c", 2), b"state", keep=5)
        await store.mail.post(A, post("hello"))
        assert await store.checkpoints.list(A)

        assert set(await store.upkeep.forget([[A, B]])) == {A, B}

        assert await names(store) == {C}
        assert set(await store.upkeep.sizes()) == {C}
        for run in (A, B):
            with refused(UnknownRun):
                await store.load(run)
        with refused(StoreError):
            await store.checkpoints.get("c")
        assert await store.mail.answer(A, "hello") is None
        assert len(await store.load(C)) == 3


@sentence("upkeep")
async def a_run_that_is_not_over_or_is_driven_stays_with_its_family(place: Place) -> None:
    async with opened(place, 2) as (store, other):
        await ended(store, A)
        journal = await store.create(new(B, parent=A), beginning())
        await ended(store, C)
        await other.reopen(C)

        assert list(await store.upkeep.forget([[A, B], [C]])) == []
        journal.release()
        await journal.sync()
        assert list(await store.upkeep.forget([[A, B]])) == [], "let go, but not over"
        assert await names(store) == {A, B, C}
        assert len(await store.load(B)) == 1


@sentence("upkeep")
async def a_run_that_others_come_from_stays(place: Place) -> None:
    async with opened(place) as store:
        await ended(store, A, output="shared")
        await ended(store, B, made=new(B, fork_of=A, fork_at=2))
        await ended(store, C, made=new(C, parent=B))

        assert list(await store.upkeep.forget([[A], [B]])) == []
        assert await store.output(B, 2) == "shared"
        assert set(await store.upkeep.forget([[A, B, C]])) == {A, B, C}
        assert await names(store) == set()


@sentence("upkeep")
async def what_another_run_uses_too_survives(place: Place) -> None:
    child = flow("child")
    async with opened(place) as store:
        await ended(store, A, output=LARGE, made=new(A, children={"kid": child}))
        await ended(store, B, output=LARGE, made=new(B, children={"kid": child}))
        await ended(store, C, made=new(C, child))
        await store.upkeep.forget([[A], [C]])

        assert await store.output(B, 2) == LARGE
        assert (await store.definition(B)).children == {"kid": child}


@sentence("upkeep")
async def a_run_is_as_large_as_what_it_holds_and_shares_count_once(place: Place) -> None:
    async with opened(place) as store:
        await ended(store, A, output=LARGE)
        await ended(store, B, output="y" * 10_000)
        before = await store.upkeep.sizes()
        await ended(store, C, output=LARGE)
        after = await store.upkeep.sizes()

        assert before[A] > 100_000
        assert 10_000 < before[B] < 20_000
        assert after[A] < 10_000
        assert after[C] > 100_000


@sentence("upkeep")
async def an_id_can_be_given_again_once_its_run_is_forgotten(place: Place) -> None:
    async with opened(place) as store:
        await ended(store, A, output="old")
        await store.upkeep.forget([[A]])
        await begin(store, A)

        assert list(await store.load(A)) == beginning()


@sentence("upkeep")
async def forgetting_keeps_out_of_the_way_of_those_who_write(place: Place) -> None:
    async with opened(place, 2) as (store, other):
        old = [RunId(f"old{i}") for i in range(30)]
        for run in old:
            await ended(store, run, output=LARGE)
        journal = await begin(other, A)

        async def write() -> None:
            for seq in range(2, 22):
                journal.append([TaskCompleted(seq, 1.0, StepId("s"), LARGE if seq % 2 else seq)])
                await asyncio.sleep(0)
            await journal.sync()

        gone, _ = await asyncio.gather(store.upkeep.forget([[run] for run in old]), write())
        assert set(gone) == set(old)
        await store.upkeep.compact()
        assert [await store.output(A, seq) for seq in (20, 21)] == [20, LARGE]
        assert await names(store) == {A}
