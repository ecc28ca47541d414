"""A file that a disk has damaged: an error that names it, or what was written, and never anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from vault import File, contents, fill

from penstock.errors import StoreError
from penstock.store.sealed import new_key
from penstock.store.sqlite.store import SqliteStore

PAGE = 4096
KEY = new_key()


@pytest.fixture(params=["plain", "sealed"])
def keys(request: pytest.FixtureRequest) -> list[str]:
    return [KEY] if request.param == "sealed" else []


def told(there: File, keys: list[str]) -> Any:
    try:
        return there.at(keys, contents)
    except StoreError as error:
        return error


def test_whichever_page_is_damaged_nobody_is_told_what_was_never_written(
    tmp_path: Path, keys: list[str]
) -> None:
    there = File(tmp_path / "penstock.db")
    there.at(keys, fill)
    whole, said = there.path.read_bytes(), there.at(keys, contents)

    errors = 0
    for page in range(len(whole) // PAGE):
        there.path.write_bytes(whole[: page * PAGE] + b"\xa5" * PAGE + whole[(page + 1) * PAGE :])
        found = told(there, keys)
        if isinstance(found, StoreError):
            errors += 1
            assert str(there.path) in str(found) or "damaged" in str(found) or "missing" in str(found), found
        else:
            assert found == said, f"page {page}"
    assert errors > len(whole) // PAGE // 2


def test_a_file_that_was_cut_short_is_an_error_that_names_it(tmp_path: Path, keys: list[str]) -> None:
    there = File(tmp_path / "penstock.db")
    there.at(keys, fill)
    whole = there.path.read_bytes()

    for part in (2, 4, 8):
        there.path.write_bytes(whole[: len(whole) // part])
        assert str(there.path) in str(told(there, keys))


def test_a_damaged_file_is_left_as_it_is(tmp_path: Path) -> None:
    there = File(tmp_path / "penstock.db")
    there.at([], fill)
    damaged = there.path.read_bytes()[: PAGE // 2] + b"\xa5" * 20 * PAGE
    there.path.write_bytes(damaged)

    with pytest.raises(StoreError):
        SqliteStore(there.path)

    assert there.path.read_bytes() == damaged
