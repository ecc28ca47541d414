"""Providers that go down and come back, clocks that are set, processes that share what they know."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from routing import HELLO, Bench, routed

import penstock
from penstock.models.base import Request
from penstock.models.calls import Unavailable
from penstock.models.router import Router
from penstock.models.shared import MemoryShared, Shared
from penstock.models.shared_sqlite import SqliteShared
from penstock.testing import faults
from penstock.testing.faults import Hangs
from penstock.testing.handclock import HandClock

DOWN = faults.failing("lab")


async def served(router: Router, **asked: str) -> str:
    return (await router.chat(HELLO, **asked)).served_by


async def take_down(bench: Bench, router: Router, name: str = "a", *, failures: int = 3) -> None:
    bench.server.script(name, *[DOWN] * failures)
    for _ in range(failures):
        assert await served(router) == "b/m"
    assert phase(router, name) == "open"


def phase(router: Router, name: str = "a") -> str:
    return next(one.breaker for one in router.report() if one.name == f"{name}/m")


@routed
async def test_a_provider_that_is_down_is_left_alone_and_looked_at_every_few_seconds(bench: Bench) -> None:
    router = bench.router(["a"], ["b"])
    await take_down(bench, router)
    bench.server.script_probes("a", DOWN, DOWN)

    for expected in (1, 2):
        await bench.clock.asleep()
        bench.clock.advance(2.1)
        await bench.clock.asleep()
        assert (bench.probes("a"), bench.asked("a"), phase(router)) == (expected, 3, "open")
    assert await served(router) == "b/m"
    bench.clock.advance(2.1)
    await bench_idle(router)

    assert phase(router) == "half_open"
    assert await served(router) == "a/m"
    assert phase(router) == "slow_start"


async def bench_idle(router: Router) -> None:
    """Until the probes have nothing left to do."""
    task = router._desk.probes._task
    if task is not None:
        await task


async def back_up(bench: Bench, router: Router) -> None:
    await bench.clock.asleep()
    bench.clock.advance(2.1)
    await bench_idle(router)


@routed
async def test_one_call_tries_a_provider_that_is_back_and_the_others_do_not_wait_for_it(bench: Bench) -> None:
    router = bench.router(["a"], ["b"])
    await take_down(bench, router)
    await back_up(bench, router)

    answers = await asyncio.gather(*(router.chat(HELLO) for _ in range(10)))

    assert sorted(one.served_by for one in answers) == ["a/m"] + ["b/m"] * 9


@routed
async def test_a_provider_that_is_back_gets_more_calls_with_every_success(bench: Bench) -> None:
    router = bench.router(["a"], ["b"])
    await take_down(bench, router)
    await back_up(bench, router)
    shares = []
    for _ in range(5):
        before = bench.asked("a")
        await asyncio.gather(*(router.chat(HELLO) for _ in range(8)))
        shares.append(bench.asked("a") - before)

    assert shares[0] == 1
    assert shares == sorted(shares)
    assert shares[-1] > 2


@pytest.mark.parametrize("turn", [faults.rate_limited("lab"), faults.wrong("lab")], ids=["429", "400"])
@routed
async def test_an_outcome_that_says_nothing_gives_the_slot_back(bench: Bench, turn: faults.Replies) -> None:
    router = bench.router(["a"], ["b"])
    await take_down(bench, router)
    await back_up(bench, router)
    bench.server.script("a", turn)

    await asyncio.gather(router.chat(HELLO), return_exceptions=True)
    bench.clock.advance(4.0)

    assert phase(router) == "half_open"
    assert await served(router) == "a/m"


@routed
async def test_a_cancelled_canary_gives_its_slot_back(bench: Bench) -> None:
    router = bench.router(["a"], ["b"])
    await take_down(bench, router)
    await back_up(bench, router)
    bench.server.script("a", Hangs())
    canary = asyncio.create_task(router.chat(HELLO))
    while bench.asked("a") < 4:  # noqa: ASYNC110 - until it has arrived
        await asyncio.sleep(0)

    assert await served(router) == "b/m"
    canary.cancel()
    await asyncio.gather(canary, return_exceptions=True)

    assert await served(router) == "a/m"


@routed
async def test_fifty_calls_in_flight_when_a_provider_dies_are_one_failure(bench: Bench) -> None:
    bench.server.script("a", *[DOWN] * 50)
    router = bench.router(["a"], ["b"])

    answers = await asyncio.gather(*(router.chat(HELLO) for _ in range(50)))

    assert {one.served_by for one in answers} == {"b/m"}
    (a, _) = router.report()
    assert a.trips == 1
    assert a.free_in is not None
    assert a.free_in <= 30.0


@routed
async def test_models_of_one_provider_are_doubted_when_half_of_them_are_down(bench: Bench) -> None:
    seats = {"a": {"domain": "east"}, "c": {"domain": "east"}}
    router = bench.router(["a"], ["c"], ["b"], seats=seats)
    bench.server.script("a", *[DOWN] * 3)
    for _ in range(3):
        await router.chat(HELLO)

    assert phase(router, "c") == "slow_start"  # it was doubted, one call tried it, and it was well
    assert phase(router, "b") == "closed"


@routed
async def test_a_refused_key_is_not_tried_again(bench: Bench) -> None:
    bench.server.script("a", faults.unauthorised("lab"))
    router = bench.router(["a"], ["b"])

    for _ in range(3):
        assert await served(router) == "b/m"
    bench.clock.advance(100_000.0)
    assert await served(router) == "b/m"

    assert bench.asked("a") == 1
    assert router.report()[0].why == "its key was refused"
    assert router.system_health() == 0.5


@routed
async def test_an_exhausted_quota_is_tried_once_an_hour(bench: Bench) -> None:
    bench.server.script("a", faults.quota("lab"), faults.quota("lab"))
    router = bench.router(["a"], ["b"])

    for _ in range(120):
        await router.chat(HELLO)
        bench.clock.advance(60.0)

    assert bench.asked("a") == 2


# --- clocks ---


@pytest.mark.parametrize("step", [3_600.0, -3_600.0], ids=["an hour ahead", "an hour back"])
@routed
async def test_setting_the_clock_during_a_cooldown_changes_nothing(
    bench: Bench, tmp_path: Path, step: float
) -> None:
    bench.server.script("a", faults.rate_limited("lab", "seconds", 60.0))
    router = bench.router(["a"], ["b"], path=tmp_path / "models.db")
    assert await served(router) == "b/m"

    bench.clock.step(step)
    bench.clock.advance(59.0)
    assert await served(router) == "b/m"
    other = bench.router(["a"], ["b"], path=tmp_path / "models.db")
    assert await served(other) == "b/m"
    assert bench.asked("a") == 1
    bench.clock.advance(1.3)

    assert await served(router) == "a/m"
    assert await served(other) == "a/m"


@routed
async def test_time_asleep_counts_for_a_cooldown(bench: Bench) -> None:
    bench.server.script("a", faults.rate_limited("lab", "seconds", 60.0))
    router = bench.router(["a"], ["b"])
    assert await served(router) == "b/m"

    bench.clock.advance(8 * 3_600.0)

    assert await served(router) == "a/m"


@pytest.mark.parametrize(("away", "expected"), [(10.0, "b/m"), (70.0, "a/m"), (-9_999.0, "b/m")])
@routed
async def test_a_cooldown_survives_a_reboot_and_is_never_longer_than_it_was(
    bench: Bench, tmp_path: Path, away: float, expected: str
) -> None:
    path = tmp_path / "models.db"
    bench.server.script("a", faults.rate_limited("lab", "seconds", 60.0))
    first = bench.router(["a"], ["b"], path=path)
    assert await served(first) == "b/m"
    await first.close()

    bench.clock.reboot(away)
    second = bench.router(["a"], ["b"], path=path)
    assert await served(second) == expected
    bench.clock.advance(61.0)

    assert await served(second) == "a/m"


# --- processes ---


@routed
async def test_what_one_has_found_down_the_other_never_calls(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "models.db"
    one, two = (bench.router(["a"], ["b"], path=path) for _ in range(2))
    await two.chat(HELLO, model="b/m")
    await take_down(bench, one)

    for _ in range(5):
        assert await served(two) == "b/m"

    assert bench.asked("a") == 3
    assert phase(two) == "open"
    assert two.system_health() == 0.5


@routed
async def test_only_one_of_two_probes_and_only_one_has_the_canary(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "models.db"
    one, two = (bench.router(["a"], ["b"], path=path) for _ in range(2))
    await take_down(bench, one)
    await two.chat(HELLO)
    await bench.clock.asleep(2)
    bench.clock.advance(2.1)
    await bench_idle(one)

    assert bench.probes("a") == 1
    assert phase(two) == "half_open"
    bench.server.script("a", Hangs())
    canary = asyncio.create_task(one.chat(HELLO))
    while bench.asked("a") < 4:  # noqa: ASYNC110 - until it has arrived
        await asyncio.sleep(0)
    assert [await served(two) for _ in range(3)] == ["b/m"] * 3
    canary.cancel()
    await asyncio.gather(canary, return_exceptions=True)
    bench.clock.advance(0.3)

    assert await served(two) == "a/m"
    assert phase(one) == "slow_start"


@routed
async def test_a_canary_that_takes_for_ever_does_not_keep_the_others_out(
    bench: Bench, tmp_path: Path
) -> None:
    path = tmp_path / "models.db"
    one, two = (bench.router(["a"], ["b"], path=path) for _ in range(2))
    await take_down(bench, one)
    await back_up(bench, one)
    bench.server.script("a", Hangs())
    patient = Request(messages=HELLO.messages, timeout=300.0)
    canary = asyncio.create_task(one.chat(patient))  # as an agent's turn may be; and then its process dies
    while bench.asked("a") < 4:  # noqa: ASYNC110 - until it has arrived
        await asyncio.sleep(0)

    bench.clock.advance(100.0)
    assert await served(two) == "b/m"
    bench.clock.advance(30.0)
    assert await served(two) == "a/m"

    canary.cancel()
    await asyncio.gather(canary, return_exceptions=True)


@routed
async def test_a_limit_is_counted_by_all_together(bench: Bench, tmp_path: Path) -> None:
    from penstock.policy.buckets import Limit

    seats = {"a": {"limits": (Limit(dimension="requests", limit=10),)}}
    path = tmp_path / "models.db"
    one, two = (bench.router(["a"], ["b"], path=path, seats=seats) for _ in range(2))
    for _ in range(10):
        for router in (one, two):
            await router.chat(HELLO)
            router._desk.flush()

    assert bench.asked("a") == 10


PROCESS = """
import asyncio, json, sys
from penstock.models.base import Request, user
from penstock.models.clocks import BootClock
from penstock.models.endpoint import compatible
from penstock.models.providers.hosted import Hosted
from penstock.models.providers.http import Http
from penstock.models.router import Router
from penstock.models.shared_sqlite import SqliteShared
from penstock.models.tiers import Seat, Tiers

