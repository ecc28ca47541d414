"""What only a store on a server has to cope with: a server that goes away, and others who use it."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from wire import Wire

import penstock as ps
from penstock.errors import Owned, StoreError
from penstock.ids import RunId, StepId
from penstock.run.events import Event, TaskCompleted, WorkflowPaused, WorkflowResumed
from penstock.store import owner
from penstock.store.postgres import writer
from penstock.store.postgres.store import PostgresStore
from penstock.testing.conformance.places import (
    PATIENCE,
    A,
    B,
    Ears,
    Inbox,
    batch,
    begin,
    beginning,
    new,
    post,
    record,
)
from penstock.testing.postgres import Server


async def soon(work: Awaitable[Any]) -> Any:
    async with asyncio.timeout(PATIENCE * 2):
        return await work


def rows(url: str, sql: str, *values: Any) -> list[Any]:
    """Ask the database itself."""
    server, _, schema = url.partition("&schema=")
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(f"SET search_path = {schema or 'penstock'}")
        done = db.execute(sql.encode(), values)
        return done.fetchall() if done.description else []


def chain(count: int, deeds: list[int], at: dict[int, Any] | None = None) -> ps.Workflow:
    """Steps that each leave a mark outside the store; some do something else besides."""

    def step(i: int) -> Any:
        @ps.tool(id=f"ledger:n{i}", effect="write")
        async def do() -> int:
            deeds.append(i)
            if at and i in at:
                await asyncio.to_thread(at[i])
            return i

        return do

    flow = ps.Workflow("chain")
    for i in range(count):
        flow.step(f"n{i}", step(i), needs=[f"n{i - 1}"] if i else [])
    return flow


# --- a server that goes away ---


def test_a_run_goes_on_when_its_server_was_killed_and_came_back(server: Server) -> None:
    deeds: list[int] = []
    seen: list[Event] = []

    async def main() -> None:
        async with ps.open(server.url) as app:
            run = await app.start(chain(40, deeds, at={15: server.kill}))
            run.observe(seen.append)
            while not run.state.pauses:  # noqa: ASYNC110 - nothing can be told while nothing can be written
                await asyncio.sleep(0.01)
            told = len(seen)
            assert deeds == list(range(16)), "nothing is done that cannot be recorded"
            await asyncio.to_thread(server.start)
            assert (await soon(run.result())).status == "succeeded"

            kept = list(await app.store.load(run.id))
            assert kept[-len(seen) :] == seen, "what was announced is what was kept"
            assert told <= len(kept)
            assert deeds == list(range(40)), "everything was done once"
            done = [event.step for event in kept if isinstance(event, TaskCompleted)]
            assert done == [f"n{i}" for i in range(40)]
            assert [e.by for e in kept if isinstance(e, WorkflowPaused | WorkflowResumed)] == ["storage"] * 2

    asyncio.run(main())


@pytest.mark.slow
def test_a_server_that_is_killed_again_and_again_loses_nothing_and_doubles_nothing(server: Server) -> None:
    deeds: list[list[int]] = [[] for _ in range(8)]

    async def main() -> None:
        async with ps.open(server.url) as app:
            runs = [await app.start(chain(30, its)) for its in deeds]
            for goal in (40, 110, 170):
                while sum(map(len, deeds)) < goal:  # noqa: ASYNC110 - whatever the runs do
                    await asyncio.sleep(0)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            results = await soon(asyncio.gather(*(run.result() for run in runs)))

            assert [result.status for result in results] == ["succeeded"] * 8
            assert deeds == [list(range(30))] * 8
            for run in runs:
                events = await app.store.load(run.id)
                assert [event.seq for event in events] == list(range(1, len(events) + 1))
                steps = Counter(event.step for event in events if isinstance(event, TaskCompleted))
                assert set(steps.values()) == {1}

    asyncio.run(main())


def test_what_is_taken_while_the_server_is_gone_arrives_when_it_is_back(server: Server) -> None:
    async def main() -> None:
        store = PostgresStore(server.url)
        journal = await begin(store)
        ears = Ears()
        journal.watch(ears)
        server.kill()
        for seq in range(2, 1002):
            journal.append(batch(seq))
        await ears.until(lambda heard: bool(heard.reasons))
        reading = asyncio.ensure_future(store.output(A, 1))  # of a run that is driven here: it waits
        assert (journal.durable, ears.arrivals) == (1, [])

        await asyncio.to_thread(server.start)
        await ears.until(lambda heard: heard.arrivals[-1:] == [1001])
        assert ears.reasons[-1] == ""
        assert ears.reasons[0], "why it stalled"
        assert list(await store.load(A)) == [*beginning(), *batch(2, 1000)]
        assert await soon(reading) is None
        await store.close()

    asyncio.run(main())


def test_a_server_that_does_not_answer_is_said_to_stall(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SILENCE", 0.2)

    async def main() -> None:
        store = PostgresStore(server.url)
        journal = await begin(store)
        ears = Ears()
        journal.watch(ears)
        server.freeze()
        try:
            journal.append(batch(2))
            await ears.until(lambda heard: heard.reasons == ["the server does not answer"])
            assert ears.arrivals == []
        finally:
            server.thaw()
        await ears.until(lambda heard: heard.arrivals == [2] and heard.reasons[-1] == "")
        await store.close()

    asyncio.run(main())


def test_a_reader_is_told_when_the_server_stays_away(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.store.postgres.store.PATIENCE", 0.2)

    async def main() -> None:
        store = PostgresStore(server.url)
        server.kill()
        with pytest.raises(StoreError, match="postgresql://"):
            await store.runs()
        await asyncio.to_thread(server.start)
        assert await store.runs() == []
        await store.close()

    asyncio.run(main())


# --- a connection that is cut ---


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: those of sockets must be."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


class Cut:
    """A store behind a wire, and one beside it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        far = parse_qs(urlsplit(url).query).get("host")
        if not far:
            pytest.skip("the server has no socket to put a wire to")
        self.wire = Wire(folder, Path(far[0]))
        self.near = url.replace(f"host={far[0]}", f"host={folder}")

    async def __aenter__(self) -> tuple[Wire, PostgresStore, PostgresStore]:
        await self.wire.__aenter__()
        self.store = await asyncio.to_thread(PostgresStore, self.near)
        self.beside = PostgresStore(self.url)
        return self.wire, self.store, self.beside

    async def __aexit__(self, *_: object) -> None:
        await self.store.close()
        await self.beside.close()
        await self.wire.__aexit__(None, None, None)


