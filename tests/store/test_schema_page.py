"""What the documentation says of the tables is what the tables are, and its queries find something."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from penstock import app
from penstock.ids import CommandId
from penstock.run.commands import Pause
from penstock.settings import Settings
from penstock.store.base import CheckpointRecord
from penstock.store.sealed import is_sealed, new_key
from penstock.tools.functions import tool
from penstock.workflow.builder import WorkflowBuilder

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCHEMA, SEALING = DOCS / "reference" / "schema.md", DOCS / "howto" / "encrypt-at-rest.md"
QUERIES = re.findall(r"^```sql\n(.*?)^```$", SCHEMA.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@tool(effect="read")
async def total(n: int) -> int:
    return n


@tool(effect="read")
async def fail() -> None:
    raise ValueError("no luck")


def flow() -> WorkflowBuilder:
    flow = WorkflowBuilder("orders")
    flow.step("total", total, n=5)
    flow.step("after", total, n=6, needs=["total"])
    flow.step("unlucky", fail, on_error="continue")
    return flow


def filled(path: Path, key: str = "") -> None:
    """A store with something of almost everything: a run, a fork, a command, a checkpoint, an example."""

    async def fill() -> None:
        async with app.Penstock(Settings(store=f"sqlite:///{path}", key=key)) as penstock:
            run = await penstock.start(flow())
            await run.result()
            await (await penstock.fork(run.id, at=3)).result()
            await penstock.store.mail.post(run.id, Pause(id=CommandId("c")))
            kept = CheckpointRecord(checkpoint=f"{run.id}@3", run=run.id, seq=3, at=1.0, layer=0, size=2)
            penstock.store.checkpoints.save(kept, b"{}", keep=5)
            failed = {"workflow": "orders", "step": "total", "tool": "local:total", "at": 1.0, "expires": 2.0}
            await penstock.store.examples.add("e", failed)

    asyncio.run(fill())


def cells(page: Path) -> list[list[str]]:
    """The rows of the table that is marked as one of columns."""
    after = page.read_text(encoding="utf-8").split("<!-- columns -->\n")[1]
    rows = after.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def named(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)


def tables(path: Path) -> dict[str, list[str]]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        return {name: columns(db, name) for (name,) in found.fetchall()}


def columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "penstock.db"
    filled(path)
    return path


def test_every_table_and_column_is_documented(path: Path) -> None:
    documented: dict[str, list[str]] = defaultdict(list)
    table = ""
    for name, names, _ in cells(SCHEMA):
        table = named(name)[0] if name else table
        documented[table] += named(names)

    assert {t: sorted(c) for t, c in documented.items()} == {t: sorted(c) for t, c in tables(path).items()}


def test_every_view_and_its_columns_are_documented(path: Path) -> None:
    page = SCHEMA.read_text(encoding="utf-8")
    with contextlib.closing(sqlite3.connect(path)) as db:
        views = [
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall()
        ]
        for view in views:
            row = re.search(rf"^\| `{view}` \|(.*)$", page, re.MULTILINE)
            assert row is not None
            assert named(row[1].split("|")[1]) == columns(db, view)


@pytest.mark.parametrize("query", QUERIES, ids=[query.split("\n")[0][:40] for query in QUERIES])
def test_every_query_of_the_page_can_be_asked(query: str, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        found: list[Any] = db.execute(query).fetchall()

    if "decisions" not in query and "leases" not in query:
        assert found


def test_what_stays_readable_is_what_the_page_says(tmp_path: Path) -> None:
    path = tmp_path / "sealed.db"
    filled(path, new_key())
    said = {named(table)[0]: (named(plain), named(sealed)) for table, plain, sealed in cells(SEALING)}

    assert {t: sorted(plain + sealed) for t, (plain, sealed) in said.items()} == {
        t: sorted(c) for t, c in tables(path).items()
    }
    with contextlib.closing(sqlite3.connect(path)) as db:
        for table, (plain, sealed) in said.items():
            for column in sealed:
                values = [row[0] for row in db.execute(f"SELECT {column} FROM {table}")]  # noqa: S608 - our names
                assert all(is_sealed(value) for value in values), (table, column)
                assert values or table == "blobs"
            for column in plain:
                for (value,) in db.execute(f"SELECT {column} FROM {table}"):  # noqa: S608 - our names
                    assert not isinstance(value, bytes)
        for view in ("history", "tasks", "decisions"):
            assert db.execute(f"SELECT * FROM {view}").fetchall() == []  # noqa: S608 - our names
