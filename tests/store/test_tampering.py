"""Whoever writes to a sealed store without its key can damage it, and cannot make it say something else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from vault import RUNS, Place, contents, fill

from penstock.errors import StoreError
from penstock.ids import RunId
from penstock.store.sealed import new_key
from penstock.testing.conformance.places import Inbox

KEY = new_key()
ONE, OTHER = RUNS[0], RUNS[1]

_KEY = "(SELECT key FROM runs WHERE run = '{}') << 32"


def row(run: RunId, first: int) -> str:
    return f"{_KEY.format(run)} | {first}"


def moved(table: str, payload: str, here: str, there: str) -> str:
    """Put the payload of one row in the place of another's."""
    return f"UPDATE {table} SET {payload} = (SELECT {payload} FROM {table} WHERE {there}) WHERE {here}"  # noqa: S608 - ours


MOVES = {
    "events of another run": moved("events", "batches", f"id = {row(ONE, 2)}", f"id = {row(OTHER, 2)}"),
    "events from elsewhere in the run": moved(
        "events", "batches", f"id = {row(ONE, 2)}", f"id = {row(ONE, 3)}"
    ),
    "a history under another name": f"UPDATE runs SET run = CASE run WHEN '{ONE}' THEN 'x' ELSE run END",  # noqa: S608 - ours
    "an output of another task": (
        "UPDATE blobs SET body = (SELECT body FROM blobs AS other WHERE other.hash > blobs.hash "
        "ORDER BY hash LIMIT 1) WHERE hash = (SELECT min(hash) FROM blobs)"
    ),
    "another checkpoint": moved(
        "checkpoints", "state", f"checkpoint = '{ONE}@2'", f"checkpoint = '{OTHER}@2'"
    ),
    "another example": moved("examples", "body", f"id = '{ONE}/e'", f"id = '{OTHER}/e'"),
    "a checkpoint as a definition": (
        f"UPDATE definitions SET body = (SELECT state FROM checkpoints WHERE checkpoint = '{ONE}@2')"  # noqa: S608 - ours
    ),
}


@pytest.mark.parametrize("move", list(MOVES.values()), ids=list(MOVES))
def test_a_payload_that_was_moved_is_refused_where_it_was_put(there: Place, move: str) -> None:
    there.at([KEY], fill)
    run = RunId("x") if "THEN 'x'" in move else ONE
    if run == "x" and there.kind == "postgres":  # others refer to the name there
        there.change("ALTER TABLE checkpoints DROP CONSTRAINT checkpoints_run_fkey")
        there.change("ALTER TABLE commands DROP CONSTRAINT commands_run_fkey")

    there.change(move)

    async def read(store: Any) -> None:
        if run == "x":
            await store.load(run)
        else:
            await contents(store)

    with pytest.raises(StoreError, match="not where it was written"):
        there.at([KEY], read)


def test_a_command_that_was_moved_to_another_run_is_not_carried_out(there: Place) -> None:
    there.at([KEY], fill)
    there.change(f"UPDATE commands SET id = 'd' WHERE run = '{ONE}'")  # noqa: S608 - ours

    async def scene(store: Any) -> tuple[list[Any], str | None]:
        inbox = Inbox(store)
        await store.reopen(ONE)
        async with asyncio.timeout(10):
            while (answer := await store.mail.answer(ONE, "d")) is None:  # noqa: ASYNC110 - as anyone asks
                await asyncio.sleep(0.02)
        return inbox.texts, answer

    heard, answer = there.at([KEY], scene)
    assert heard == []
    assert "cannot be read" in (answer or "")


FORGED = {
    "events": ("batches", "[]\n"),
    "blobs": ("body", '"forged"'),
    "checkpoints": ("state", "{}"),
    "definitions": ("body", '{"name": "flow", "steps": []}'),
    "examples": ("body", "{}"),
}


def forged(there: Place, text: str) -> str:
    """Plain bytes, as the database writes them."""
    return f"X'{text.encode().hex()}'" if there.kind == "sqlite" else f"'\\x{text.encode().hex()}'"


@pytest.mark.parametrize("table", list(FORGED))
def test_a_payload_that_was_slipped_in_without_a_seal_is_refused(there: Place, table: str) -> None:
    there.at([KEY], fill)
    payload, text = FORGED[table]
    there.change(f"UPDATE {table} SET {payload} = {forged(there, text)}")  # noqa: S608 - ours

    with pytest.raises(StoreError, match=f"something in {table} is not sealed"):
        there.at([KEY], contents)


def test_the_check_of_the_key_cannot_be_replaced_by_one_that_asks_for_none(there: Place) -> None:
    there.at([KEY], fill)
    there.change(f"UPDATE meta SET value = {forged(there, 'penstock')} WHERE name = 'seal'")  # noqa: S608 - ours

    with pytest.raises(StoreError, match="not sealed, and there is a key"):
        there.at([KEY], contents)