@pytest.fixture
def cut(url: str, folder: Path) -> Cut:
    return Cut(url, folder)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_whose_answer_is_lost_is_neither_repeated_nor_taken_for_lost(cut: Cut, when: str) -> None:
    async def main() -> None:
        async with cut as (wire, store, beside):
            journal = await begin(store)
            ears = Ears()
            journal.watch(ears)
            journal.append(batch(2, 3))
            await journal.sync()

            wire.cut(when, b"INSERT INTO events")
            journal.append(batch(5, 2))
            journal.note("succeeded", "")
            journal.append(batch(7))
            journal.append([TaskCompleted(8, 1.0, StepId("s"), "x" * 100_000)])
            await soon(journal.sync())

            assert wire.cuts == 1
            assert (ears.losses, ears.arrivals[-1], ears.reasons) == (0, 8, [])
            events = list(await beside.load(A))
            assert events[:7] == [*beginning(), *batch(2, 6)]
            assert len(events) == 8
            assert await beside.output(A, 8) == "x" * 100_000
            assert (await record(beside)).status == "succeeded"
            journal.append(batch(9))
            await journal.sync()
            assert len(await beside.load(A)) == 9

    asyncio.run(main())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_sealed_commit_whose_answer_is_lost_is_known_again(url: str, folder: Path, when: str) -> None:
    from penstock.store.sealed import Seal
    from penstock.testing.conformance.places import KEY

    place = Cut(url, folder)

    async def main() -> None:
        async with place.wire as wire:
            store = await asyncio.to_thread(lambda: PostgresStore(place.near, seal=Seal([KEY])))
            journal = await begin(store)
            ears = Ears()
            journal.watch(ears)
            wire.cut(when, b"INSERT INTO events")
            journal.append(batch(2))
            await soon(journal.sync())
            assert (wire.cuts, ears.losses, ears.arrivals) == (1, 0, [2])
            await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_whose_creation_was_not_confirmed_is_created_once(cut: Cut, when: str) -> None:
    async def main() -> None:
        async with cut as (wire, store, beside):
            await begin(store, B)
            wire.cut(when, b"INSERT INTO runs")
            journal = await soon(store.create(new(), beginning()))
            assert wire.cuts == 1
            journal.append(batch(2))
            await journal.sync()
            assert list(await beside.load(A)) == [*beginning(), *batch(2)]

    asyncio.run(main())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_that_was_taken_without_confirmation_is_ours(cut: Cut, when: str) -> None:
    async def main() -> None:
        async with cut as (wire, store, beside):
            (await begin(store)).release()
            wire.cut(when, b"INSERT INTO leases")
            journal = await soon(store.reopen(A))
            assert wire.cuts == 1
            with pytest.raises(Owned):
                await beside.reopen(A)
            journal.append(batch(2))
            await journal.sync()
            assert len(await beside.load(A)) == 2

    asyncio.run(main())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", ["given up", "cancelled"])
