"""Ten thousand calls to providers that fail in every way known: none is lost, and nothing piles up.

    python benchmarks/model_faults.py [--calls 10000] [--at-once 16] [--seed 1]

Real HTTP on loopback. Each call must end in an answer or in an error of ours, and be told to the
listener once. Prints one JSON line: what came of the calls, the longest queue, and the memory that the
router holds after a fifth of the calls and at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import random
import time
import tracemalloc
from collections import Counter
from itertools import count

from penstock.errors import PenstockError
from penstock.models.base import Provider, Request, user
from penstock.models.calls import CallRecord
from penstock.models.providers.extractive import Extractive
from penstock.models.providers.hosted import Hosted
from penstock.models.providers.http import Http
from penstock.models.router import Router
from penstock.models.tiers import EXTRACTIVE, Seat, Tiers
from penstock.testing import faults
from penstock.testing.faults import Cuts, Drops, Ends, Errs, Floods, Hangs, Stalls
from penstock.testing.handclock import HandClock
from penstock.testing.models import ModelServer, Turn
from penstock.testing.wires import Says

KINDS = ("openai", "azure", "gemini", "anthropic", "ollama")


def ways(kind: str) -> list[Turn]:
    """Every way in which a provider of this kind fails, and one in which it does not."""
    found: list[Turn] = [
        *[Says()] * 12, faults.failing(kind), faults.overloaded(kind), faults.quota(kind),
        faults.too_long(kind), faults.wrong(kind), faults.unknown_model(kind), faults.NOT_JSON,
        faults.HALF_JSON, faults.NOT_AN_ANSWER,
        Hangs(), Drops(), Stalls(1), Cuts(1), Ends(1), Errs(faults.overloaded(kind)), Floods(200_000),
        Says(end="refused"), Says(end="length"), Says(text=""),
    ]  # fmt: skip
    found += [faults.rate_limited(kind, form) for form in ("seconds", "ms", "date", "body", "reset", "none")]
    return found


def held() -> int:
    """Bytes that the router, the providers and the policies hold; not the server's, nor this script's."""
    gc.collect()
    ours = [tracemalloc.Filter(True, f"*/penstock/{part}/*") for part in ("models", "policy")]
    found = tracemalloc.take_snapshot().filter_traces(ours).statistics("filename")
    return sum(one.size for one in found)


async def trial(calls: int, at_once: int, seed: int) -> dict[str, object]:
    chance = random.Random(seed)  # noqa: S311 - to be repeatable
    records: Counter[str] = Counter()
    told: Counter[int] = Counter()

    def listener(record: CallRecord) -> None:
        told[int(record.call.rpartition("-")[2])] += 1  # not the id: it would count as the router's
        for attempt in record.attempts:
            records[attempt.kind or "ok"] += 1

    async with ModelServer() as server, Http() as http:
        providers: dict[str, Provider] = {kind: Hosted(server.endpoint(kind), http) for kind in KINDS}
        seats = {
            f"{kind}/m": Seat(provider=kind, model="m", first_byte=(0.3, 0.5), concurrency=3)
            for kind in KINDS
        }
        order = (
            ("one", tuple(f"{kind}/m" for kind in KINDS[:3])),
            ("two", tuple(f"{k}/m" for k in KINDS[3:])),
        )
        providers["extractive"] = Extractive()
        seats[EXTRACTIVE] = Seat(provider="extractive", model="extractive", lane=0)
        clock = HandClock()
        tiers = Tiers(seats=seats, order=order)
        async with Router(tiers, providers, clock=clock, listener=listener, chance=chance.random) as router:
            outcomes: Counter[str] = Counter()
            longest, numbers = 0, count()

            async def worker() -> None:
                nonlocal longest
                while (number := next(numbers)) < calls:
                    for kind in KINDS:
                        if len(server._scripts[kind]) < at_once:  # noqa: SLF001 - never empty
                            server.script(kind, *chance.sample(ways(kind), 5))
                    clock.advance(chance.choice((0.0, 0.0, 0.5, 40.0, 90_000.0)))
                    await asyncio.sleep(0.005)  # let those under way get on
                    longest = max(longest, router.waiting)
                    try:
                        request = Request(messages=(user("Hello?"),), timeout=1e9, idle=0.1)
                        answer = await router.chat(
                            request,
                            priority=chance.choice(("high", "medium", "low")),
                            model=chance.choice(
                                ("", "", f"{KINDS[number % 5]}/m")
                            ),  # some will have this one
                        )
                    except PenstockError as error:
                        outcomes[type(error).__name__] += 1
                    else:
                        outcomes[answer.label or "answered"] += 1
                    if number % 100 == 0:
                        server.calls.clear()

            async def ticking() -> None:
                while True:
                    await asyncio.sleep(0.002)
                    clock.advance(0.5)

            ticks = asyncio.create_task(ticking())
            warm = calls // 5
            everyone = [asyncio.create_task(worker()) for _ in range(at_once)]
            while sum(outcomes.values()) < warm:  # noqa: ASYNC110 - nobody is there to tell
                await asyncio.sleep(0.01)
            before = held()
            await asyncio.gather(*everyone)
            after = held()
            ticks.cancel()
            busy = sum(one.in_flight for one in router.report())
        return {
            "calls": calls,
            "ended": sum(outcomes.values()),
            "told_once": sum(number == 1 for number in told.values()),
            "outcomes": dict(outcomes),
            "attempts": dict(records),
            "longest_queue": longest,
            "still_in_flight": busy,
            "still_waiting": router.waiting,
            "kb_after_a_fifth": round(before / 1024),
            "kb_at_the_end": round(after / 1024),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.disable()  # the server complains of connections that we closed
    tracemalloc.start()
    began = time.monotonic()
    found = asyncio.run(trial(given.calls, given.at_once, given.seed))
    print(json.dumps({**found, "seconds": round(time.monotonic() - began, 1)}))


if __name__ == "__main__":
    main()
