"""A store that cannot be used: one clear message, code 2, and the file stays as it is."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

FLOW = '{id: a, uses: "py:tools:look", with: {value: 1}}'
KEY, OTHER = "a" * 43, "b" * 43

VERBS = {
    "run": ["run", "flow.yaml"],
    "runs": ["runs"],
    "show": ["show", "last"],
    "events": ["events", "last"],
    "watch": ["watch", "last"],
    "resume": ["resume", "last"],
    "fork": ["fork", "last"],
    "send": ["send", "last", "pause"],
    "abort": ["abort", "last"],
    "decide": ["decide", "--list"],
    "worker": ["worker", "--once"],
}


@pytest.fixture
def database(folder: Path, write) -> Path:
    write(FLOW)
    path = folder / ".penstock" / "penstock.db"
    path.parent.mkdir()
    return path


@pytest.mark.parametrize("args", VERBS.values(), ids=VERBS)
def test_a_file_that_is_no_database_is_refused(cli, database: Path, args: list[str], ledger) -> None:
    database.write_bytes(b"this is not a database" * 500)

    done = cli(*args)

    assert done.code == 2
    assert done.stdout == ""
    assert done.messages == [
        ".penstock/penstock.db: file is not a database; choose another file with --store"
    ]
    assert database.read_bytes() == b"this is not a database" * 500
    assert ledger() == []


@pytest.mark.parametrize("args", [VERBS["run"], VERBS["show"], VERBS["resume"]], ids=lambda args: args[0])
def test_a_database_of_a_newer_penstock_is_refused(cli, database: Path, args: list[str]) -> None:
    assert cli("run", "flow.yaml", "-q").code == 0
    with sqlite3.connect(database) as db:
        db.execute("PRAGMA user_version = 999")
    db.close()

    done = cli(*args)

    assert done.code == 2
    assert len(done.messages) == 1
    assert "written by a newer Penstock (schema 999" in done.messages[0]


def test_a_database_of_another_program_is_refused(cli, database: Path) -> None:
    with sqlite3.connect(database) as db:
        db.execute("CREATE TABLE theirs (n INTEGER)")
    db.close()

    done = cli("run", "flow.yaml")

    assert done.code == 2
    assert "a database of another program" in done.stderr


@pytest.mark.parametrize("key", [OTHER, ""])
@pytest.mark.parametrize("args", [VERBS["run"], VERBS["show"], VERBS["worker"]], ids=lambda args: args[0])
@pytest.mark.usefixtures("database")
def test_a_wrong_key_is_refused(cli, args: list[str], key: str) -> None:
    assert cli("run", "flow.yaml", "-q", PENSTOCK_KEY=KEY).code == 0

    done = cli(*args, PENSTOCK_KEY=key)

    assert done.code == 2
    assert len(done.messages) == 1
    assert ("sealed with another key" if key else "there is no key") in done.messages[0]
    assert cli("show", "last", "--json", PENSTOCK_KEY=KEY).lines[0]["status"] == "succeeded"


@pytest.mark.parametrize("args", [["runs"], ["show", "last"], ["resume", "last"], ["worker", "--once"]])
def test_a_store_that_forgets_everything_has_nothing_to_show(cli, args: list[str]) -> None:
    done = cli(*args, "--store", "memory:")

    assert done.code == 2
    assert "memory:" in done.stderr


def test_a_store_that_is_not_there_is_not_made_by_looking(cli, folder: Path) -> None:
    done = cli("show", "last", "--store", "sqlite:///nowhere/x.db")

    assert done.code == 2
    assert done.messages == ["there is no store at nowhere/x.db yet: nothing has been run here"]
    assert not (folder / "nowhere").exists()


@pytest.mark.usefixtures("database")
def test_the_store_is_named_by_flag_variable_and_file_in_that_order(cli, folder: Path) -> None:
    (folder / "penstock.toml").write_text('store = "sqlite:///file.db"\n')

    for args, env in ((["--store=sqlite:///flag.db"], "variable"), ([], "variable"), ([], "")):
        given = {"PENSTOCK_STORE": f"sqlite:///{env}.db"} if env else {}
        assert cli("run", "flow.yaml", "-q", *args, **given).code == 0

    assert {path.stem for path in folder.glob("*.db")} == {"flag", "variable", "file"}
    assert [
        cli("runs", "--json", "--store", f"sqlite:///{n}.db").lines[0]["status"] for n in ("flag", "file")
    ]
