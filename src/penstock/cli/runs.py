"""`penstock runs`: the runs of a store, the newest first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from penstock.store.base import RunRecord

STATUSES = ("pending", "running", "waiting", "paused", "succeeded", "failed", "partial", "aborted")


@exits.guarded
def runs(
    status: Annotated[
        str, typer.Option(help="Only runs that stand like this, e.g. waiting.", metavar="STATUS")
    ] = "",
    workflow: Annotated[str, typer.Option(help="Only runs of this workflow.", metavar="NAME")] = "",
    limit: Annotated[int, typer.Option(help="No more than this many.", metavar="N", min=1)] = 20,
    all: Annotated[bool, typer.Option("--all", help="Child runs, too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object for each run.")] = False,
    store: stores.Url = "",
) -> None:
    """List runs, the newest first."""
    if status and status not in STATUSES:
        from penstock.workflow.findings import did_you_mean

        hint = did_you_mean(status, STATUSES) or f"it is one of {', '.join(STATUSES)}"
        raise typer.BadParameter(f"no run is ever {status!r} ({hint})", param_hint="--status")
    where = {"status": status, "workflow": workflow}
    chosen = {name: text for name, text in where.items() if text}
    try:
        found = stores.asked(
            store, lambda penstock: stores.listed(penstock, limit=limit, children=all, **chosen)
        )
    except stores.NoStore as error:
        exits.say(str(error))
        return
    if json:
        from penstock.cli.outlets import json_line

        sys.stdout.buffer.writelines(json_line(plain(one)) for one in found)
    elif found:
        _print(found)
    else:
        exits.say("no such run" if chosen else "no runs yet")


def plain(one: RunRecord) -> dict[str, Any]:
    """A run as programs see it in a list."""
    from penstock.cli.text import moment

    return {
        "run_id": one.run,
        "status": one.status,
        "workflow": one.workflow,
        "started": moment(one.started),
        "ended": None if one.ended is None else moment(one.ended),
        "events": one.events,
        "reason": one.reason,
        "owner": one.owner or None,
        "parent": one.parent,
        "fork_of": one.fork_of,
        "fork_at": one.fork_at,
        "source": one.source,
        "hash": one.hash,
    }


def _print(found: list[RunRecord]) -> None:
    from rich.console import Console
    from rich.text import Text

    from penstock.cli.live import colour_of

    console = Console(highlight=False)
    whole = not console.is_terminal
    ids = max(len(one.run) for one in found)
    names = max(len(one.workflow) for one in found)
    for one in found:
        line = Text.assemble(
            f"{one.run:<{ids}}  ",
            (f"{one.status:<9}", colour_of(one.status)),
            f"  {one.workflow:<{names}}  ",
            (f"{_started(one)}  {_took(one):>8}  ", "dim"),
            (_note(one), "dim"),
        )
        line.rstrip()
        if whole:
            console.print(line, soft_wrap=True)
        else:
            console.print(line, no_wrap=True, overflow="ellipsis")


def _started(one: RunRecord) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(one.started).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _took(one: RunRecord) -> str:
    from penstock.cli.text import span

    return span(one.ended - one.started) if one.ended is not None else ""


def _note(one: RunRecord) -> str:
    from penstock.cli.text import one_line

    parts = []
    if one.status not in stores.FINAL and not one.owner:
        parts.append("nobody drives it")
    if one.fork_of:
        parts.append(f"forked from {one.fork_of} at {one.fork_at}")
    if one.reason:
        parts.append(one_line(one.reason))
    return ", ".join(parts)
