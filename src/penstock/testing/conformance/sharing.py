"""What stores have to do with each other: owners, commands, checkpoints, keys."""

# ruff: noqa: S101 - this is a test suite; whoever runs it rewrites its assertions

from __future__ import annotations

import asyncio
import random
import sys

from penstock.errors import Owned, StoreError, UnknownRun, WrongKey
from penstock.ids import RunId, StepId
from penstock.run.events import TaskCompleted
from penstock.store.base import Store
from penstock.testing.conformance.places import (
    KEY,
    NEW_KEY,
    OTHER_KEY,
    PATIENCE,
    A,
    B,
    C,
    Ears,
    Inbox,
    Place,
    batch,
    begin,
    beginning,
    checkpoint,
    example,
    flow,
    new,
    opened,
    post,
    record,
    refused,
    sentence,
)

# --- owning ---


@sentence()
async def a_run_that_is_driven_cannot_be_taken(place: Place) -> None:
    async with opened(place) as store:
        journal = await begin(store)

        with refused(Owned, "process"):
            await store.reopen(A)

        journal.append(batch(2))
        await journal.sync()
        assert len(await store.load(A)) == 2


@sentence("lasting")
async def other_stores_see_who_drives_a_run_and_cannot_take_it(place: Place) -> None:
    async with opened(place, 2) as (store, other):
        await begin(store)

        assert (await record(other)).owner == (await record(store)).owner
        with refused(Owned, (await record(other)).owner):
            await other.reopen(A)


@sentence()
async def a_run_that_was_let_go_can_be_taken_at_once(place: Place) -> None:
    async with opened(place) as store:
        journal = await begin(store)
        journal.append(batch(2, 3))
        journal.release()

        again = await store.reopen(A)
        assert again.durable == 4
        assert (await record(store)).owner
        again.append(batch(5))
        await again.sync()
        assert list(await store.load(A)) == [*beginning(), *batch(2, 4)]


@sentence("lasting")
async def a_run_goes_on_in_another_store(place: Place) -> None:
    async with opened(place) as store:
        await begin(store, more=4)
    async with opened(place) as store:
        assert (await record(store)).owner == ""
        journal = await store.reopen(A)
        journal.append(batch(6))
        await journal.sync()
    async with opened(place) as store:
        assert list(await store.load(A)) == [*beginning(), *batch(2, 5)]


@sentence("lasting")
async def of_many_that_want_a_run_one_gets_it(place: Place) -> None:
    async with opened(place, 4) as stores:
        for round_ in range(5):
            run = RunId(f"r{round_}")
            journal = await begin(stores[0], run)
            journal.release()
            await journal.sync()
            tries = [store.reopen(run) for store in stores for _ in range(3)]
            results = await asyncio.gather(*tries, return_exceptions=True)

            assert sum(isinstance(result, Owned) for result in results) == len(tries) - 1, results


@sentence("lasting")
async def whoever_writes_after_another_took_the_run_is_told_that_it_is_lost(place: Place) -> None:
    async with opened(place, 2) as (store, other):
        late = await begin(store, more=2)
        ears = Ears()
        late.watch(ears)
        late.release()
        await late.sync()
        journal = await other.reopen(A)
        journal.append(batch(4, 3, mark="other"))
        await journal.sync()

        for seq in range(4, 10):  # some of it would fit behind what the other wrote
            late.append(batch(seq, mark="late"))
            await asyncio.sleep(0)
        await late.sync()
        await ears.until(lambda heard: heard.losses > 0)
        late.append(batch(10, mark="late"))
        await late.sync()

        assert list(await store.load(A)) == [*beginning(), *batch(2, 2), *batch(4, 3, mark="other")]
        assert ears.arrivals == []
        late.release()
        await late.sync()
        assert (await record(other)).owner, "who lost a run has nothing to let go"
        journal.append(batch(7))
        await journal.sync()
        assert len(await other.load(A)) == 7


