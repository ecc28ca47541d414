"""What a store keeps: events, outputs, definitions, lists of runs, forks."""

# ruff: noqa: S101 - this is a test suite; whoever runs it rewrites its assertions

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

from penstock.errors import Conflict, StoreError, UnknownRun
from penstock.ids import RunId, StepId
from penstock.run.events import MapStarted, TaskCompleted, TaskStarted, WorkflowCompleted
from penstock.store.base import Journal
from penstock.testing.conformance.places import (
    A,
    B,
    C,
    Ears,
    Place,
    batch,
    begin,
    beginning,
    flow,
    new,
    opened,
    record,
    refused,
    sentence,
)

# --- beginning a run ---


@sentence()
async def a_run_begins_with_its_first_batch(place: Place) -> None:
    async with opened(place) as store:
        journal = await store.create(new(), beginning(folder="inbox"))

        assert list(await store.load(A)) == beginning(folder="inbox")
        assert journal.durable == 1


@sentence()
async def an_id_is_given_once(place: Place) -> None:
    async with opened(place) as store:
        await begin(store, more=3)

        with refused(Conflict):
            await store.create(new(), beginning(other="inputs"))

        assert list(await store.load(A)) == [*beginning(), *batch(2, 3)]
        assert len(await store.runs()) == 1


@sentence()
async def of_many_that_create_the_same_run_one_succeeds(place: Place) -> None:
    async with opened(place) as store:
        tries = [store.create(new(), beginning()) for _ in range(20)]
        results = await asyncio.gather(*tries, return_exceptions=True)

        assert sum(isinstance(result, Conflict) for result in results) == 19
        assert len(await store.load(A)) == 1


@sentence()
async def a_run_that_does_not_exist_is_said_to_be_unknown(place: Place) -> None:
    async with opened(place) as store:
        for ask in (store.load, store.definition, store.reopen, lambda run: store.output(run, 1)):
            with refused(UnknownRun, "nobody"):
                await ask(RunId("nobody"))
        assert await store.runs(run="nobody") == []


# --- events ---


@sentence()
async def events_come_back_as_they_were_written_and_in_order(place: Place) -> None:
    async with opened(place) as store:
        journal = await begin(store)
        written = beginning()
        for size in (1, 5, 2, 40, 1):
            events = batch(len(written) + 1, size, mark="ß \N{SNOWMAN} \0 \n ‘“'\"\\")
            journal.append(events)
            written += events
        await journal.sync()

        assert list(await store.load(A)) == written


@sentence()
async def a_history_can_be_read_from_any_event_on(place: Place) -> None:
    async with opened(place) as store:
        journal = await begin(store)
        for first, size in ((2, 3), (5, 1), (6, 4)):
            journal.append(batch(first, size))  # gathered: one row holds them all
        await journal.sync()
        journal.append(batch(10, 2))
        await journal.sync()
        written = [*beginning(), *batch(2, 10)]

        for after in range(14):
            assert list(await store.load(A, after=after)) == written[after:], after


@sentence()
async def after_sync_everything_taken_is_durable(place: Place) -> None:
    async with opened(place) as store:
        journal = await begin(store)
        for seq in range(2, 102):
            journal.append(batch(seq))
        await journal.sync()

        assert journal.durable == 101
        assert (await record(store)).events == 101


@sentence("lasting")
async def the_watcher_hears_of_every_arrival_in_order(place: Place) -> None:
    async with opened(place) as store:
        journal = await begin(store)
        ears = Ears()
        journal.watch(ears)
        for seq in range(2, 52):
            journal.append(batch(seq))
            await asyncio.sleep(0)
        await ears.until(lambda heard: heard.arrivals[-1:] == [51])

        assert ears.arrivals == sorted(set(ears.arrivals))
        assert (ears.reasons, ears.losses) == ([], 0)


@sentence("lasting")
async def what_the_watcher_heard_of_can_be_read(place: Place) -> None:
    async with opened(place, 2) as (store, reader):
        journal = await begin(store)
        ears = Ears()
        journal.watch(ears)
        for seq in range(2, 12):
            journal.append(batch(seq))
            await ears.until(lambda heard, seq=seq: heard.arrivals[-1:] == [seq])  # type: ignore[misc]

            assert len(await reader.load(A)) == seq


@sentence()
async def many_runs_that_write_at_once_keep_their_order(place: Place) -> None:
    async with opened(place) as store:
        runs = [RunId(f"r{i}") for i in range(50)]
        journals = await asyncio.gather(*(begin(store, run) for run in runs))

        async def write(journal: Journal, chance: random.Random) -> None:
            for seq in range(2, 22):
                journal.append(batch(seq))
                for _ in range(chance.randrange(3)):
                    await asyncio.sleep(0)
            await journal.sync()

        await asyncio.gather(*(write(journal, random.Random(i)) for i, journal in enumerate(journals)))  # noqa: S311

        for run in runs:
            assert list(await store.load(run)) == [*beginning(), *batch(2, 20)]


