"""`penstock rotate-key`: another key, a first one, or none; and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.store.sealed import new_key

OLD, NEW, THIRD = new_key(), new_key(), new_key()
SECRET = "Rumpelstiltskin"  # noqa: S105 - what must not be readable


@pytest.fixture
def sealed(cli, write) -> str:
    """A run in a store that is sealed with the old key; its id."""
    flow = write(f'{{id: a, uses: "py:tools:look", with: {{value: {SECRET}}}}}')
    id: str = cli("run", flow, "--json", PENSTOCK_KEY=OLD).lines[-1]["run_id"]
    return id


def readable(folder: Path) -> bool:
    return any(SECRET.encode() in file.read_bytes() for file in (folder / ".penstock").iterdir())


def test_everything_is_sealed_with_the_first_key_and_the_others_can_go(
    cli, sealed: str, folder: Path
) -> None:
    done = cli("rotate-key", PENSTOCK_KEY=f"{NEW},{OLD}")

    assert done.code == 0
    assert done.stdout == ""
    assert "sealed with the first key; leave only that key in PENSTOCK_KEY" in done.stderr
    assert cli("show", sealed, PENSTOCK_KEY=NEW).code == 0
    assert "sealed with another key" in cli("show", sealed, PENSTOCK_KEY=OLD).stderr
    assert not readable(folder)


def test_a_plain_store_gets_its_first_key_and_loses_it_again(cli, write, folder: Path) -> None:
    cli("run", write(f'{{id: a, uses: "py:tools:look", with: {{value: {SECRET}}}}}'))
    assert readable(folder)

    assert cli("rotate-key", PENSTOCK_KEY=NEW).code == 0
    assert not readable(folder)

    done = cli("rotate-key", "--plain", PENSTOCK_KEY=NEW)
    assert "made plain; PENSTOCK_KEY is not needed any more" in done.stderr
    assert cli("show", "last").code == 0


def test_a_dry_run_says_how_much_there_is_and_changes_nothing(cli, sealed: str) -> None:
    both = f"{NEW},{OLD}"

    words = cli("rotate-key", "--dry-run", PENSTOCK_KEY=both)
    before = cli("rotate-key", "--dry-run", "--json", PENSTOCK_KEY=both).lines[0]
    done = cli("rotate-key", "--json", PENSTOCK_KEY=both).lines[0]
    after = cli("rotate-key", "--dry-run", "--json", PENSTOCK_KEY=both).lines[0]

    assert "Nothing was changed" in words.stderr
    assert before["payloads"] > 0
    assert done == {"dry_run": False, "payloads": before["payloads"], "sealed": True}
    assert after == {"dry_run": True, "payloads": 0, "sealed": True}
    assert cli("show", sealed, PENSTOCK_KEY=NEW).code == 0


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("", "there is no key: set PENSTOCK_KEY=NEW,OLD"),
        (THIRD, "the store is sealed with another key"),
        ("file:nowhere.key", "the key file nowhere.key cannot be read"),
    ],
    ids=["none", "wrong", "missing file"],
)
def test_without_the_right_keys_nothing_is_changed(cli, sealed: str, key: str, complaint: str) -> None:
    done = cli("rotate-key", PENSTOCK_KEY=key)

    assert done.code == 2
    assert complaint in done.stderr
    assert cli("show", sealed, PENSTOCK_KEY=OLD).code == 0


def test_while_a_run_is_driven_its_driver_is_named(cli, begin, write, ledger) -> None:
    process = begin("run", write('{id: slow, uses: "py:tools:held"}'), PENSTOCK_KEY=OLD)
    while "held" not in ledger():
        assert process.poll() is None, process.communicate()

    done = cli("rotate-key", PENSTOCK_KEY=f"{NEW},{OLD}")

    assert done.code == 2
    assert str(process.pid) in done.stderr
    assert "let it end, or stop it (penstock abort " in done.stderr


def test_where_nothing_was_run_there_is_nothing_to_seal(cli, folder: Path) -> None:
    done = cli("rotate-key", PENSTOCK_KEY=NEW)

    assert done.code == 2
    assert "there is no store" in done.stderr
    assert not (folder / ".penstock").exists()


def test_what_does_not_last_cannot_be_sealed(cli) -> None:
    done = cli("rotate-key", "--store", "memory:", PENSTOCK_KEY=NEW)

    assert done.code == 2
    assert "memory:" in done.stderr
