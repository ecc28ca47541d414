"""`penstock runs`: the runs of a store, the newest first."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from penstock.store.base import RunRecord


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
    from penstock.store.listing import STATUSES

    if status and status not in STATUSES:
        from penstock.workflow.findings import did_you_mean

        hint = did_you_mean(status, STATUSES) or f"it is one of {', '.join(STATUSES)}"
        raise typer.BadParameter(f"no run is ever {status!r} ({hint})", param_hint="--status")
    where = {"status": status, "workflow": workflow}
    chosen = {name: text for name, text in where.items() if text}
    roots = {} if all else {"parent": None}
    try:
        found = stores.asked(store, lambda penstock: penstock.store.runs(limit=limit, **roots, **chosen))
    except stores.NoStore as error:
        exits.say(str(error))
        return
    if json:
        from penstock.cli.outlets import json_line
        from penstock.engines.plain import run_line

        sys.stdout.buffer.writelines(json_line(run_line(one)) for one in found)
    elif found:
        _print(found)
    else:
        exits.say("no such run" if chosen else "no runs yet")


def _print(found: Sequence[RunRecord]) -> None:
    from rich.text import Text

    from penstock.cli.live import colour_of
    from penstock.cli.paper import Paper
    from penstock.cli.text import one_line

    paper = Paper()
    ids = max(len(one.run) for one in found)
    names = max(len(one.workflow) for one in found)
    for one in found:
        line = Text.assemble(
            f"{one.run:<{ids}}  ",
            (f"{one.status:<9}", colour_of(one.status)),
            f"  {one_line(one.workflow):<{names}}  ",
            (f"{_started(one)}  {_took(one):>8}  ", "dim"),
            (_note(one), "dim"),
        )
        line.rstrip()
        paper.row(line)


def _started(one: RunRecord) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(one.started).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _took(one: RunRecord) -> str:
    from penstock.cli.text import span

    return span(one.ended - one.started) if one.ended is not None else ""


def _note(one: RunRecord) -> str:
    from penstock.cli.text import one_line
    from penstock.store.listing import FINAL

    parts = []
    if one.status not in FINAL and not one.owner:
        parts.append("nobody drives it")
    if one.fork_of:
        parts.append(f"forked from {one.fork_of} at {one.fork_at}")
    if one.reason:
        parts.append(one_line(one.reason))
    return ", ".join(parts)