@sentence("lasting")
async def a_reader_never_sees_half_a_batch(place: Place) -> None:
    async with opened(place, 2) as (store, reader):
        journal = await begin(store)

        async def write() -> None:
            for first in range(2, 502, 5):
                journal.append(batch(first, 5))
                await asyncio.sleep(0)
            await journal.sync()

        writing = asyncio.ensure_future(write())
        while not writing.done():
            assert len(await reader.load(A)) % 5 == 1
        await writing
        assert len(await reader.load(A)) == 501


_ENDLESS = """
import asyncio, itertools
from penstock.testing.conformance.places import A, B, Ears, batch, begin
{program}
async def main():
    journal = await begin(store)
    journal.watch(ears := Ears())
    for first in itertools.count(2, 5):
        journal.append(batch(first, 5))
        if first % 20 == 2:
            await ears.until(lambda heard: heard.arrivals)
            print(ears.arrivals[-1], flush=True)
asyncio.run(main())
"""


@sentence("lasting")
async def a_killed_process_leaves_whole_batches_and_all_that_it_was_told_had_arrived(place: Place) -> None:
    async with opened(place) as store:
        code = _ENDLESS.format(program=place.program)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        for _ in range(5):
            await process.stdout.readline()
        process.kill()
        told = [
            int(line)
            for line in (await process.stdout.read()).splitlines(keepends=True)
            if line[-1:] == b"\n"
        ]
        await process.wait()

        events = list(await store.load(A))
        assert events == [*beginning(), *batch(2, len(events) - 1)]
        assert len(events) % 5 == 1
        assert len(events) >= max(told, default=1)


@sentence("lasting")
async def closing_writes_what_is_left(place: Place) -> None:
    async with opened(place) as store:
        journal = await begin(store)
        for seq in range(2, 201):
            journal.append(batch(seq))
        journal.note("waiting", "for rain")
        journal.append(batch(201))
    async with opened(place) as store:
        assert list(await store.load(A)) == [*beginning(), *batch(2, 200)]
        assert (await record(store)).status == "waiting"


# --- outputs ---


@sentence()
async def an_output_is_given_whole_however_large(place: Place) -> None:
    outputs: list[Any] = [1, None, {"text": "ß" * 10}, "x" * 100_000, ["y" * 40_000, {"z": [0.5]}], 2**63]
    async with opened(place) as store:
        journal = await begin(store)
        journal.append([TaskCompleted(i, 1.0, StepId("s"), out) for i, out in enumerate(outputs, start=2)])
        await journal.sync()

        assert [await store.output(A, i) for i in range(2, 2 + len(outputs))] == outputs


@sentence()
async def the_items_of_a_map_are_its_output(place: Place) -> None:
    items = [{"n": i, "text": "x" * 1000} for i in range(100)]
    async with opened(place) as store:
        journal = await begin(store)
        journal.append([MapStarted(2, 1.0, StepId("s"), 100, output=items)])
        await journal.sync()

        assert await store.output(A, 2) == items


@sentence()
async def an_event_that_completed_nothing_has_no_output(place: Place) -> None:
    async with opened(place) as store:
        journal = await begin(store)
        journal.append([TaskStarted(2, 1.0, StepId("s")), TaskCompleted(3, 1.0, StepId("s"))])
        await journal.sync()

        assert [await store.output(A, seq) for seq in (1, 2, 3)] == [None, None, None]
        for seq in (0, 4, 1000):
            with refused(StoreError, f"event {seq}"):
                await store.output(A, seq)


# --- definitions ---


@sentence()
async def a_run_is_pinned_to_the_definition_it_began_with(place: Place) -> None:
    child = flow("child")
    async with opened(place) as store:
        await store.create(new(A, flow(uses="old:tool"), source="flow.yaml"), beginning())
        await store.create(new(B, flow(uses="new:tool"), children={"kid": child}), beginning())

        old, late = await store.definition(A), await store.definition(B)
        assert (old.workflow, old.source, dict(old.children)) == (flow(uses="old:tool"), "flow.yaml", {})
        assert (late.workflow, dict(late.children)) == (flow(uses="new:tool"), {"kid": child})


# --- lists of runs ---


@sentence()
async def runs_are_listed_the_newest_first(place: Place) -> None:
    async with opened(place) as store:
        for i in range(5):
            await begin(store, RunId(f"r{i}"))

        assert [found.run for found in await store.runs()] == ["r4", "r3", "r2", "r1", "r0"]
        assert [found.run for found in await store.runs(limit=2)] == ["r4", "r3"]