async def main(url, path, calls):
    clock, http = BootClock(), Http()
    providers = {n: Hosted(compatible(n, f"{url}/{n}/v1", "k"), http) for n in "ab"}
    tiers = Tiers(
        seats={f"{n}/m": Seat(provider=n, model="m") for n in "ab"},
        order=(("one", ("a/m",)), ("two", ("b/m",))), last_resort="",
    )
    async with Router(tiers, providers, shared=SqliteShared(path, clock), clock=clock) as router:
        for _ in range(calls):
            answer = await router.chat(Request(messages=(user("Hi"),), timeout=10.0))
            print(json.dumps(answer.served_by), flush=True)
    await http.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@routed
async def test_a_second_process_knows_what_the_first_has_found_out(bench: Bench, tmp_path: Path) -> None:
    for name in "ab":
        bench.server.endpoint("lab", name=name)
    bench.server.script("a", *[DOWN] * 100)
    bench.server.script_probes("a", *[DOWN] * 100)  # a slow machine may look whether it is back

    async def process(calls: int) -> list[str]:
        args = [sys.executable, "-c", PROCESS, bench.server.url, str(tmp_path / "models.db"), str(calls)]
        env = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
        done = await asyncio.to_thread(
            subprocess.run, args, capture_output=True, text=True, env=env, check=False
        )
        assert not done.stderr, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert await process(4) == ["b/m"] * 4
    assert bench.asked("a") == 3
    assert await process(5) == ["b/m"] * 5

    assert bench.asked("a") == 3