@sentence("lasting")
async def who_lost_a_run_cannot_write_even_before_the_other_has(place: Place) -> None:
    async with opened(place, 2) as (store, other):
        late = await begin(store, more=2)
        ears = Ears()
        late.watch(ears)
        late.release()
        await late.sync()
        journal = await other.reopen(A)
        late.append(batch(4, mark="late"))
        await late.sync()
        await ears.until(lambda heard: heard.losses > 0)
        journal.append(batch(4, mark="other"))
        await journal.sync()

        assert list(await store.load(A)) == [*beginning(), *batch(2, 2), *batch(4, mark="other")]


_DYING = """
import asyncio, os, signal
from penstock.testing.conformance.places import A, begin
{program}
async def main():
    await begin(store, more=3)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@sentence("lasting")
async def the_run_of_a_process_that_died_here_can_be_taken_at_once(place: Place) -> None:
    async with opened(place) as store:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _DYING.format(program=place.program)
        )
        await process.wait()

        assert (await record(store)).owner == ""
        journal = await store.reopen(A)
        assert journal.durable == 4


# --- commands ---


@sentence()
async def commands_reach_whoever_drives_the_run_in_order(place: Place) -> None:
    async with opened(place) as store:
        await begin(store)
        inbox = Inbox(store)
        for i in range(10):
            await store.mail.post(A, post(f"m{i}"))

        assert await inbox.until(10) == [f"m{i}" for i in range(10)]
        assert {run for run, _ in inbox.texts} == {A}


@sentence()
async def a_command_is_answered_once_somebody_has_seen_to_it(place: Place) -> None:
    async with opened(place) as store:
        journal = await begin(store)
        inbox = Inbox(store)
        for text in ("good", "bad"):
            await store.mail.post(A, post(text))
        await inbox.until(2)
        assert await store.mail.answer(A, "good") is None

        store.mail.answered(A, "good", "")
        store.mail.answered(A, "bad", "too late")
        await journal.sync()
        assert [await store.mail.answer(A, id) for id in ("good", "bad", "other")] == ["", "too late", None]


@sentence()
async def the_same_id_twice_is_one_command(place: Place) -> None:
    async with opened(place) as store:
        await begin(store)
        inbox = Inbox(store)
        for text in ("once", "again"):
            await store.mail.post(A, post(text, id="x"))
        await store.mail.post(A, post("last"))

        assert await inbox.until(2) == ["once", "last"]


@sentence("lasting")
async def commands_of_other_stores_reach_the_owner_and_only_the_owner(place: Place) -> None:
    async with opened(place, 3) as (one, two, third):
        await begin(one, A)
        await begin(two, B)
        inboxes = [Inbox(store) for store in (one, two, third)]
        await third.mail.post(A, post("to a"))
        await third.mail.post(B, post("to b"))

        assert await inboxes[0].until(1) == ["to a"]
        assert await inboxes[1].until(1) == ["to b"]
        one.mail.answered(A, "to a", "no")
        async with asyncio.timeout(PATIENCE):
            while await third.mail.answer(A, "to a") is None:  # noqa: ASYNC110 - there is nothing to wait on
                await asyncio.sleep(0.01)
        assert [len(inbox.texts) for inbox in inboxes] == [1, 1, 0]


@sentence("lasting")
async def a_command_that_nobody_answered_goes_to_the_next_owner(place: Place) -> None:
    async with opened(place, 2) as (store, other):
        journal = await begin(store)
        first = Inbox(store)
        for text in ("answered", "not"):
            await store.mail.post(A, post(text))
        await first.until(2)
        store.mail.answered(A, "answered", "")
        journal.release()
        await journal.sync()
        await store.mail.post(A, post("late"))

        next_ = Inbox(other)
        await other.reopen(A)
        assert await next_.until(2) == ["not", "late"]


@sentence("lasting")
async def a_command_that_nobody_answered_comes_again_when_its_run_is_taken_up_here(place: Place) -> None:
    async with opened(place) as store:
        journal = await begin(store)
        inbox = Inbox(store)
        await store.mail.post(A, post("hello"))
        await inbox.until(1)
        journal.release()
        await store.reopen(A)

        assert await inbox.until(2) == ["hello", "hello"]


@sentence("lasting")
async def a_command_for_no_run_is_refused(place: Place) -> None:
    async with opened(place) as store:
        with refused(UnknownRun, "nobody"):
            await store.mail.post(RunId("nobody"), post("hello"))


# --- checkpoints ---


@sentence()
async def checkpoints_are_found_the_oldest_first(place: Place) -> None:
    async with opened(place) as store:
        await begin(store, A)
        await begin(store, B)
        for seq in (3, 5, 9):
            store.checkpoints.save(checkpoint(f"c{seq}", seq), b"\0state %d" % seq, keep=5)
        store.checkpoints.save(checkpoint("other", 4, B), b"other", keep=5)
        await (await store.create(new(C), beginning())).sync()

        found = await store.checkpoints.list(A)
        assert [(c.checkpoint, c.run, c.seq, c.at, c.layer) for c in found] == [
            (f"c{seq}", A, seq, float(seq), seq) for seq in (3, 5, 9)
        ]
        one, state = await store.checkpoints.get("c5")
        assert (one.seq, one.run, state) == (5, A, b"\0state 5")
        assert await store.checkpoints.list(RunId("nobody")) == []
        with refused(StoreError, "c7"):
            await store.checkpoints.get("c7")


@sentence()
async def only_the_newest_checkpoints_of_a_run_are_kept(place: Place) -> None:
    async with opened(place) as store:
        journal = await begin(store, A)
        await begin(store, B)
        store.checkpoints.save(checkpoint("other", 1, B), b"", keep=2)
        for seq in range(2, 12):
            store.checkpoints.save(checkpoint(f"c{seq}", seq), b"state", keep=2)
            if seq % 3 == 0:
                await journal.sync()
        await journal.sync()

        assert [c.checkpoint for c in await store.checkpoints.list(A)] == ["c10", "c11"]
        assert [c.checkpoint for c in await store.checkpoints.list(B)] == ["other"]


@sentence("lasting")
async def checkpoints_are_there_after_closing(place: Place) -> None:
    async with opened(place) as store:
        await begin(store)
        store.checkpoints.save(checkpoint("c", 1), b"state" * 100_000, keep=5)
    async with opened(place) as store:
        assert (await store.checkpoints.get("c"))[1] == b"state" * 100_000


# --- sealing ---

SECRET = "the well is under the oak"  # noqa: S105 - this one is made up


async def tell_all(store: Store) -> None:
    """Let the secret into everything that carries a payload."""
    told = flow(uses=SECRET)
    journal = await store.create(new(workflow=told), beginning(told, secret=SECRET))
    journal.append([TaskCompleted(2, 1.0, StepId("s"), SECRET)])
    noise = "".join(random.Random(1).choices("abcdefghij", k=40_000))  # noqa: S311 - so that it cannot be compressed
    journal.append([TaskCompleted(3, 1.0, StepId("s"), noise[:20_000] + SECRET + noise[20_000:])])
    store.checkpoints.save(checkpoint("c", 2), SECRET.encode(), keep=5)
    await store.mail.post(A, post(SECRET, id="m"))
    await store.examples.add("e", example(digest=SECRET))


@sentence("sealed")
async def what_is_sealed_cannot_be_read_without_the_key(place: Place) -> None:
    async with opened(place) as store:
        await tell_all(store)
    assert SECRET.encode() not in place.raw()
    assert b"flow" in place.raw(), "it can be read at all"

    async with opened(place) as store:
        assert (await store.definition(A)).workflow.steps[0].uses == SECRET
        assert (await store.output(A, 2), SECRET in await store.output(A, 3)) == (SECRET, True)
        assert (await store.checkpoints.get("c"))[1] == SECRET.encode()
        assert (await store.examples.list())[0]["digest"] == SECRET
        await store.reopen(A)
        assert await Inbox(store).until(1) == [SECRET]


@sentence("sealed")
async def a_wrong_key_is_noticed_before_anything_is_written(place: Place) -> None:
    async with opened(place) as store:
        await begin(store)
    with refused(WrongKey):
        place.open(OTHER_KEY)

    async with opened(place) as store:
        assert len(await store.load(A)) == 1


@sentence("sealed")
async def after_a_change_of_keys_old_payloads_still_open(place: Place) -> None:
    async with opened(place) as store:
        await begin(store, A)
    store = place.open(NEW_KEY, KEY)
    await begin(store, B)
    assert [len(await store.load(run)) for run in (A, B)] == [1, 1]
    await store.close()