@sentence()
async def a_list_of_runs_goes_on_before_the_last_one_seen(place: Place) -> None:
    async with opened(place) as store:
        for i in range(5):
            await begin(store, RunId(f"r{i}"))

        async def page(before: str) -> list[str]:
            return [found.run for found in await store.runs(before=RunId(before), limit=2)]

        assert (await page("r4"), await page("r2"), await page("r1")) == (["r3", "r2"], ["r1", "r0"], ["r0"])
        assert (await page("r0"), await page("none")) == ([], [])


@sentence()
async def a_list_of_runs_can_be_narrowed_down(place: Place) -> None:
    async with opened(place) as store:
        await store.create(new(A, flow("one")), beginning())
        await store.create(new(B, flow("two"), parent=A), beginning())
        journal = await store.create(new(C, flow("two")), beginning())
        journal.note("paused", "by hand")
        journal.append(batch(2))
        await journal.sync()

        async def found(**where: Any) -> list[str]:
            return [record.run for record in await store.runs(**where)]

        assert await found(run=B) == ["b"]
        assert await found(workflow="two") == ["c", "b"]
        assert await found(status="running") == ["b", "a"]
        assert await found(parent=A) == ["b"]
        assert await found(parent=None) == ["c", "a"]
        assert await found(workflow="two", status="paused") == ["c"]
        assert await found(workflow="two", limit=1) == ["c"]
        assert await found(workflow="three") == []


@sentence()
async def a_list_of_runs_shows_how_each_stands(place: Place) -> None:
    async with opened(place) as store:
        journal = await store.create(new(source="flow.yaml", parent=B), beginning())

        seen = await record(store)
        assert (seen.workflow, seen.hash, seen.source, seen.parent) == ("flow", flow().hash, "flow.yaml", B)
        assert (seen.status, seen.reason, seen.ended, seen.events) == ("running", "", None, 1)
        assert seen.owner

        journal.note("failed", "no rain \0")
        journal.append([WorkflowCompleted(2, 200.0, "failed", {}, "no rain")])
        journal.release()
        await journal.sync()

        seen = await record(store)
        assert (seen.status, seen.reason[:7], seen.events, seen.owner) == ("failed", "no rain", 2, "")
        assert seen.ended is not None


@sentence()
async def how_a_run_stands_can_be_said_without_an_event(place: Place) -> None:
    async with opened(place) as store:
        journal = await begin(store)
        journal.append(batch(2))
        await journal.sync()

        journal.note("waiting", "for rain", now=True)
        await journal.sync()

        seen = await record(store)
        assert (seen.status, seen.reason, seen.ended, seen.events) == ("waiting", "for rain", None, 2)

        journal.note("running", "")
        journal.append([WorkflowCompleted(3, 200.0, "failed", {}, "no rain")])
        await journal.sync()
        journal.note("failed", "no rain", now=True)
        await journal.sync()

        seen = await record(store)
        assert (seen.status, seen.reason, seen.ended is not None) == ("failed", "no rain", True)


# --- forks ---


@sentence()
async def a_fork_shares_the_history_before_it(place: Place) -> None:
    async with opened(place) as store:
        first = await begin(store, A)
        for seq in range(2, 11):
            first.append(batch(seq, mark="a"))
        await first.sync()
        await store.create(new(B, fork_of=A, fork_at=6), batch(7, 2, mark="b"))
        first.append(batch(11, mark="a"))  # what happens there later is not its business
        await first.sync()

        written = [*beginning(), *batch(2, 5, mark="a"), *batch(7, 2, mark="b")]
        for after in range(10):
            assert list(await store.load(B, after=after)) == written[after:], after
        assert [(await store.output(B, seq))["mark"] for seq in (6, 7)] == ["a", "b"]
        seen = await record(store, B)
        assert (seen.fork_of, seen.fork_at, seen.events) == (A, 6, 8)
        with refused(StoreError):
            await store.output(B, 9)


@sentence()
async def a_fork_of_a_fork_shares_what_both_share(place: Place) -> None:
    async with opened(place) as store:
        await begin(store, A, more=9)
        journal = await store.create(new(B, fork_of=A, fork_at=6), batch(7, mark="b"))
        journal.append(batch(8, 3, mark="b"))
        await journal.sync()
        for run, at in ((C, 8), (RunId("early"), 4)):  # past the first fork, and before it
            journal = await store.create(new(run, fork_of=B, fork_at=at), batch(at + 1, mark=run))
            journal.append(batch(at + 2, mark=run))
            await journal.sync()

            shared = list(await store.load(B))[:at]
            assert list(await store.load(run)) == [*shared, *batch(at + 1, 2, mark=run)]
            assert await store.output(run, 4) == {"n": 4, "mark": ""}
            assert (await store.output(run, at))["mark"] == ("b" if at == 8 else "")


@sentence()
async def a_fork_of_nothing_is_refused(place: Place) -> None:
    async with opened(place) as store:
        with refused(UnknownRun, "nobody"):
            await store.create(new(B, fork_of=RunId("nobody"), fork_at=1), batch(2))

        assert await store.runs() == []
