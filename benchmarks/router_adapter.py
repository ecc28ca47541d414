"""Penstock's router under the router bench: its scenarios, its mocks, its clock.

    python benchmarks/router_adapter.py BENCH [--only overhead,a429] [--out FILE] …

`BENCH` is the folder of the bench (`run.py`, `iface.py`, `adapters/`); everything after it goes to
its `run.py`. `--adapter NAME` runs one of the bench's own adapters instead, for comparison. With
`--opts '{"path": "models.db"}'` state is shared in a file. The bench's rules hold: A is preferred,
B is the healthy backup, and there is no last resort.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from penstock.models.base import Request, user
from penstock.models.clocks import BootClock
from penstock.models.endpoint import compatible
from penstock.models.providers.hosted import Hosted
from penstock.models.providers.http import Http
from penstock.models.router import Router
from penstock.models.shared_sqlite import SqliteShared
from penstock.models.tiers import Seat, Tiers
from penstock.policy.buckets import Limit

MODEL = "mock"
ROOM = 256
"""Calls at once: more than any scenario has, since the bench does not limit its providers."""

PRIORITIES = {0: "low", 1: "medium", 2: "high"}


class Adapter:
    name = "penstock"

    def __init__(self, providers: Any, *, room: int = ROOM, hedge: bool = False, path: str = "") -> None:
        self._http = Http()
        hosted = {one.name: Hosted(compatible(one.name, one.base_url, "x"), self._http) for one in providers}
        seats = {
            f"{one.name}/{MODEL}": Seat(
                provider=one.name,
                model=MODEL,
                concurrency=one.max_concurrency or room,
                limits=tuple(_limits(one)),
            )
            for one in providers
        }
        by_tier: dict[int, list[str]] = {}
        for one in providers:
            by_tier.setdefault(one.tier, []).append(f"{one.name}/{MODEL}")
        order = tuple((f"tier-{number}", tuple(names)) for number, names in sorted(by_tier.items()))
        clock = BootClock()
        self._router = Router(
            Tiers(seats=seats, order=order, last_resort="", hedge=hedge),
            hosted,
            shared=SqliteShared(path, clock) if path else None,
            clock=clock,
        )

    async def call(self, prompt: str, *, timeout: float, priority: int = 1) -> Any:  # noqa: ASYNC109 - the bench's
        from iface import Result

        request = Request(messages=(user(prompt),), timeout=timeout)
        level: Any = PRIORITIES[priority]
        answer = await self._router.chat(request, priority=level)
        return Result(
            answer.served_by.partition("/")[0],
            answer.text,
            degraded=answer.degraded,
            attempts=answer.attempts,
        )

    async def aclose(self) -> None:
        await self._router.close()
        await self._http.close()


def _limits(one: Any) -> list[Limit]:
    found = [("requests", one.rpm), ("tokens", one.tpm)]
    return [Limit(dimension=name, limit=limit) for name, limit in found if limit]  # type: ignore[arg-type]


def make(providers: Any, **opts: Any) -> Adapter:
    return Adapter(providers, **opts)


def main() -> None:
    if len(sys.argv) < 2 or not (Path(sys.argv[1]) / "run.py").is_file():
        raise SystemExit(__doc__)
    bench = Path(sys.argv[1]).resolve()
    given = sys.argv[2:]
    sys.modules["adapters.penstock"] = sys.modules[__name__]
    if not any(one.startswith("--adapter") for one in given):
        given = ["--adapter", "penstock", *given]
    sys.argv = [str(bench / "run.py"), *given]
    sys.path.insert(0, str(bench))
    sys.dont_write_bytecode = True
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
