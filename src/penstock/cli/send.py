"""`penstock send`: a command for a run, whichever process drives it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.run.commands import Command
    from penstock.store.base import RunRecord

AT_REST = ("waiting", "paused")
"""How a run stands that may be taken up for a command: nothing of it was under way."""


@exits.guarded
def send(
    run: stores.RunName,
    command: Annotated[
        str, typer.Argument(help="pause, resume, skip_step, modify_args, message …", metavar="COMMAND")
    ],
    fields: Annotated[
        list[str] | None,
        typer.Argument(help="What the command takes; lists and maps as JSON.", metavar="[KEY=VALUE]..."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One line that says what was accepted.")] = False,
    store: stores.Url = "",
) -> None:
    """Steer a run that is going on here or elsewhere, or that waits.

    Returns when the run has accepted the command. A run that waits or is paused, and that nobody
    drives, takes the command here, and goes on here if it can. A command that is refused changes
    nothing.
    """
    asked = parsed(command, fields or [])
    found = stores.asked(store, lambda penstock: _steered(penstock, run, store))
    if found.owner:
        stores.asked(store, lambda penstock: sent(penstock, found.run, asked))
        say_accepted(found.run, command, json=json)
        return
    from penstock.cli import outlets

    with outlets.stdout_kept_clean():
        status = stores.asked(store, lambda penstock: _deliver(penstock, found, asked))
    say_accepted(found.run, command, json=json, status=status)
    if status in ("failed", "partial"):
        raise typer.Exit(exits.of_run(status))


def say_accepted(run: str, command: str, *, json: bool, status: str = "") -> None:
    """That a run took a command, and how it stands when that became known here."""
    if json:
        from penstock.cli.outlets import json_line

        more = {"status": status} if status else {}
        sys.stdout.buffer.write(json_line({"run_id": run, "command": command, "accepted": True, **more}))
    else:
        exits.say(f"run {run}: {command} accepted" + (f"; it is {status}" if status else ""))


async def _steered(penstock: Penstock, name: str, url: str) -> RunRecord:
    """The run that is meant, if a command can reach it."""
    from penstock.store.listing import FINAL, root_of

    found = await stores.find(penstock, name)
    root = await root_of(penstock.store, found)
    if root.status in FINAL or found.status in FINAL:
        raise exits.Refused(f"run {found.run} has ended ({found.status})")
    if not found.owner and not await _at_rest(penstock, root):
        resume = stores.line("resume", found.run, url)
        raise exits.Refused(f"nobody drives run {found.run} ({found.status}); {resume} goes on with it")
    return found


async def _deliver(penstock: Penstock, found: RunRecord, command: Command) -> str:
    """Take up a run that is at rest, hand it a command, and drive it until it is at rest again.

    Returns how it stands then.
    """
    from penstock.engines.pickup import until_driven, until_left
    from penstock.engines.waiting import let_go
    from penstock.errors import CommandRejected, PenstockError
    from penstock.run.accept import refusal

    if wrong := refusal(await penstock.at(found.run), command):
        raise CommandRejected(wrong)  # it need not even be taken up
    handle = await penstock.resume(found.run.partition("/")[0])
    await until_driven(penstock, handle, found.run)
    try:
        await penstock.send(found.run, command)
    except PenstockError:
        await let_go(penstock.engine, handle.id)
        raise
    return (await until_left(penstock, handle.id, paused=True)).status


async def _at_rest(penstock: Penstock, root: RunRecord) -> bool:
    """Whether a run waits or is paused, or a child run of it waits."""
    from penstock.store.listing import descendants

    if root.status in AT_REST:
        return True
    return any(child.status == "waiting" for child in await descendants(penstock.store, root.run))


async def sent(penstock: Penstock, run: str, command: Command) -> None:
    """`Penstock.send`; silence is a failure, not a refusal."""
    from penstock.errors import PenstockError

    try:
        await penstock.send(run, command)
    except PenstockError as error:
        if type(error) is not PenstockError:
            raise
        exits.say(str(error))
        raise typer.Exit(exits.FAILED) from None


def parsed(name: str, pairs: Sequence[str]) -> Command:
    """A command from its name and what stands after it."""
    import msgspec

    from penstock.cli.ask import whoever
    from penstock.errors import DefinitionError
    from penstock.run.commands import kinds, read

    kind = kinds().get(name)
    fields = msgspec.structs.fields(kind) if kind is not None else ()
    given = _values(pairs, {field.encode_name: field.type for field in fields})
    try:
        return read({"command": name, "by": whoever(), **given})
    except DefinitionError as error:
        hint = "COMMAND" if kind is None else "KEY=VALUE"
        raise typer.BadParameter(str(error), param_hint=hint) from None


def _values(pairs: Sequence[str], types: dict[str, Any]) -> dict[str, Any]:
    from penstock.cli.text import value

    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="KEY=VALUE")
        read = value(text)
        # A name or a reason that looks like a number is text all the same.
        values[key] = read if isinstance(read, list | dict) or types.get(key) is int else text
    return values
