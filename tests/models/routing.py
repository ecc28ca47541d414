"""A router with candidates on a loopback server, and a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from penstock.models.base import Provider, Request, user
from penstock.models.calls import CallRecord
from penstock.models.prices import Price
from penstock.models.providers.extractive import Extractive
from penstock.models.providers.hosted import Hosted
from penstock.models.providers.http import Http
from penstock.models.router import Router
from penstock.models.shared_sqlite import SqliteShared
from penstock.models.tiers import EXTRACTIVE, Seat, Tiers
from penstock.testing.handclock import HandClock
from penstock.testing.models import ModelServer

HELLO = Request(messages=(user("Hello?"),), timeout=20.0)
PRICES = {"m": Price(input=2.0, output=10.0)}


class Bench:
    """A server, a clock and the routers of a test."""

    def __init__(self, server: ModelServer, http: Http) -> None:
        self.server = server
        self.http = http
        self.clock = HandClock()
        self.records: list[CallRecord] = []
        self.routers: list[Router] = []

    def router(
        self,
        *tiers: list[str],
        backups: list[str] | None = None,
        last: bool = False,
        kind: str = "lab",
        path: Path | None = None,
        clock: HandClock | None = None,
        chance: Callable[[], float] = lambda: 0.5,
        seats: dict[str, dict[str, Any]] | None = None,
        listener: Any = None,
        **more: Any,
    ) -> Router:
        """Tiers `tier-0`, `tier-1` … of providers that all have a model `m`."""
        clock = clock or self.clock
        behind = backups or []
        names = [name for tier in [*tiers, behind] for name in tier]
        providers: dict[str, Provider] = {
            name: Hosted(self.server.endpoint(kind, name=name), self.http, prices=PRICES) for name in names
        }
        made = {f"{name}/m": Seat(provider=name, model="m", **(seats or {}).get(name, {})) for name in names}
        if last:
            providers["extractive"] = Extractive()
            made[EXTRACTIVE] = Seat(provider="extractive", model="extractive", lane=0)
        order = tuple((f"tier-{n}", tuple(f"{name}/m" for name in tier)) for n, tier in enumerate(tiers))
        router = Router(
            Tiers(
                seats=made,
                order=order,
                backups=tuple(f"{name}/m" for name in behind),
                last_resort=EXTRACTIVE if last else "",
                **more,
            ),
            providers,
            prices=PRICES,
            shared=SqliteShared(path, clock) if path else None,
            clock=clock,
            listener=listener or self.records.append,
            chance=chance,
        )
        self.routers.append(router)
        return router

    def asked(self, name: str) -> int:
        return len(self.server.asked(name))

    def probes(self, name: str) -> int:
        return sum(one.provider == name and one.operation == "probe" for one in self.server.calls)


def routed(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test that takes a `Bench` first."""

    async def main(*args: Any, **kwargs: Any) -> None:
        async with ModelServer() as server, Http() as http:
            bench = Bench(server, http)
            try:
                await test(bench, *args, **kwargs)
            finally:
                for router in bench.routers:
                    await router.close()

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(main(*args, **kwargs))

    signature = inspect.signature(test)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
    return run
