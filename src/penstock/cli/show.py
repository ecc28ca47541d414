"""`penstock show`: how a run went, how it stands, or how it stood."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.cli.record import Record
    from penstock.run.events import DecisionRequired
    from penstock.run.state import Run
    from penstock.store.base import CheckpointRecord, RunRecord


@exits.guarded
def show(
    source: Annotated[
        str,
        typer.Argument(
            help="A run: its id, the first characters of it, or `last`. Or a file that `run --save` wrote; "
            "- for stdin.",
            metavar="RUN|FILE",
        ),
    ],
    at: Annotated[
        int | None, typer.Option(help="As it stood after this event.", metavar="N", min=0, show_default=False)
    ] = None,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="Its checkpoints, one a line.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One line: the one that ends `run --json`.")] = False,
    all: Annotated[bool, typer.Option("--all", help="Every step, however many there are.")] = False,
    store: stores.Url = "",
) -> None:
    """Show a run, as it stands or as it stood.

    Steps, timing, outputs, who drives it, where it was forked, open decisions.
    """
    from penstock.cli import record

    if record.is_file(source):
        if at is not None or checkpoints:
            raise exits.Refused("--at and --checkpoints need a run of a store, not a file")
        saved = record.load(source)
        if not saved.complete:
            exits.say(f"{source}: the record ends before the run did")
    elif checkpoints:
        _print_checkpoints(stores.asked(store, lambda penstock: _checkpoints(penstock, source)), json=json)
        return
    else:
        saved = stores.asked(store, lambda penstock: stored(penstock, source, at, store))
    if json:
        from penstock.cli.outlets import json_line

        sys.stdout.buffer.write(json_line(saved.summary))
        return
    _print(saved, limit=0 if all else ROWS)


ROWS = 200
"""Steps shown unless all are asked for."""


async def stored(penstock: Penstock, name: str, at: int | None, url: str) -> Record:
    """A run of the store, folded."""
    from msgspec import structs

    from penstock.cli.follow import summary_of
    from penstock.cli.record import Record
    from penstock.cli.view import View
    from penstock.engines.base import result_of

    found = await stores.find(penstock, name)
    run = await penstock.at(found.run, at)
    view = View.of(run.graph)
    events = await penstock.store.load(found.run)
    for event in events[: run.seq]:
        view.take(event)
    asked = await _asked(penstock, run, whole=at is None)
    result = result_of(run)
    if asked and at is None and not found.owner and result.status == "running":
        result = structs.replace(result, status="waiting")  # only its children wait, and nobody drives it
    view.said = result.status
    notes = await _notes(penstock, found, run, len(events), url)
    if at is not None and (run.context or run.keys):
        from penstock.cli.lines import brief

        notes.append(f"context {brief({**run.context, **run.keys})}")
    return Record(found.run, view, summary_of(result, asked), run.seq, run.ended, tuple(notes))


async def _asked(penstock: Penstock, run: Run, *, whole: bool) -> list[DecisionRequired]:
    """Open decisions, those of child runs included when the present is meant."""
    if run.ended:
        return []
    asked: list[Any] = list(run.decisions.values())
    if whole:
        for child in await stores.descendants(penstock, run.id):
            if child.status not in stores.FINAL:
                asked += (await penstock.at(child.run)).decisions.values()
    return asked


async def _notes(penstock: Penstock, found: RunRecord, run: Run, events: int, url: str) -> list[str]:
    from penstock.cli.text import count

    notes = []
    if run.seq < events:
        notes.append(f"as it stood after event {run.seq:,} of {events:,}")
    if found.owner:
        notes.append(f"driven by {found.owner}")
    elif not run.ended:
        notes.append(f"nobody drives it; {stores.line('resume', found.run, url)} goes on with it")
    if found.parent:
        notes.append(f"started by run {found.parent}")
    before: RunRecord | None = found
    while before is not None and before.fork_of:
        notes.append(f"forked from run {before.fork_of} at event {before.fork_at:,}")
        before = next(iter(await penstock.store.runs(run=before.fork_of)), None)
    if found.source:
        notes.append(f"defined in {found.source}, {found.hash[:19]}")
    kept = await penstock.store.checkpoints.list(found.run)
    if kept:
        latest = f"{kept[-1].checkpoint} after event {kept[-1].seq:,}"
        notes.append(f"{count(len(kept), 'checkpoint')}, the latest {latest}")
    return notes


async def _checkpoints(penstock: Penstock, name: str) -> list[CheckpointRecord]:
    found = await stores.find(penstock, name)
    return list(await penstock.store.checkpoints.list(found.run))


def _print_checkpoints(kept: list[CheckpointRecord], *, json: bool) -> None:
    from penstock.cli.text import moment, size

    for one in kept:
        if json:
            from penstock.cli.outlets import json_line

            data = {
                "checkpoint": one.checkpoint, "run_id": one.run, "seq": one.seq, "at": moment(one.at),
                "layer": one.layer, "size": one.size,
            }  # fmt: skip
            sys.stdout.buffer.write(json_line(data))
        else:
            print(f"{one.checkpoint}  event {one.seq:>6,}  layer {one.layer:>3,}  {size(one.size):>9}")


def _print(saved: Record, *, limit: int) -> None:
    from rich.console import Console

    from penstock.cli.text import legible, pretty
    from penstock.cli.timeline import Timeline

    console = Console(highlight=False)
    whole = not console.is_terminal  # nobody's screen: nothing is cut off
    for line in Timeline(saved, console).lines(limit):
        if whole:
            console.print(line, soft_wrap=True)
        else:
            console.print(line, no_wrap=True, overflow="ellipsis")
    if saved.view.outputs:
        console.print("\n[bold]outputs[/bold]")
        console.print(legible(pretty(saved.view.outputs)), markup=False, soft_wrap=True)