@routed
async def test_a_file_that_is_no_database_costs_nothing_but_the_sharing(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "models.db"
    path.write_bytes(b"not a database at all, and quite long enough to be looked at" * 20)
    router = bench.router(["a"], ["b"], path=path)

    await take_down(bench, router)

    assert await served(router) == "b/m"


@routed
async def test_a_file_that_another_process_holds_does_not_stop_a_call(bench: Bench, tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "models.db"
    router = bench.router(["a"], ["b"], path=path)
    await router.chat(HELLO)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    await take_down(bench, router)
    assert await served(router) == "b/m"
    holder.execute("COMMIT")
    router._desk.flush()
    holder.close()

    other = bench.router(["a"], ["b"], path=path)
    assert phase(other) == "open"


def test_many_processes_may_open_the_file_for_the_first_time_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from penstock.models.clocks import BootClock;"
        "from penstock.models.shared_sqlite import SqliteShared;"
        "one = SqliteShared(sys.argv[1], BootClock());"
        "assert one.claim(sys.argv[2], 'me', seconds=60) and not one.trouble, one.trouble"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    args = [sys.executable, "-c", code, str(tmp_path / "models.db")]
    running = [subprocess.Popen([*args, f"slot-{n}"], env=env) for n in range(6)]

    assert [one.wait(30) for one in running] == [0] * 6
    last = SqliteShared(tmp_path / "models.db", HandClock(boot="another"))
    assert last._db is not None
    assert last._db.execute("SELECT count(*) FROM slots").fetchone() == (6,)
    last.close()


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "models.db"
    theirs = sqlite3.connect(path)
    theirs.execute("CREATE TABLE states (precious)")
    theirs.commit()

    shared = SqliteShared(path, HandClock())

    assert "another program" in shared.trouble
    assert theirs.execute("SELECT count(*) FROM states").fetchone() == (0,)
    theirs.close()


# --- the port ---


@pytest.fixture(params=["memory", "sqlite"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    clock = HandClock()
    if request.param == "memory":
        return MemoryShared(clock)
    return SqliteShared(tmp_path / "models.db", clock)


def test_a_slot_has_one_holder_until_it_is_released_or_its_time_is_up(shared: Shared) -> None:
    clock = shared._clock  # type: ignore[attr-defined]

    assert shared.claim("canary:a", "one", seconds=10.0)
    assert shared.claim("canary:a", "one", seconds=10.0)
    assert not shared.claim("canary:a", "two", seconds=10.0)
    shared.release("canary:a", "two")
    assert not shared.claim("canary:a", "two", seconds=10.0)
    clock.advance(10.0)
    assert shared.claim("canary:a", "two", seconds=10.0)
    shared.release("canary:a", "two")
    assert shared.claim("canary:a", "one", seconds=10.0)
    shared.close()


@routed
async def test_nobody_is_asked_when_everyone_is_off(bench: Bench) -> None:
    router = bench.router(["a"], seats={"a": {"missing": "no key: set LAB_KEY"}})

    with pytest.raises(Unavailable) as caught:
        await router.chat(HELLO)

    assert "no key: set LAB_KEY" in str(caught.value)
    assert caught.value.retry_after == float("inf")