def test_a_run_that_could_not_be_created_in_time_never_was(
    cut: Cut, when: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "given up":
        monkeypatch.setattr("penstock.store.postgres.store.PATIENCE", 0.2)

    async def main() -> None:
        async with cut as (wire, store, beside):
            journal = await begin(store, B)
            wire.cut_for_good(when, b"INSERT INTO runs")
            creating = asyncio.ensure_future(store.create(new(), beginning()))
            if how == "cancelled":
                while not wire.cuts:  # noqa: ASYNC110 - the wire has no bell
                    await asyncio.sleep(0.01)
                creating.cancel()
            with pytest.raises(StoreError if how == "given up" else asyncio.CancelledError):
                await soon(creating)
            assert len(await beside.runs()) == (2 if when == "after" else 1)

            wire.down = False
            journal.append(batch(2))
            await soon(journal.sync())
            assert [found.run for found in await beside.runs()] == [B]
            assert rows(cut.url, "SELECT count(*) FROM events") == [(2,)]

    asyncio.run(main())


def test_a_child_waits_for_the_server_as_its_parent_does(cut: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.store.postgres.store.PATIENCE", 0.05)

    async def main() -> None:
        async with cut as (wire, store, beside):
            ears = Ears()
            (await begin(store, A)).watch(ears)
            wire.cut_for_good("before", b"INSERT INTO runs")
            creating = asyncio.ensure_future(store.create(new(B, parent=A), beginning()))
            await ears.until(lambda heard: bool(heard.reasons))
            assert (await asyncio.wait([creating], timeout=0.5))[0] == set()
            wire.down = False
            await soon(creating)
            assert len(await beside.runs()) == 2

    asyncio.run(main())


def test_a_command_whose_posting_was_not_confirmed_arrives_once(cut: Cut) -> None:
    async def main() -> None:
        async with cut as (wire, store, beside):
            await begin(beside)
            inbox = Inbox(beside)
            await store.mail.post(A, post("first"))
            wire.cut("after", b"INSERT INTO commands")
            await soon(store.mail.post(A, post("second")))
            await store.mail.post(A, post("third"))
            assert wire.cuts == 1
            assert await inbox.until(3) == ["first", "second", "third"]

    asyncio.run(main())


_HANG_UP = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
     WHERE pid <> pg_backend_pid() AND application_name = 'to be cut'
"""


def test_connections_that_are_cut_while_idle_are_made_again_without_a_word(url: str) -> None:
    async def main() -> None:
        store = PostgresStore(url.replace("&schema=", "&application_name=to%20be%20cut&schema="))
        journal = await begin(store)
        inbox = Inbox(store)
        ears = Ears()
        journal.watch(ears)
        await store.mail.post(A, post("before"))
        await inbox.until(1)
        store.mail.answered(A, "before", "")
        await journal.sync()
        ended = rows(url, _HANG_UP)
        assert ended[0][0] >= 3

        journal.append(batch(2))
        await soon(journal.sync())
        assert len(await store.load(A)) == 2
        await store.mail.post(A, post("after"))
        assert await inbox.until(2) == ["before", "after"]
        assert (ears.reasons, ears.losses) == ([], 0)
        await store.close()

    asyncio.run(main())


# --- others who use it ---


def test_two_apps_on_one_database_see_and_steer_each_others_runs(url: str) -> None:
    gate = threading.Event()

    async def main() -> None:
        async with ps.open(url) as one, ps.open(url) as two:
            run = await one.start(chain(3, [], at={1: gate.wait}))
            seen = (await two.store.runs())[0]
            assert (seen.run, seen.status) == (run.id, "running")
            assert seen.owner
            await two.send(run.id, ps.Message(text="from the other"))
            assert run.state.messages[-1]["text"] == "from the other"
            gate.set()
            await run.result()
            assert [(r.run, r.status) for r in await two.store.runs()] == [(run.id, "succeeded")]

    asyncio.run(main())


def test_who_follows_a_run_of_another_hears_of_its_events_at_once(url: str) -> None:
    async def main() -> None:
        one, two = PostgresStore(url), PostgresStore(url)
        journal = await begin(one)
        await two.follow(A, after=0, within=PATIENCE)  # there are some already

        async def hears_of(seq: int) -> None:
            while len(await two.load(A)) < seq:  # it may be told to look when there is nothing yet
                await two.follow(A, after=seq - 1, within=PATIENCE)

        for seq in range(2, 6):
            waiting = asyncio.ensure_future(hears_of(seq))
            journal.append(batch(seq))
            await asyncio.wait_for(waiting, PATIENCE / 2)
        await two.follow(A, after=5, within=0.01)  # nothing came: it returns all the same
        await one.close()
        await two.close()

    asyncio.run(main())


def test_an_owner_on_another_machine_is_believed_until_its_lease_expires(url: str) -> None:
    far = owner.Owner("another-host", "another-boot", 1, "1").encoded()
    same_name = owner.Owner(owner.me().host, "another-boot", 1, "1").encoded()

    async def main() -> None:
        store = PostgresStore(url)
        for run, process in ((A, far), (B, same_name)):
            (await begin(store, run)).release()
            await store.write([])
            sql = "INSERT INTO owners VALUES (%s, %s, now() + interval '1 hour')"
            rows(url, sql, run, process)
            rows(url, "INSERT INTO leases VALUES (%s, %s, 'theirs')", run, run)
            assert (await record(store, run)).owner
            with pytest.raises(Owned, match="process 1 on"):
                await store.reopen(run)
            rows(url, "UPDATE owners SET expires = now() WHERE owner = %s", run)

        async def take(run: RunId) -> None:
            """The server may have been started just now; then owners have time to come back."""
            while True:
                try:
                    await store.reopen(run)
                except Owned:
                    await asyncio.sleep(0.05)
                else:
                    return

        await soon(take(A))
        await soon(take(B))
        await store.close()

    asyncio.run(main())


def test_owners_have_time_to_come_back_after_the_server_was_down(server: Server) -> None:
    far = owner.Owner("another-host", "another-boot", 1, "1").encoded()

    async def main() -> None:
        store = PostgresStore(server.url)
        (await begin(store)).release()
        await store.write([])
        rows(server.url, "INSERT INTO owners VALUES ('x', %s, now() - interval '1 hour')", far)
        rows(server.url, "INSERT INTO leases VALUES ('a', 'x', 'theirs')")
        server.kill()
        server.start()
        with pytest.raises(Owned):
            await store.reopen(A)
        await store.close()

    asyncio.run(main())


def test_a_store_that_drives_runs_keeps_its_lease_fresh_and_gives_it_up_when_closed(url: str) -> None:
    expires = "SELECT max(expires) FROM owners"

    async def main() -> None:
        store = PostgresStore(url)
        await begin(store)
        first = rows(url, expires)
        async with asyncio.timeout(PATIENCE):
            while rows(url, expires) == first:  # noqa: ASYNC110 - the database is asked
                await asyncio.sleep(0.05)
        await store.close()

    asyncio.run(main())
    assert rows(url, "SELECT count(*) FROM owners") == [(0,)]
    assert rows(url, "SELECT count(*) FROM leases") == [(0,)]


# --- opening ---


def test_an_unreachable_server_is_said_to_be_unreachable_without_its_password() -> None:
    with pytest.raises(StoreError, match=r"postgresql://127\.0\.0\.1:1/nowhere") as caught:
        PostgresStore("postgresql://someone:hush@127.0.0.1:1/nowhere")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "bad", ["postgresql://h/db?nonsense=1", "postgresql://h/db?schema=", "postgresql://h:p/db"]
)
def test_a_url_that_makes_no_sense_is_refused(bad: str) -> None:
    with pytest.raises(StoreError):
        PostgresStore(bad)


def test_a_newer_schema_is_left_alone(url: str) -> None:
    asyncio.run(PostgresStore(url).close())
    rows(url, "UPDATE meta SET value = '99' WHERE name = 'version'")

    with pytest.raises(StoreError, match=r"newer Penstock \(schema 99"):
        PostgresStore(url)
    assert rows(url, "SELECT value FROM meta WHERE name = 'version'") == [(b"99",)]


def test_a_schema_of_another_program_is_left_alone(url: str) -> None:
    schema = url.rpartition("=")[2]
    rows(url, f"CREATE SCHEMA {schema} CREATE TABLE things (x int)")

    with pytest.raises(StoreError, match=r"another program.*schema="):
        PostgresStore(url)
    assert rows(url, "SELECT tablename FROM pg_tables WHERE schemaname = %s", schema) == [("things",)]


def test_many_that_open_a_new_database_at_once_make_its_tables_once(url: str) -> None:
    errors: list[Exception] = []

    def open_it() -> None:
        try:
            asyncio.run(PostgresStore(url).close())
        except Exception as error:  # noqa: BLE001 - whatever it is
            errors.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_schemas_of_one_database_are_stores_of_their_own(url: str) -> None:
    other = f"{url}_other"

    async def main() -> None:
        one, two = PostgresStore(url), PostgresStore(other)
        await begin(one)
        assert await two.runs() == []
        await begin(two)
        await one.close()
        await two.close()

    try:
        asyncio.run(main())
    finally:
        rows(other, f"DROP SCHEMA {other.rpartition('=')[2]} CASCADE")


def test_a_store_outlives_an_event_loop(url: str) -> None:
    store = PostgresStore(url)
    asyncio.run(_begin_and_read(store, A))
    asyncio.run(_begin_and_read(store, B))
    asyncio.run(store.close())


async def _begin_and_read(store: PostgresStore, run: RunId) -> None:
    await begin(store, run, more=3)
    assert len(await store.load(run)) == 4


def test_how_tasks_ended_can_be_asked_in_sql(url: str) -> None:
    async def main() -> None:
        async with ps.open(url) as app:
            await (await app.start(chain(3, []))).result()

    asyncio.run(main())
    found = rows(url, "SELECT step, iteration, item, attempt, status FROM tasks ORDER BY seq")
    assert found == [(f"n{i}", 1, None, 1, "succeeded") for i in range(3)]


def test_text_that_postgres_cannot_keep_holds_nobody_up(url: str) -> None:
    odd = "no \0 rain \udcff"

    async def main() -> None:
        store = PostgresStore(url)
        journal = await store.create(new(source=odd), beginning())
        Inbox(store)
        journal.note("failed", odd)
        journal.append(batch(2))
        await store.mail.post(A, post("hello"))
        store.mail.answered(A, "hello", odd)
        with pytest.raises(StoreError):
            await store.mail.post(A, post("hello", id="\0"))
        with pytest.raises(StoreError):
            await store.runs(run=odd)
        await soon(journal.sync())

        assert ((await record(store)).reason, (await store.mail.answer(A, "hello"))) == (
            "no \N{REPLACEMENT CHARACTER} rain ?",
        ) * 2
        assert len(await store.load(A)) == 2
        await store.close()

    asyncio.run(main())


def test_more_than_one_commit_can_hold_is_written_in_several(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MOST", 50_000)

    async def main() -> None:
        store = PostgresStore(url)
        journal = await begin(store)
        for seq in range(2, 42):
            journal.append([TaskCompleted(seq, 1.0, StepId("s"), "x" * 10_000)])
        await journal.sync()
        assert len(await store.load(A)) == 41
        await store.close()

    asyncio.run(main())
    assert len(rows(url, "SELECT id FROM events")) >= 8
