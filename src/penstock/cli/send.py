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
    from penstock.cli.pickup import deliver

    with outlets.stdout_kept_clean():
        status = stores.asked(store, lambda penstock: deliver(penstock, found, asked))
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
    found = await stores.find(penstock, name)
    root = await stores.find(penstock, found.run.partition("/")[0]) if found.parent else found
    if root.status in stores.FINAL or found.status in stores.FINAL:
        raise exits.Refused(f"run {found.run} has ended ({found.status})")
    if not found.owner and not await _at_rest(penstock, root):
        resume = stores.line("resume", found.run, url)
        raise exits.Refused(f"nobody drives run {found.run} ({found.status}); {resume} goes on with it")
    return found


async def _at_rest(penstock: Penstock, root: RunRecord) -> bool:
    """Whether a run waits or is paused, or a child run of it waits."""
    if root.status in AT_REST:
        return True
    return any(child.status == "waiting" for child in await stores.descendants(penstock, root.run))


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
    from penstock.run.commands import Command
    from penstock.workflow.findings import did_you_mean

    kinds = {str(kind.__struct_config__.tag): kind for kind in Command.__args__}
    kind = kinds.get(name)
    if kind is None:
        hint = did_you_mean(name, kinds) or f"there are {', '.join(kinds)}"
        raise typer.BadParameter(f"there is no command {name!r} ({hint})", param_hint="COMMAND")
    types = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    values = {"by": whoever(), **_values(name, pairs, types)}
    if "steps" in values:
        values["steps"] = _steps(values["steps"])
    try:
        command: Command = msgspec.convert({"command": name, **values}, kind)
    except msgspec.ValidationError as error:
        raise typer.BadParameter(f"{name}: {error}", param_hint="KEY=VALUE") from None
    return command


def _values(name: str, pairs: Sequence[str], types: dict[str, Any]) -> dict[str, Any]:
    from penstock.cli.text import value
    from penstock.workflow.findings import did_you_mean

    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="KEY=VALUE")
        if key not in types:
            hint = did_you_mean(key, types) or f"it takes {', '.join(types)}"
            raise typer.BadParameter(f"{name} takes no {key!r} ({hint})", param_hint="KEY=VALUE")
        read = value(text)
        # A name or a reason that looks like a number is text all the same.
        values[key] = read if isinstance(read, list | dict) or types[key] is int else text
    return values


def _steps(written: Any) -> Any:
    """Steps as a workflow file writes them: short forms, durations and all."""
    from penstock.errors import DefinitionError
    from penstock.workflow.nodes import Node
    from penstock.workflow.read import read

    try:
        return read(Node.from_plain({"name": "injected", "steps": written}))[0].steps
    except DefinitionError as error:
        raise typer.BadParameter(str(error), param_hint="steps") from None
