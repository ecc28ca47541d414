"""A router from what is configured: the `[models]` table and the providers that the environment names.

Takes values and gives a router; reads neither files nor the environment. Without a tier in the table,
the models that are known for the providers stand in; with no provider either, what comes out
answers from the text it is given, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from penstock.errors import DefinitionError, Problem
from penstock.models.base import Provider
from penstock.models.catalog import AS_OF, KEYS, OWN, STANDARD, Catalog, default_tiers
from penstock.models.clocks import BootClock, Clock
from penstock.models.endpoint import KNOWN, Endpoint
from penstock.models.providers.extractive import Extractive
from penstock.models.providers.hosted import Hosted
from penstock.models.providers.http import Http
from penstock.models.router import Listener, Router
from penstock.models.shared import Shared
from penstock.models.tiers import EXTRACTIVE, NOTHING_SAID, USUAL, ModelsTable, Seat, SeatTable, Tiers
from penstock.policy.buckets import Dimension, Limit
from penstock.policy.bulkhead import HOSTED, LOCAL
from penstock.policy.health import LEAST, MOST
from penstock.workflow.findings import did_you_mean

FILE: Final = "models.db"
LOADING: Final = 30.0
"""Seconds that a model on this machine may need to be loaded before its first byte."""


class Assembled(Router):
    """A router that closes its connections with itself."""

    http: Http

    async def close(self) -> None:
        await super().close()
        await self.http.close()


def assemble(
    table: ModelsTable | None,
    catalog: Catalog,
    *,
    path: Path | None = None,
    clock: Clock | None = None,
    listener: Listener | None = None,
    providers: Mapping[str, Provider] | None = None,
) -> Assembled:
    """The router. `path` is the file to share health in; `providers` are others that are at hand."""
    table, clock, http = table or NOTHING_SAID, clock or BootClock(), Http()
    endpoints = catalog.endpoints()
    known: dict[str, Provider] = {"extractive": Extractive()}
    known |= {name: Hosted(to, http, prices=table.prices) for name, to in endpoints.items()}
    known |= providers or {}
    origin = ""
    if not table.tiers and (usual := default_tiers(catalog)):
        origin = f"default of {AS_OF}"
        # All of them are there: a workflow that asks for a tier without models gets the next one's, degraded.
        tables = {name: tuple(SeatTable(model=one) for one in usual.get(name, ())) for name in USUAL}
        default = table.default or (STANDARD if STANDARD in usual else next(iter(usual)))
        table = replace(table, tiers=tables, default=default)
    tiers = tiers_of(table, endpoints, frozenset(known), origin=origin)
    shared: Shared | None = None
    if path is not None:
        from penstock.models.shared_sqlite import SqliteShared

        shared = SqliteShared(path, clock)
    router = Assembled(tiers, known, prices=table.prices, shared=shared, clock=clock, listener=listener)
    router.http = http
    return router


def tiers_of(
    table: ModelsTable, endpoints: Mapping[str, Endpoint], known: frozenset[str], *, origin: str = ""
) -> Tiers:
    """The tiers with every seat found; an error that names each provider nobody has heard of."""
    problems: list[Problem] = []
    names = sorted({*KNOWN, *known})
    seats: dict[str, Seat] = {}
    tables = [(f"tiers.{name}", listed, origin) for name, listed in table.tiers.items()]
    tables += [("last_resort", table.backups, ""), ("embeddings", table.embeddings, "")]
    for where, listed, source in tables:
        for one in listed:
            provider = one.model.partition("/")[0]
            if provider not in names:
                hint = did_you_mean(provider, names) or f"{OWN}{provider.upper()} names one of your own"
                problems.append(Problem(f"unknown provider in {one.model!r}", hint, where=f"models.{where}"))
            else:
                seat = _seat(one, endpoints.get(provider), known)
                seats.setdefault(one.model, replace(seat, origin=source))
    if problems:
        raise DefinitionError(problems)
    last = EXTRACTIVE if table.last_resort == "extractive" else ""
    if last:
        seats.setdefault(last, _seat(SeatTable(model=last), None, known))
    return Tiers(
        seats=seats,
        order=tuple((name, tuple(one.model for one in listed)) for name, listed in table.tiers.items()),
        default=table.default,
        backups=tuple(one.model for one in table.backups),
        last_resort=last,
        when_busy=table.when_busy,
        embeddings=tuple(one.model for one in table.embeddings),
        likes={name: _seat(SeatTable(model=f"{name}/"), endpoints.get(name), known) for name in known},
        lane=table.lane,
        hedge=table.hedge,
    )


def _seat(one: SeatTable, endpoint: Endpoint | None, known: frozenset[str]) -> Seat:
    provider, _, model = one.model.partition("/")
    here = provider in known and endpoint is None
    local = here or (endpoint is not None and endpoint.local)
    missing = "" if provider in known else f"no key: set {KEYS.get(provider, 'its variables')}"
    kinds: tuple[tuple[Dimension, float | None], ...] = (("requests", one.rpm), ("tokens", one.tpm))
    least = one.first_byte or (LOADING if local and not here else LEAST)
    return Seat(
        provider=provider,
        model=model,
        lane=one.lane if one.lane is not None else 0 if local else 1,
        concurrency=one.concurrency or (LOCAL if local and not here else HOSTED),
        limits=tuple(Limit(dimension=kind, limit=limit) for kind, limit in kinds if limit),
        domain=one.domain,
        window=one.window,
        first_byte=(least, max(least, MOST)),
        stream=one.stream,
        missing=missing,
        fingerprint="" if endpoint is None else fingerprint(endpoint),
    )


def fingerprint(endpoint: Endpoint) -> str:
    """Another one for another key or address; the key cannot be told from it."""
    text = f"{endpoint.base}\n{endpoint.key.reveal()}"
    return blake2b(text.encode(), digest_size=4, person=b"penstock").hexdigest()
