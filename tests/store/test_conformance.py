"""Every store answers the same sentences."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.store.base import Store
from penstock.store.memory import MemoryStore
from penstock.store.sealed import NoSeal, Seal
from penstock.store.sqlite.store import SqliteStore
from penstock.testing.conformance.sharing import SECRET, tell_all
from penstock.testing.conformance.store import KEY, Place, Sentence, named, sentences


class InMemory(Place):
    lasting = False

    def __init__(self, request: pytest.FixtureRequest) -> None:
        pass

    def open(self, *keys: str) -> Store:  # noqa: ARG002 - it has no place for a key
        return MemoryStore()


class InSqlite(Place):
    upkeep = True

    def __init__(self, request: pytest.FixtureRequest) -> None:
        folder: Path = request.getfixturevalue("tmp_path")
        self.path = folder / "penstock.db"
        self.program = (
            "from penstock.store.sqlite.store import SqliteStore; from penstock.store.sealed import Seal;"
            f"store = SqliteStore({str(self.path)!r}, seal={_seal_source(self)})"
        )

    def open(self, *keys: str) -> Store:
        return SqliteStore(self.path, seal=_seal(self, keys))

    def raw(self) -> bytes:
        return b"".join(file.read_bytes() for file in sorted(self.path.parent.glob("penstock.db*")))


class InPostgres(Place):
    upkeep = True

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.url: str = request.getfixturevalue("url")
        self.program = (
            "from penstock.store.postgres.store import PostgresStore; from penstock.store.sealed import Seal;"
            f"store = PostgresStore({self.url!r}, seal={_seal_source(self)})"
        )

    def open(self, *keys: str) -> Store:
        from penstock.store.postgres.store import PostgresStore

        return PostgresStore(self.url, seal=_seal(self, keys))

    def raw(self) -> bytes:
        import psycopg

        server, _, schema = self.url.partition("&schema=")
        with psycopg.connect(server) as db:
            tables = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
            rows = [
                row
                for (table,) in tables
                for row in db.execute(f"SELECT * FROM {schema}.{table}").fetchall()  # noqa: S608 - its own names
            ]
        return b"".join(
            value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row
        )


class InSealedSqlite(InSqlite):
    sealed = True


class InSealedPostgres(InPostgres):
    sealed = True


def _seal(place: Place, keys: tuple[str, ...]) -> Seal | NoSeal:
    return Seal(keys or (KEY,)) if place.sealed else NoSeal()


def _seal_source(place: Place) -> str:
    return f"Seal([{KEY!r}])" if place.sealed else "None"


KINDS: list[Callable[[pytest.FixtureRequest], Place]] = [
    InMemory,
    InSqlite,
    InSealedSqlite,
    InPostgres,
    InSealedPostgres,
]

CASES = [
    pytest.param(kind, sentence, id=f"{kind.__name__}: {named(sentence)}")
    for kind in KINDS
    for sentence in sentences(kind)
]


@pytest.mark.parametrize(("kind", "sentence"), CASES)
def test_every_store_does_what_a_store_must(
    kind: type[Place], sentence: Sentence, request: pytest.FixtureRequest
) -> None:
    asyncio.run(sentence(kind(request)))


@pytest.mark.parametrize("kind", [InSqlite, InPostgres])
def test_what_is_not_sealed_can_be_read_so_the_sentence_about_sealing_means_something(
    kind: type[InSqlite | InPostgres], request: pytest.FixtureRequest
) -> None:
    place = kind(request)

    async def main() -> None:
        store = place.open()
        await tell_all(store)
        await store.close()

    asyncio.run(main())
    assert place.raw().count(SECRET.encode()) >= 5
