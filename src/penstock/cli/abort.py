"""`penstock abort`: stop a run for good, whoever drives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.run.commands import Abort
    from penstock.store.base import RunRecord


@exits.guarded
def abort(
    run: stores.RunName,
    reason: Annotated[str, typer.Option(help="Why, for the record.", metavar="TEXT")] = "",
    json: Annotated[bool, typer.Option("--json", help="One line that says what was accepted.")] = False,
    store: stores.Url = "",
) -> None:
    """Stop a run: what runs is cancelled, the rest is skipped.

    A run that nobody drives is ended here; nothing of it is run.
    """
    from penstock.cli.send import say_accepted

    id = stores.asked(store, lambda penstock: _abort(penstock, run, reason))
    say_accepted(id, "abort", json=json)


async def _abort(penstock: Penstock, name: str, reason: str) -> str:
    from penstock.cli import again
    from penstock.cli.ask import whoever
    from penstock.cli.send import sent
    from penstock.run.commands import Abort
    from penstock.store.listing import FINAL, descendants

    found = await stores.find(penstock, name)
    if found.status in FINAL:
        again.has_ended(found, found.status)
    command = Abort(reason=reason, by=whoever())
    if found.owner:
        await sent(penstock, found.run, command)
        return found.run
    family = [found, *await descendants(penstock.store, found.run)]
    for one in reversed(family):  # children first: nobody would end them later
        if one.status not in FINAL:
            await _end(penstock, one, command)
    return found.run


async def _end(penstock: Penstock, found: RunRecord, command: Abort) -> None:
    """Take a run up and end it in the same breath: tasks that are owed never begin."""
    run = await penstock.resume(found.run)
    await run.send(command)
    await run.result()
