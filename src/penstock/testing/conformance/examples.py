"""What becomes of failures that are remembered beyond their runs."""

# ruff: noqa: S101 - this is a test suite; whoever runs it rewrites its assertions

from __future__ import annotations

import asyncio
from typing import Any

from penstock.policy.retention import Limits
from penstock.store.gc import plan_and_forget
from penstock.testing.conformance.places import A, Place, example, opened, sentence
from penstock.testing.conformance.upkeep import ended


async def ats(store: Any, **where: Any) -> list[float]:
    return [one["at"] for one in await store.examples.list(**where)]


@sentence()
async def an_example_is_found_as_it_was_added(place: Place) -> None:
    failed = example(
        shape={"path": "string", "rows": [{"id": "integer"}]}, signals=["a"], digest=[{"é": "🦀"}]
    )
    async with opened(place) as store:
        assert list(await store.examples.list()) == []
        await store.examples.add("one", failed)

        assert list(await store.examples.list()) == [failed]
        (await store.examples.list())[0]["signals"].append("changed")
        failed["shape"].clear()
        assert (await store.examples.list())[0]["signals"] == ["a"]
        assert (await store.examples.list())[0]["shape"]["path"] == "string"


@sentence()
async def the_same_example_twice_is_one_and_the_first_counts(place: Place) -> None:
    async with opened(place) as store:
        await store.examples.add("one", example(at=1.0))
        await asyncio.gather(*(store.examples.add("one", example(at=float(n))) for n in range(2, 6)))

        assert await ats(store) == [1.0]


@sentence()
async def the_newest_example_comes_first(place: Place) -> None:
    async with opened(place) as store:
        for n, at in enumerate([2.0, 3.0, 1.0, 3.0]):
            await store.examples.add(str(n), example(at=at, n=n))

        assert [one["n"] for one in await store.examples.list()] == [3, 1, 0, 2]


@sentence()
async def examples_are_found_by_workflow_step_and_tool(place: Place) -> None:
    async with opened(place) as store:
        await store.examples.add("1", example(at=1.0))
        await store.examples.add("2", example(at=2.0, workflow="other"))
        await store.examples.add("3", example(at=3.0, step="t"))
        await store.examples.add("4", example(at=4.0, tool="other:tool"))

        assert await ats(store, workflow="flow") == [4.0, 3.0, 1.0]
        assert await ats(store, step="s") == [4.0, 2.0, 1.0]
        assert await ats(store, tool="some:tool") == [3.0, 2.0, 1.0]
        assert await ats(store, workflow="flow", step="s", tool="some:tool") == [1.0]
        assert await ats(store, workflow="flow' OR 1=1 --") == []


@sentence()
async def an_example_is_found_until_it_expires(place: Place) -> None:
    async with opened(place) as store:
        await store.examples.add("1", example(at=1.0, expires=10.0))
        await store.examples.add("2", example(at=2.0, expires=20.0))

        assert await ats(store, now=9.5) == [2.0, 1.0]
        assert await ats(store, now=10.0) == [2.0]
        assert await ats(store, now=20.0, workflow="flow") == []
        assert await ats(store) == [2.0, 1.0], "it is there until someone cleans up"
        assert await store.examples.expire(now=10.0) == 1
        assert await store.examples.expire(now=10.0) == 0
        assert await ats(store) == [2.0]


@sentence("lasting")
async def an_example_is_seen_by_others_and_outlives_its_store(place: Place) -> None:
    async with opened(place, 2) as (store, other):
        await store.examples.add("one", example())
        assert await ats(other) == [100.0]
        await other.examples.add("one", example(at=7.0))

    async with opened(place) as store:
        assert await ats(store) == [100.0]


@sentence("upkeep")
async def cleaning_up_removes_what_has_expired_and_only_that(place: Place) -> None:
    async with opened(place) as store:
        await ended(store, A)
        await store.examples.add("1", example(at=1.0, expires=10.0))
        await store.examples.add("2", example(at=2.0, expires=20.0))

        assert (await plan_and_forget(store, Limits(), dry_run=True, now=10.0)).examples == 1
        assert await ats(store) == [2.0, 1.0]
        assert (await plan_and_forget(store, Limits(keep_count=0), dry_run=False, now=10.0)).examples == 1
        assert await ats(store) == [2.0], "it outlives its run"
        assert list(await store.runs()) == []
